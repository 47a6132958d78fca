"""A sweep that goes on until it is decided, on the local executor: it ends where its looks say."""

import json
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, sys
width, harm, seed, tokens, out = sys.argv[1:]
os.makedirs(out, exist_ok=True)
wobble = 0.003 * (-1) ** int(seed) if float(harm) else 0
loss = 2 + 9 / int(width) + float(harm) + wobble
with open(os.path.join(out, "log.jsonl"), "w") as log:
    print(json.dumps({"step": 1, "tokens": int(tokens), "loss": loss}), file=log)
"""
SWEEP = f"""\
name: mine
trainer:
  command: [{json.dumps(sys.executable)}, -I, -S, train.py, "{{width}}", "{{harm}}", "{{seed}}",
            "{{tokens}}", "{{out}}"]
  metrics: log.jsonl
  tokens: tokens
fields: {{harm: float}}
n_params: 12 * width ** 2
ladder: [{{name: s, width: 8}}, {{name: m, width: 12}}]
arms: {{plain: {{harm: 0.0}}, harmed: {{harm: 0.2}}, slight: {{harm: 0.008}}}}
seeds: [0, 1, 2]
compare: {{reference: plain, until: decided, looks: [2, 3]}}
"""


def test_arms_end_at_the_look_that_decides_them_and_the_others_go_on(scalevec, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "mine.yaml").write_text(SWEEP)
    done = scalevec("run", "mine.yaml", "--trust", "-j", 2)
    assert done.returncode == 0, done.stderr
    assert "look 1 of 2, at 2 seeds: slight undecided; on to 3 seeds" in done.stderr
    rows = json.loads(scalevec("results", "mine", "--format", "json").stdout)
    seeds = {arm: {row["seed"] for row in rows if row["arm"] == arm} for arm in ("plain", "slight", "harmed")}
    assert seeds == {"plain": {0, 1, 2}, "slight": {0, 1, 2}, "harmed": {0, 1}}
    arms = {record["arm"]: record for record in json.loads(scalevec("compare", "mine", "--json").stdout)}
    ended = {arm: (record["verdict"], record["plan"]["look"]) for arm, record in arms.items()}
    assert ended == {"slight": ("worse", 3), "harmed": ("worse", 2)}
    assert "mine: 16 trials, 16 completed" in scalevec("run", "mine.yaml", "--trust").stdout
