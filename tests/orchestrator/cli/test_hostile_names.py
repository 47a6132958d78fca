"""Whatever names, logs and tables of other people hold, a terminal gets characters that print."""

import json

import pytest

from recorded_sweep import directory_of, member_of, record_sweep
from scalevec.orchestrator.cli.output import json_line, json_text
from scalevec.orchestrator.progress import note, printable

ORDER = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
CONTROLS = "\x00\x07\x08\x0b\x0d\x1b[31m\x7f\x85\x9b2J"


@pytest.fixture
def runs(tmp_path):
    """A sweep of one trial, whose arm, error and log try to command the terminal."""
    record_sweep(tmp_path / "runs", "small", [member_of("none", 0) | {"arm": f"a{ORDER}{CONTROLS[1:]}"}])
    trial = directory_of(tmp_path / "runs", "none", 0)
    trial.append_event("failed", cause="error", error=f"{ORDER}{CONTROLS}", reason="the same error twice")
    trial.log_path.write_text(f"{ORDER}{CONTROLS}\n")
    return tmp_path / "runs"


def holds_any(text: str) -> bool:
    return not text.replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.parametrize(
    "words",
    [
        "status small",
        "status small --watch",
        "status small --watch --json",
        "explain TRIAL",
        "logs TRIAL",
        "results small",
        "cancel small",
    ],
)
def test_no_command_passes_one_on(command, runs, words):
    done = command(*words.replace("TRIAL", directory_of(runs, "none", 0).trial_id).split())
    assert done.returncode in (0, 1)
    assert not holds_any(done.stdout + done.stderr)
    assert "json" not in words or json.loads(done.stdout)


def test_an_argument_is_told_in_characters_that_print(command):
    for words in (["status", f"x{ORDER}{CONTROLS[1:]}"], ["status", f"--x{ORDER}{CONTROLS[1:]}"]):
        done = command(*words)
        assert done.returncode == 2
        assert not holds_any(done.stdout + done.stderr)


def test_letters_of_all_languages_signs_and_line_ends_stay():
    text = "é ß 学习率 שלום α·β ≤ │─┐ ▁▂▃\n\tend"
    assert printable(text) == text


def test_a_direction_of_writing_is_shown_as_its_escape(capsys):
    note("arm \u202eenon\u2069")
    assert capsys.readouterr().err == "arm \\u202eenon\\u2069\n"


@pytest.mark.parametrize("write", [json_text, json_line])
def test_json_is_valid_and_of_characters_that_print(write):
    record = {f"a{CONTROLS}": f"{ORDER}{CONTROLS}"}
    assert not holds_any(printable(write(record)))
    assert json.loads(printable(write(record))).items() >= record.items()


HUGE = "x" * 30_000


@pytest.mark.parametrize(
    "text",
    [
        f"name: {HUGE}\nladder: [tiny-25k]\narms: {{a: {{}}}}\n",
        f"name: x\nladder: [tiny-25k]\narms: {{{HUGE}: {{}}}}\nseeds: [a]\n",
        f"{HUGE}: 1\n",
        f"name: x\nladder: [{HUGE}]\narms: {{a: {{{HUGE}: 1}}}}\n",
        f"name: x\ngrid: {{{HUGE}: [1]}}\nladder: [tiny-25k]\narms: {{a: {{}}}}\n",
        f"name: x\nladder: [tiny-25k]\narms: {{{', '.join(f'a{n}: {{}}' for n in range(3000))}}}\n"
        "compare: {reference: b}\n",
        f"name: x\nexclude: [{{arm: {HUGE}}}]\nladder: [tiny-25k]\narms: {{a: {{}}}}\n",
    ],
)
def test_a_message_echoes_no_value_without_end(command, tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    done = command("plan", "x.yaml")
    assert done.returncode == 2
    assert max(map(len, done.stderr.splitlines())) < 1_100


@pytest.mark.parametrize("words", [["status", HUGE], ["explain", HUGE], ["plan", "--store", HUGE], [HUGE]])
def test_nor_does_one_about_an_argument(command, words):
    done = command(*words)
    assert done.returncode in (2, 3)
    assert len(done.stderr) < 3_000
