"""What trials ask for where the profile speaks: one answer for worker, plan and budget."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from scalevec import sweeps
from scalevec.orchestrator.attempts.jobs import job_of
from scalevec.orchestrator.cli.options import Placement
from scalevec.orchestrator.cli.output import json_text
from scalevec.orchestrator.commands.run.machines import site_of
from scalevec.orchestrator.commands.run.plan import plan
from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError
from scalevec.orchestrator.executors.profiles import Profile, RungProfile
from scalevec.orchestrator.sweep import planning
from scalevec.orchestrator.sweep.plan_text import plan_text
from scalevec.orchestrator.sweep.planning import gpu_hours, planned, require_budget, require_space
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from simulations import SWEEP, simulated, sweep_run


@pytest.fixture
def run_with(tmp_path: Path):
    """The sweep's run on a site with these settings, some of its sections changed."""

    return partial(sweep_run, tmp_path / "runs")


def by_rung(run: SweepRun, of: str) -> dict[str, Any]:
    return {row["rung"]: row[of] for row in planned(run)}


def test_a_worker_trains_on_the_gpus_that_the_profile_asks_for(run_with):
    run = run_with(Profile(rungs={"large": RungProfile(gpus=1)}))
    devices = {m.cell.rung: run.task(m).options.device for m in run.members()}
    assert devices == {"small": "cpu", "large": "cuda"}
    assert by_rung(run, "device") == devices
    assert {m.cell.rung: run.task(m).request.gpus for m in run.members()} == {"small": 0, "large": 1}


def test_a_task_is_trained_by_the_profiles_interpreter(run_with, tmp_path):
    run = run_with(Profile(launcher=["env", "-u", "X"], python="/opt/python"))
    job = job_of(run.task(next(iter(run.members()))), tmp_path, "token")
    assert job.command[:6] == ("env", "-u", "X", "/opt/python", "-P", "-m")


def test_a_profile_without_gpus_takes_those_of_the_sweep_away(run_with):
    run = run_with(Profile(gpus=0), resources={"default": {"gpus": 1, "cpus": 3, "memory_gb": 4}})
    assert by_rung(run, "device") == {"small": "cpu", "large": "cpu"}
    assert by_rung(run, "cpus") == {"small": 3, "large": 3}
    assert by_rung(run, "memory_gb") == {"small": 4, "large": 4}


def test_gpu_hours_count_the_profiles_gpus_as_they_count_the_sweeps(run_with):
    by_profile = gpu_hours(planned(run_with(Profile(gpus=1))))
    assert by_profile == gpu_hours(planned(run_with(Profile(), resources={"default": {"gpus": 1}}))) > 0


@pytest.mark.parametrize(("of_sweep", "of_profile"), [(None, 1e-7), (1e-7, 1e3), (1e3, 1e-7)])
def test_the_smaller_budget_refuses_what_the_profile_asks_for(run_with, of_sweep, of_profile):
    limit = {} if of_sweep is None else {"max_gpu_hours": of_sweep}
    run = run_with(Profile(gpus=1, max_gpu_hours=of_profile), **limit)
    with pytest.raises(InvalidInputError, match="max_gpu_hours is 1e-07; what is left needs about"):
        refused_by(require_budget, run)


def test_a_budget_of_just_what_is_left_is_enough(run_with):
    hours = gpu_hours(planned(run_with(Profile(gpus=1))))
    refused_by(require_budget, run_with(Profile(gpus=1, max_gpu_hours=hours)))
    with pytest.raises(InvalidInputError, match="max_gpu_hours"):
        refused_by(require_budget, run_with(Profile(gpus=1, max_gpu_hours=0.999 * hours)))


def refused_by(require, run):
    """What is asked of a run before anything is sent, with its plan."""
    require(run, planned(run))


TUNED_SMALL = {"learning_rate": [0.005, 0.01, 0.02], "rungs": ["small"]}


