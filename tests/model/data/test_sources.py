import os
from pathlib import Path

import pytest

from corpus_reference import read_documents
from scalevec.model.data import CorpusConfig, CorpusError
from scalevec.model.data.formats import BLOCK, NotTextError, text_blocks
from scalevec.model.data.sources import stdlib_files


def text(patterns: tuple[str, ...]) -> list[bytes]:
    """The documents of the source ``text``."""
    config = CorpusConfig("text", "bytes", 256, patterns)
    return read_documents(config)


def write(path: Path, content: bytes = b"text\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_the_standard_library_is_read_without_tests_tools_and_installed_packages(tmp_path: Path) -> None:
    kept = ["abc.py", "encodings/utf_8.py", "testing.py", "zipfile.py"]
    left_out = [
        *("test/test_abc.py", "unittest/test/x.py", "lib2to3/pytree.py", "idlelib/idle.py"),
        *("site-packages/torch/a.py", "dist-packages/a.py", "distutils/tests/a.py", "json/__pycache__/a.py"),
        *("_sysconfigdata__linux.py", "sitecustomize.py", "config-3.11/python-config.py", "notes.txt"),
    ]
    for name in kept + left_out:
        write(tmp_path / name)
    assert [path.relative_to(tmp_path).as_posix() for path in stdlib_files(tmp_path)] == kept


def test_a_library_file_that_is_not_utf8_is_skipped_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "good.py", "é\n".encode())
    write(tmp_path / "old" / "latin.py", b"# caf\xe9\n")
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    skipped: list[str] = []
    config = CorpusConfig("python-stdlib", "bytes", 256)
    assert read_documents(config, skipped.append) == ["é\n".encode()]
    assert skipped == ["old/latin.py"]


def test_a_pattern_reaches_into_directories(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"a")
    write(tmp_path / "deep" / "down" / "b.txt", b"b")
    write(tmp_path / "c.md", b"c")
    assert text((f"{tmp_path}/**/*.txt",)) == [b"a", b"b"]


def test_a_name_with_pattern_characters_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "part[1].txt", b"a")
    assert text((str(path),)) == [b"a"]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"a")
    assert text((str(path), f"{tmp_path}/*.txt")) == [b"a"]


@pytest.mark.parametrize("name", ["missing.txt", "*.nothing", "**/*.nothing"])
def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.txt")
    with pytest.raises(CorpusError, match="does not exist") as error:
        text((str(tmp_path / "a.txt"), str(tmp_path / name)))
    assert name in str(error.value)


def test_a_directory_is_refused_with_what_to_write_instead(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"is a directory; name its files"):
        text((str(tmp_path),))


def test_a_file_that_is_not_utf8_is_named_with_the_place(tmp_path: Path) -> None:
    path = write(tmp_path / "latin.txt", b"caf\xe9 ")
    with pytest.raises(CorpusError, match=r"latin\.txt' is not UTF-8 text: .* at byte 3"):
        text((str(path),))


@pytest.mark.parametrize(
    ("end", "fault"),
    [
        (b"\xe9 ", f"at byte {BLOCK + 1}"),
        (b"\0", f"a NUL byte at byte {BLOCK + 1}"),
        (b"\xe2\x82", f"unexpected end of data at byte {BLOCK + 1}"),
    ],
)
def test_the_place_of_a_fault_counts_from_the_beginning_of_a_large_file(
    tmp_path: Path, end: bytes, fault: str
) -> None:
    path = write(tmp_path / "large.txt", b"x" * (BLOCK - 1) + "é".encode() + end)  # é straddles two blocks
    with pytest.raises(CorpusError, match=fault):
        text((str(path),))


def test_a_nul_byte_is_no_text(tmp_path: Path) -> None:
    assert b"".join(text_blocks(write(tmp_path / "a.txt"))) == b"text\n"
    with pytest.raises(NotTextError, match="a NUL byte at byte 2"):
        list(text_blocks(write(tmp_path / "b.txt", b"ab\0c")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "secret.txt")
    path.chmod(0)
    with pytest.raises(CorpusError, match=r"secret\.txt' cannot be read: Permission denied"):
        text((str(path),))


def test_a_name_that_the_system_refuses_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be read: File name too long"):
        text((str(tmp_path / ("x" * 300)),))
