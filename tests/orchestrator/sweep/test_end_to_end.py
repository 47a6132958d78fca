"""One small sweep end to end, trained once, and what a second command finds."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from support import SCALEVEC, assert_refused, succeeded

pytestmark = pytest.mark.slow

N_TUNING, N_COMPARISON = 6, 8


@pytest.fixture
def sweep(finished_sweep, tmp_path, scalevec):
    """A copy of the finished sweep in an empty folder, and the command to use on it."""
    shutil.copytree(finished_sweep / "runs", tmp_path / "runs")
    shutil.copy(finished_sweep / "small.yaml", tmp_path / "small.yaml")
    return tmp_path


def results_in(folder: Path) -> dict[str, dict]:
    paths = folder.glob("runs/trials/*/*/result.json")
    return {path.parent.name: json.loads(path.read_text()) for path in paths}


def trained(before: dict, after: dict) -> set[str]:
    """The trials whose result is new or another file than before."""
    return {name for name, result in after.items() if before.get(name) != result}


def test_a_second_run_trains_nothing(sweep, scalevec):
    before = results_in(sweep)
    times = {path: path.stat().st_mtime_ns for path in sweep.glob("runs/trials/*/*/*")}
    succeeded(scalevec("run", "small.yaml"))
    assert results_in(sweep) == before
    assert {path: path.stat().st_mtime_ns for path in sweep.glob("runs/trials/*/*/*")} == times


def test_one_more_seed_trains_the_new_trials_only_and_moves_no_rate(sweep, scalevec):
    before, tuning = results_in(sweep), (sweep / "runs/sweeps/small/tuning.json").read_bytes()
    path = sweep / "small.yaml"
    path.write_text(path.read_text().replace("seeds: [0, 1]", "seeds: [0, 1, 2]"))
    succeeded(scalevec("run", "small.yaml"))
    after = results_in(sweep)
    assert len(after) == len(before) + 4
    assert trained(before, after) == after.keys() - before.keys()
    assert (sweep / "runs/sweeps/small/tuning.json").read_bytes() == tuning


def test_a_truncated_result_is_set_aside_and_the_trial_runs_again(sweep, scalevec):
    before = results_in(sweep)
    name = next(iter(before))
    path = sweep / "runs/trials" / name[:2] / name / "result.json"
    path.write_bytes(path.read_bytes()[:40])
    assert "set aside" in succeeded(scalevec("run", "small.yaml")).stderr
    assert path.with_name("result.json.corrupt-1").exists()
    assert results_in(sweep)[name]["loss"] == before[name]["loss"]


def test_the_tidy_table_has_a_row_for_each_trial_and_is_read_by_another_command(sweep, scalevec):
    done = scalevec("results", "small", "--format", "csv")
    (sweep / "table.csv").write_text(done.stdout)
    table = pd.read_csv(sweep / "table.csv")
    assert table["stage"].value_counts()["comparison"] == N_COMPARISON
    assert set(table["status"]) == {"completed"}
    compared = table[table["stage"] == "comparison"]
    assert set(compared["lr_status"]) <= {"tuned", "carried", "censored"}
    assert set(compared["seed"]).isdisjoint(set(table[table["stage"] == "tuning"]["seed"]))
    from_sweep, from_table = (scalevec("fit", name, "--json", "--x", "N") for name in ("small", "table.csv"))
    assert from_sweep.returncode == 0, from_sweep.stderr
    assert json.loads(from_sweep.stdout) == json.loads(from_table.stdout)


@pytest.mark.parametrize("name", ["ablation", "overhead"])
def test_a_table_of_a_sweep_knows_its_strategies_and_its_costs(sweep, scalevec, name):
    succeeded(scalevec("table", "small", name, "--format", "csv", "-o", "table.csv", "--bootstrap", 20))
    actual = pd.read_csv(sweep / "table.csv")
    assert set(actual["arm"]) >= {"none"}
    if name == "ablation":
        assert set(actual["vector_branches"]) == {"none"}
        assert not actual["vectors"].any()
    else:
        # Parameters, gradients and the two moments of AdamW, and what the backward pass needs.
        assert (actual["allocated_memory_median"] > 16 * actual["n_params_total"]).all()
        assert (actual["step_time_median"] > 0).all()


def test_the_figures_of_a_sweep_hold_what_its_runs_recorded(sweep, scalevec):
    done = succeeded(scalevec("figures", "small", "-o", "figures", "--format", "svg,png", "--bootstrap", 20))
    names = {path.stem for path in (sweep / "figures").glob("*.svg")}
    assert names >= {"loss", "differences", "tuning", "curves", "statistics"}
    assert names == {path.stem for path in (sweep / "figures").glob("*.png")}
    assert "no figure multipliers: " in done.stderr


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="the fault is a missing GPU")
def test_a_run_without_the_gpu_of_trials_ends_with_3_and_then_goes_on(gpus_of_torch, sweep, scalevec):
    gpus_of_torch(1)  # which this machine has not: the worker cannot train on it
    name = next(iter(results_in(sweep)))
    shutil.rmtree(sweep / "runs/trials" / name[:2] / name)
    path = sweep / "small.yaml"
    healthy = path.read_text()
    path.write_text(healthy + "resources: {default: {gpus: 1}}\n")
    assert_refused(scalevec("run", "small.yaml"), 3, "sees no GPU there")
    path.write_text(healthy)
    assert scalevec("run", "small.yaml").returncode == 0


SCRIPT = """
import json, pathlib, sys

out, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
if not pathlib.Path("data.txt").exists():
    raise SystemExit("no data here")
(out / "log.jsonl").write_text(json.dumps({"step": steps, "test": 2.0}))
"""
FAILING = """
name: failing
trainer: {command: ["{python}", train.py, "{out}", "{steps}", "{seed}"], metrics: log.jsonl, loss: test}
n_params: 12 * width ** 2
trial: {batch_tokens: 64}
ladder: [{name: s, width: 16}]
arms: {plain: {}}
seeds: [0]
compare: {reference: plain}
"""


def test_a_trial_that_fails_ends_the_run_with_1_and_retry_gives_it_another_chance(tmp_path, scalevec):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "failing.yaml").write_text(FAILING)
    failed = scalevec("run", "failing.yaml", "--trust")
    assert_refused(failed, 1, "the same error twice", "no data here")
    assert re.search(r"runs/trials/\w\w/\w+/log\.txt", failed.stderr)
    (tmp_path / "data.txt").write_text("data")
    assert scalevec("run", "failing.yaml").returncode == 1
    assert "1 failed trial will run again" in scalevec("retry", "failing").stdout
    assert scalevec("run", "failing.yaml").returncode == 0


def test_a_full_disk_ends_the_run_with_3_and_nothing_is_lost(sweep, scalevec, small_device):
    shutil.copy(sweep / "small.yaml", small_device / "small.yaml")
    done = scalevec("run", "small.yaml", "--runs", small_device / "runs")
    assert_refused(done, 3, "No space left on device")
    assert not list(small_device.glob("runs/trials/*/*/result.json"))


def test_output_into_a_closed_pipe_ends_without_a_word(sweep):
    environment = os.environ | {"SCALEVEC_CACHE_DIR": str(sweep / "cache")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [SCALEVEC, "results", "small"]
    process = subprocess.Popen(command, cwd=sweep, env=environment, text=True, **pipes)
    process.stdout.close()
    assert process.stderr.read() == ""


def test_every_trial_is_completed_and_its_files_are_those_that_the_plan_counts(finished_sweep, scalevec):
    results = results_in(finished_sweep)
    assert len(results) >= N_TUNING + N_COMPARISON
    assert {result["status"] for result in results.values()} == {"completed"}
    assert all(0 < result["loss"] < result["loss_initial"] for result in results.values())
    name = next(iter(results))
    directory = finished_sweep / "runs" / "trials" / name[:2] / name
    plan = scalevec("plan", finished_sweep / "small.yaml", "--runs", finished_sweep / "runs", "--json")
    (row,) = [row for row in json.loads(plan.stdout) if row["trial_id"] == name]
    assert row["state"] == "completed"
    actual = [directory, *directory.rglob("*")]
    without_checkpoints = 0 if directory.joinpath("checkpoints").exists() else 1
    assert row["disk_files"] == len(actual) + without_checkpoints
    size = sum(path.stat().st_size for path in actual if path.is_file())
    assert size / 2 < row["disk_bytes"] < size * 2
    events = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    assert [event["state"] for event in events] == ["queued", "running", "completed"]
    steps = [json.loads(line)["step"] for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, len(steps) + 1))
    assert not any((directory / "checkpoints").glob("*"))
