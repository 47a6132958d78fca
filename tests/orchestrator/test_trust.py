"""A sweep's own code runs only once a person has agreed to exactly that content."""

import io
import json
import sys

import pytest

from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.trust import Trust, content_hash, require_trust, writers_agreed_to

CODE = {"mylab/arms.py": b"print('arms')\n"}
CHANGED = {"mylab/arms.py": b"print('legs')\n"}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def trusted_file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "scalevec" / "trusted.json"


@pytest.fixture
def answer(monkeypatch):
    """A terminal at which a person types the given line."""

    def typed(line: str) -> _Terminal:
        monkeypatch.setattr(sys, "stdin", _Terminal(line))
        monkeypatch.setattr(sys, "stderr", printed := _Terminal())
        return printed

    return typed


def test_without_a_terminal_it_is_refused_with_what_would_run_and_the_option(capsys):
    with pytest.raises(InvalidInputError, match=r"small\.yaml: .*nothing was run.*--trust"):
        require_trust("small.yaml", CODE)
    assert "mylab/arms.py (14 bytes)" in capsys.readouterr().err


def test_the_option_is_enough_and_is_remembered_for_this_content_alone(trusted_file):
    assert require_trust("small.yaml", CODE, Trust(given=True)) == content_hash(CODE)
    require_trust("a/copy.yaml", CODE)
    with pytest.raises(InvalidInputError):
        require_trust("small.yaml", CHANGED)
    assert list(json.loads(trusted_file.read_bytes())) == [content_hash(CODE)]
    assert trusted_file.stat().st_mode & 0o777 == 0o600


def test_a_person_is_asked_once_per_content(answer):
    printed = answer("y\n")
    require_trust("small.yaml", CODE)
    assert "mylab/arms.py" in printed.getvalue()
    silent = answer("")
    require_trust("small.yaml", CODE)
    assert silent.getvalue() == ""


@pytest.mark.parametrize("line", ["n\n", "\n", ""])
def test_anything_but_yes_is_no(answer, trusted_file, line):
    answer(line)
    with pytest.raises(InvalidInputError, match="nothing was run"):
        require_trust("small.yaml", CODE)
    assert not trusted_file.exists()


def test_what_a_trusted_command_sent_asks_nobody_and_refuses_changed_content():
    sent = Trust(sent=("other", content_hash(CODE)))
    assert require_trust("small.yaml", CODE, sent) == content_hash(CODE)
    with pytest.raises(InvalidInputError, match="has changed since it was sent"):
        require_trust("small.yaml", CHANGED, sent)


def test_a_file_that_others_may_write_counts_for_nothing(trusted_file):
    require_trust("small.yaml", CODE, Trust(given=True))
    trusted_file.chmod(0o620)
    with pytest.raises(InvalidInputError):
        require_trust("small.yaml", CODE)


def test_a_sweep_without_code_of_its_own_asks_nothing():
    assert require_trust("small.yaml", {}) == ""
    assert require_trust("small.yaml", {}, Trust(sent=())) == ""


def test_the_digest_tells_apart_the_same_bytes_under_other_names():
    assert content_hash({"a": b"1", "b": b"2"}) != content_hash({"a": b"2", "b": b"1"})


@pytest.mark.parametrize(("typed", "agrees"), [("y\n", True), ("\n", False)])
def test_a_person_is_asked_whether_checkpoints_of_others_are_gone_on_from(answer, typed, agrees):
    printed = answer(typed)
    writers = ("alice", "the group")
    assert writers_agreed_to("own.yaml", writers, Trust()) == (writers if agrees else ())
    assert "alice, the group may have written checkpoints" in printed.getvalue()


def test_where_nobody_can_be_asked_checkpoints_of_others_are_left_unless_the_option_is_given():
    assert writers_agreed_to("own.yaml", ["alice"], Trust()) == ()
    assert writers_agreed_to("own.yaml", ["alice"], Trust(given=True)) == ("alice",)


def test_a_controller_goes_on_from_checkpoints_of_those_whom_its_sender_agreed_to(answer):
    answer("y\n")
    assert writers_agreed_to("own.yaml", ["alice"], Trust(sent=())) == ()
    assert writers_agreed_to("own.yaml", ["alice", "bob"], Trust(sent=("alice",))) == ("alice",)


def test_nobody_is_asked_about_checkpoints_where_no_other_has_written_any(answer):
    silent = answer("y\n")
    assert writers_agreed_to("own.yaml", [], Trust()) == ()
    assert silent.getvalue() == ""


def test_what_others_could_have_agreed_to_in_ones_place_does_not_count(trusted_file, capsys):
    require_trust("small.yaml", CODE, Trust(given=True))
    trusted_file.parent.chmod(0o770)
    with pytest.raises(InvalidInputError):
        require_trust("small.yaml", CODE)
    require_trust("small.yaml", CODE, Trust(given=True))
    assert f"others may write in {trusted_file.parent}" in capsys.readouterr().err
