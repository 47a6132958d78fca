"""Reading a sweep file's YAML: plain data only, with lines, whatever is thrown at it."""

from pathlib import Path

import pytest

from scalevec.sweeps.errors import SweepError
from scalevec.sweeps.yaml_source import LARGEST_FILE, SweepSource, read_file, read_text


def read(text: str) -> SweepSource:
    return read_text(text, "my.yaml", Path())


def refusal(text: str) -> str:
    with pytest.raises(SweepError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8.0e-3", 0.008),
        (".5", 0.5),
        ("0128", 128),
        ("1_000", 1000),
        ("true", True),
        ("on", "on"),
        ("null", None),
        ("", None),
        ("'8e-3'", "8e-3"),
        ("12:30:45", "12:30:45"),
        ("!!str 8", "8"),
        ("!!int 8", 8),
        (".5e3", 500.0),
        ("0o17", "0o17"),
    ],
)
def test_a_scalar_is_what_it_looks_like(text: str, value: object) -> None:
    a = read(f"a: {text}").data["a"]
    assert (a, type(a)) == (value, type(value))


def test_keys_are_text() -> None:
    assert list(read("{on: 1, no: 2, 3: 3, true: 4, ~: 5}").data) == ["on", "no", "3", "true", "~"]


def test_every_field_has_its_line() -> None:
    source = read("a: 1\nb:\n  c: [1,\n      2]\n  d: {e: 3}\n")
    assert [source.line(path) for path in [("a",), ("b",), ("b", "c", 0), ("b", "c", 1)]] == [1, 2, 3, 4]
    assert source.line(("b", "d", "e", "unknown")) == 5


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!!binary"])
def test_a_tag_that_would_construct_something_is_refused_with_its_line(tag: str) -> None:
    message = refusal(f"name: x\nseeds: {tag} [1]\n")
    assert message.startswith("my.yaml:2: seeds: the tag ")
    assert tag in message


def test_a_repeated_key_is_refused_with_both_lines() -> None:
    assert refusal("a: 1\nb: 2\na: 3") == "my.yaml:3: a: given twice; the first is in line 1"


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert "counting every use of an alias" in refusal("\n".join(lines))


def test_an_alias_for_itself_is_refused() -> None:
    assert refusal("a: 1\nb: &b [*b]") == "my.yaml:2: b: nested more than 20 deep"


def test_an_anchor_may_be_set_again(recwarn: pytest.WarningsRecorder) -> None:
    assert read("a: &x 1\nb: &x 2\nc: *x").data == {"a": 1, "b": 2, "c": 2}
    assert not recwarn.list


def test_a_problem_below_an_alias_stands_where_its_text_stands() -> None:
    assert read("a: &x {c: 1}\n\nb: *x").line(("b", "c")) == 1


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_the_version_in_a_directive_changes_no_value(version: str) -> None:
    assert read(f"%YAML {version}\n---\na: [on, 017, 1:30]").data == {"a": ["on", 17, "1:30"]}


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000])
def test_deep_nesting_is_refused(text: str) -> None:
    assert refusal(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "my.yaml:1: not YAML"),
        ("a: 1\n\tb: 2", "my.yaml:2: not YAML"),
        ("a: 1\nb: \0", "my.yaml:2: the character '\\x00' is not allowed in YAML"),
        ("--- 1\n--- 2", "my.yaml:2: not YAML: expected a single document"),
        ("? [1]\n: 2", "my.yaml:1: a key that is not plain text"),
        ('a: "\\UFFFFFFFF"', "my.yaml:1: not YAML"),
        ('a: "\\ud800"', "my.yaml:1: a: '\\ud800' holds half a character"),
    ],
)
def test_what_is_not_one_plain_document_is_refused(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


@pytest.mark.parametrize(
    ("name", "problem"), [("none.yaml", r"none\.yaml:1: no such"), ("", "cannot be read: Is a directory")]
)
def test_what_is_no_file_is_said(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(SweepError, match=problem):
        read_file(tmp_path / name)


def test_text_that_is_not_utf8_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: x\n# caf\xe9\n")
    with pytest.raises(SweepError, match=r"latin\.yaml:2: not UTF-8 text"):
        read_file(path)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\n")
    assert read_file(path).data == {"name": "x"}


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (LARGEST_FILE + 1))
    with pytest.raises(SweepError, match="not a sweep file"):
        read_file(path)