@pytest.fixture
def free(monkeypatch):
    """Makes the disk of RUNS_DIR have so many bytes free."""

    def have(n_bytes: int) -> None:
        monkeypatch.setattr(planning.shutil, "disk_usage", lambda _: SimpleNamespace(free=n_bytes))

    return have


@pytest.mark.parametrize("sections", [{}, {"tune": TUNED_SMALL}])
def test_space_for_all_that_the_plan_counts_is_looked_for(run_with, free, sections):
    run = run_with(Profile(), **sections)
    needed = sum(row["disk_bytes"] for row in planned(run))
    free(needed)
    refused_by(require_space, run)
    free(needed - 1)
    message = r"GB are free, what is left takes about .* GB\. Nothing"
    with pytest.raises(MissingRequirementError, match=message):
        refused_by(require_space, run)


def test_rungs_that_where_leaves_out_need_no_space(run_with, free):
    needed = sum(row["disk_bytes"] for row in planned(run_with(Profile())) if row["rung"] == "small")
    run = run_with(Profile(), where="rung == 'small'")
    free(needed)
    refused_by(require_space, run)
    free(needed - 1)
    with pytest.raises(MissingRequirementError):
        refused_by(require_space, run)


def test_what_is_done_needs_no_space(run_with, free, tmp_path):
    free(0)
    with pytest.raises(MissingRequirementError):
        refused_by(require_space, run_with(Profile()))
    simulated(tmp_path / "runs")
    refused_by(require_space, run_with(Profile()))


def test_the_plan_says_what_the_profile_asks_for(run_with):
    large = RungProfile(gpus=1, memory_gb=64, partition="gpu-long")
    run = run_with(Profile(cpus=1, max_gpu_hours=1e-7, rungs={"large": large}), arms={"baseline": {}})
    shown = plan_text(run, planned(run), 1).splitlines()
    assert "each trial of small asks for 1 CPU, 0 GPUs" in shown
    assert "each trial of large asks for 1 CPU, 1 GPU, 64 GB in partition gpu-long" in shown
    assert "more than max_gpu_hours, 1e-07; nothing will be submitted" in "\n".join(shown)


def test_slots_follow_what_the_profile_asks_for(tmp_path, monkeypatch):
    monkeypatch.setattr("scalevec.orchestrator.commands.run.machines.usable_cpus", lambda: 8)
    (tmp_path / "profiles.yaml").write_text("site: {cpus: 3}")
    sweep = sweeps.loads(yaml.safe_dump(SWEEP, sort_keys=False), folder=tmp_path)
    _, site = site_of(sweep, tmp_path / "runs", Placement("local", "site"))
    assert (site.slots, site.cpus) == (2, 3)


def rows_of_plan(folder: Path, placement: Placement, runs: str = "runs") -> list[dict[str, Any]]:
    path = folder / "my.yaml"
    path.write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    result = plan(str(path), folder / runs, **vars(placement), without_corpus=True)
    return json.loads(json_text(result.record))


def test_the_plan_takes_a_profile_from_beside_the_sweep(tmp_path):
    (tmp_path / "profiles.yaml").write_text("site: {rungs: {large: {gpus: 1}}}")
    rows = rows_of_plan(tmp_path, Placement(profile="site"))
    expected = {"small": (0, "cpu"), "large": (1, "cuda")}
    assert {row["rung"]: (row["gpus"], row["device"]) for row in rows} == expected


@pytest.mark.parametrize(
    ("placement", "runs"), [(Placement("simulate"), "runs"), (Placement(), "runs/simulated")]
)
def test_the_plan_of_a_simulation_knows_what_is_done(tmp_path, placement, runs):
    done = simulated(tmp_path / "runs" / "simulated").results()
    rows = rows_of_plan(tmp_path, placement, runs)
    assert {row["trial_id"]: row["state"] for row in rows} == dict.fromkeys(done, "completed")


def test_the_plan_of_real_trials_is_not_made_of_simulations(tmp_path):
    simulated(tmp_path / "runs", seeds=[0])
    with pytest.raises(InvalidInputError, match="holds simulated results"):
        rows_of_plan(tmp_path, Placement("local"))
