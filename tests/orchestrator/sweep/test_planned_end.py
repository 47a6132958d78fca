"""A loss of somebody's script counts only where it was measured: at the end of the plan."""

import sys
from pathlib import Path

import pytest

from support import assert_refused

SCRIPT = """
import json, os, sys
given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
every, steps = int(given.get("--eval_interval", 1)), int(given["steps"])
with open(os.path.join(given["out"], "log.jsonl"), "w") as log:
    for step in range(every, steps + 1, every):
        print(json.dumps({"step": step, "loss": 4 - step / steps}), file=log)
"""
SWEEP = f"""\
name: ends
trainer:
  command: [{sys.executable}, train.py, "steps={{steps}}", "out={{out}}", "seed={{seed}}", "arm={{kind}}",
            WORDS]
  metrics: log.jsonl
fields: {{kind: str}}
n_params: 100 * width ** 2
trial: {{batch_tokens: 64}}
ladder: [{{name: s, width: 2}}]
tokens_per_parameter: 16
arms: {{a: {{kind: a}}, b: {{kind: b}}}}
seeds: [0]
compare: {{reference: a}}
"""
"""Its plan ends at step 100."""


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Writes the script and its sweep, with further words of the command."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "train.py").write_text(SCRIPT)

    def write(words: str) -> Path:
        (tmp_path / "ends.yaml").write_text(SWEEP.replace("WORDS", words))
        return tmp_path

    return write


def test_a_loss_of_before_the_end_is_no_result_and_the_numbers_and_the_remedy_are_said(given, scalevec):
    folder = given('"--eval_interval=35"')
    message = "is of step 70; the plan ends at step 100 (6,400 tokens). Evaluate after the last step"
    assert_refused(scalevec("run", "ends.yaml", "--trust"), 1, message)
    assert not list(folder.glob("runs/trials/*/*/result.json"))
    assert len(list(folder.glob("runs/trials/*/*/claims/*.json"))) == 2  # each was tried once


def test_an_interval_that_divides_the_steps_is_well(given, scalevec):
    given('"--eval_interval=25"')
    assert scalevec("run", "ends.yaml", "--trust").returncode == 0


def test_plan_and_run_say_where_the_end_cannot_be_checked(given, scalevec):
    folder = given("x")
    text = (folder / "ends.yaml").read_text().replace("trial: {batch_tokens: 64}\n", "")
    text = text.replace("steps=", "tokens=")
    (folder / "ends.yaml").write_text(text.replace("{steps}", "{tokens}"))
    for command in (["plan", "ends.yaml"], ["run", "ends.yaml", "--executor", "simulate"]):
        assert "at the planned end cannot be checked: name tokens" in scalevec(*command).stderr
