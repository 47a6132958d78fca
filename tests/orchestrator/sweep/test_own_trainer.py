"""Somebody's script, which knows nothing of scalevec, as a sweep: planned, simulated, run, compared."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from scalevec import sweeps
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.profiles import Profile, RungProfile
from scalevec.orchestrator.executors.simulate.planted_law import nominal_corpus
from scalevec.orchestrator.sweep.plan_text import foreign_lines
from scalevec.orchestrator.sweep.planning import planned, require_times
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from simulations import Silent
from support import assert_refused, succeeded

SCRIPT = """
import argparse, json, math, os, random
parser = argparse.ArgumentParser()
for name in ("width", "tokens", "seed"):
    parser.add_argument(f"--{name}", type=int)
for name in ("lr", "dropout"):
    parser.add_argument(f"--{name}", type=float)
parser.add_argument("--out")
given = parser.parse_args()
os.makedirs(given.out, exist_ok=True)
noise = random.Random(given.seed).gauss(0, 0.002) + 0.01 * given.dropout
loss = 2 + 9 / given.width + 0.02 * math.log2(given.lr / 0.01) ** 2 + noise
with open(os.path.join(given.out, "log.jsonl"), "w") as log:
    for step in (1, 2, 3):
        row = {"step": step, "tokens": given.tokens * step // 3, "loss": loss + 3 - step}
        print(json.dumps({**row, "val": row["loss"] + 0.1}), file=log)
"""
SWEEP = f"""\
name: mine
trainer:
  command: [{json.dumps(sys.executable)}, train.py, "--width={{width}}", "--lr={{learning_rate}}",
            "--dropout={{dropout}}", "--tokens={{tokens}}", "--seed={{seed}}", "--out={{out}}"]
  metrics: log.jsonl
  loss_validation: val
  tokens: tokens
fields: {{dropout: float}}
n_params: 12 * width ** 2
ladder: [{{name: s, width: 8}}, {{name: m, width: 12}}, {{name: l, width: 16}}]
arms: {{plain: {{dropout: 0.0}}, dropped: {{dropout: 0.1}}}}
tune: {{learning_rate: [0.0025, 0.01, 0.04], rungs: [s]}}
compare: {{reference: plain}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "mine.yaml").write_text(SWEEP)
    return tmp_path


def test_a_plan_says_what_a_trial_rests_on_and_runs_nothing(folder, scalevec):
    done = succeeded(scalevec("plan", "mine.yaml"))
    assert "a trial rests on the content of train.py" in done.stdout
    assert "nobody knows yet how long trials of this trainer take" in done.stdout
    assert "no checkpoint is named" in done.stdout
    assert not (folder / "runs").exists()


def test_a_plan_says_that_a_number_of_seeds_is_one_seed(folder, scalevec):
    (folder / "mine.yaml").write_text(SWEEP + "seeds: 3\n")
    assert "seeds: 3 is the one seed 3; 3 seeds are [0, 1, 2]\n" in scalevec("plan", "mine.yaml").stdout


def test_a_plan_names_what_is_imported_and_what_cannot_be_seen(folder, scalevec):
    (folder / "train.py").write_text(f"import model\nexec(open('configurator.py').read())\n{SCRIPT}")
    (folder / "model.py").touch()
    plan = scalevec("plan", "mine.yaml").stdout
    assert "a trial rests on the content of model.py, train.py" in plan
    unseen = "train.py:2 exec(open('configurator.py').read())"
    assert f"not covered by identity: {unseen}; name what it brings in under files" in plan
    (folder / "configurator.py").touch()
    (folder / "mine.yaml").write_text(SWEEP.replace("  metrics:", "  files: configurator.py\n  metrics:"))
    assert "not covered" not in scalevec("plan", "mine.yaml").stdout


def test_an_edit_of_what_is_imported_asks_again_and_makes_new_trials(folder, scalevec):
    script = SCRIPT.replace("+ noise", "+ noise - model.GAIN").replace("math,", "math, model,")
    (folder / "train.py").write_text(script)
    (folder / "model.py").write_text("GAIN = 0.0\n")
    text = SWEEP.replace("tune:", "# tune:").replace(", {name: m, width: 12}, {name: l, width: 16}", "")
    (folder / "mine.yaml").write_text(f"{text}trial: {{learning_rate: 0.01}}\nseeds: [0]\n")
    assert "2 trials, 2 completed" in scalevec("run", "mine.yaml", "--trust").stdout
    (folder / "model.py").write_text("GAIN = 0.5\n")
    assert "model.py has changed since 2 trials of this sweep" in scalevec("plan", "mine.yaml").stderr
    assert_refused(scalevec("run", "mine.yaml"), 2, "model.py (11 bytes)")
    assert scalevec("run", "mine.yaml", "--trust").returncode == 0
    assert len(list(folder.glob("runs/trials/*/*"))) == 4


def test_a_simulation_needs_no_trust_and_gives_a_verdict(folder, scalevec):
    done = succeeded(scalevec("run", "mine.yaml", "--executor", "simulate"))
    assert "18 trials, 18 completed" in done.stdout
    verdict = json.loads(scalevec("compare", "mine", "--runs", "runs/simulated", "--json").stdout)
    assert verdict[0]["pairs"] == 6


@pytest.mark.parametrize("loss_validation", ["val", None])
def test_a_plan_says_where_rates_are_chosen_on_the_text_that_is_compared(folder, loss_validation):
    if loss_validation is None:
        (folder / "mine.yaml").write_text(SWEEP.replace("  loss_validation: val\n", ""))
    lines = "\n".join(foreign_lines(run_of(folder, Profile())))
    assert ("rates are chosen on the text that is compared" in lines) is (loss_validation is None)


@pytest.mark.parametrize("profile", [Profile(), Profile(rungs={"s": RungProfile(time=30)})])
def test_a_queue_has_to_be_told_how_long_a_trial_takes(folder, profile):
    with pytest.raises(InvalidInputError, match=r"time: 30 in the profile. Nothing was sent"):
        require_times(run := run_of(folder, profile), planned(run))
    require_times(run := run_of(folder, Profile(time=30)), planned(run))


def run_of(folder: Path, profile: Profile) -> SweepRun:
    sweep = sweeps.load(folder / "mine.yaml")
    return SweepRun(sweep, folder / "runs", Silent(), nominal_corpus(sweep), profile=profile)


@pytest.mark.slow
def test_a_script_becomes_a_tuned_comparison(folder, scalevec):
    done = succeeded(scalevec("run", "mine.yaml", "--trust", "-j", "2"))
    assert "18 trials, 18 completed" in done.stdout
    rows = list(csv.DictReader(io.StringIO(scalevec("results", "mine").stdout)))
    compared = [row for row in rows if row["stage"] == "comparison"]
    assert all(float(row["learning_rate"]) == pytest.approx(0.01, rel=0.1) for row in compared)
    assert {(row["arm"], row["field_dropout"]) for row in compared} == {("plain", "0.0"), ("dropped", "0.1")}
    assert {int(row["n_params"]) for row in compared} == {768, 1728, 3072}
    seeds = {(row["rung"], row["seed"]): row["stream"] for row in compared}
    assert len(set(seeds.values())) == 6
    [verdict] = json.loads(scalevec("compare", "mine", "--json").stdout)
    assert verdict["loss_difference"]["mean"] == pytest.approx(0.001, abs=1e-6)

    refused = scalevec("export", compared[0]["trial_id"], "-o", "model")
    assert_refused(refused, 2, "a trainer of its sweep trained it")
    assert "whose text is its own affair" in scalevec("corpus", "prepare", "mine.yaml").stderr
    assert "18 trials, 18 completed" in scalevec("run", "mine.yaml").stdout
    (folder / "train.py").write_text(f"{SCRIPT}# changed\n")
    plan = scalevec("plan", "mine.yaml")
    assert "train.py has changed since 18 trials of this sweep" in plan.stderr
    assert "not trusted" in scalevec("run", "mine.yaml").stderr


@pytest.mark.slow
def test_the_script_of_init_trains(folder, scalevec):
    (folder / "train.py").unlink(missing_ok=True)
    assert scalevec("init", "--from", "own-trainer", "-o", "plain.yaml").returncode == 0
    assert "import scalevec" not in (folder / "train.py").read_text()
    fields = yaml.safe_load((folder / "plain.yaml").read_text())
    del fields["tune"]
    fields["trial"]["learning_rate"] = 0.01
    small = {"ladder": fields["ladder"][:1], "tokens_per_parameter": 2, "seeds": [0]}
    (folder / "plain.yaml").write_text(yaml.safe_dump(fields | small))
    succeeded(scalevec("run", "plain.yaml", "--trust"))
    rows = list(csv.DictReader(io.StringIO(scalevec("results", "plain").stdout)))
    assert len(rows) == 2
    assert all(0 < float(row["loss"]) < float(row["loss_initial"]) for row in rows)
