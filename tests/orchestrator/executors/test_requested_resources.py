"""What trials ask for where the profile speaks: one answer for worker, plan, budget and preflight."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from scalevec import sweeps
from scalevec.orchestrator.attempts.jobs import job_of
from scalevec.orchestrator.cli.options import Placement
from scalevec.orchestrator.cli.output import json_text
from scalevec.orchestrator.commands.run.machines import checked_executor, require_budget, site_of
from scalevec.orchestrator.commands.run.plan import plan
from scalevec.orchestrator.errors import InvalidInputError, TryLaterError
from scalevec.orchestrator.executors.base import Ended, Site
from scalevec.orchestrator.executors.profiles import Profile, RungProfile
from scalevec.orchestrator.executors.simulate.planted_law import nominal_corpus
from scalevec.orchestrator.sweep.plan_text import plan_text
from scalevec.orchestrator.sweep.planning import gpu_hours, planned
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from simulations import SWEEP, Silent, simulated


@pytest.fixture
def run_with(tmp_path: Path):
    """The sweep's run on a site with these settings, some of its sections changed."""

    def run(profile: Profile, where: str | None = None, **sections: Any) -> SweepRun:
        sweep = sweeps.loads(yaml.safe_dump(SWEEP | sections, sort_keys=False))
        return SweepRun(
            sweep, tmp_path / "runs", Silent(1), nominal_corpus(sweep), where=where, profile=profile
        )

    return run


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
        require_budget(run)


def test_a_budget_of_just_what_is_left_is_enough(run_with):
    hours = gpu_hours(planned(run_with(Profile(gpus=1))))
    require_budget(run_with(Profile(gpus=1, max_gpu_hours=hours)))
    with pytest.raises(InvalidInputError, match="max_gpu_hours"):
        require_budget(run_with(Profile(gpus=1, max_gpu_hours=0.999 * hours)))


class Recording:
    """An executor that keeps the jobs it is given; they end at once."""

    name = "slurm"

    def __init__(self) -> None:
        self.jobs = []
        self.cancelled = []

    def submit(self, jobs):
        self.jobs += jobs
        return [str(len(self.jobs) - len(jobs) + position) for position, _ in enumerate(jobs)]

    def cancel(self, numbers):
        self.cancelled += numbers

    def wait(self, timeout_s):
        return [Ended(str(len(self.jobs)), 1)]


def test_preflight_looks_for_the_gpus_that_the_profile_asks_for(run_with):
    run, executor = run_with(Profile(gpus=1)), Recording()
    with checked_executor(executor, Site(run.runs_dir, "simulated", 1, run.profile), run):
        command = executor.jobs[0].command
    assert json.loads(command[command.index("--expect") + 1])["gpus"] is True


def test_trials_wait_in_the_queue_behind_the_preflight_of_their_machines(run_with):
    run, executor = run_with(GPU_LONG), Recording()
    with checked_executor(executor, Site(run.runs_dir, "simulated", 1, run.profile), run) as checked:
        assert [(job.role, job.rung) for job in executor.jobs] == [
            ("preflight", "small"),
            ("preflight", "large"),
        ]
        jobs = [job_of(run.task(member), run.runs_dir, "token") for member in run.members()]
        checked.submit(jobs)
    sent = executor.jobs[2:]
    assert {(job.rung, job.after) for job in sent} == {("small", ("0",)), ("large", ("1",))}


def test_preflight_jobs_leave_the_queue_where_a_run_is_stopped_before_it_sent_a_trial(run_with):
    run, executor = run_with(GPU_LONG), Recording()
    site = Site(run.runs_dir, "simulated", 1, run.profile)
    with pytest.raises(KeyboardInterrupt), checked_executor(executor, site, run):
        raise KeyboardInterrupt
    assert executor.cancelled == ["0", "1"]


def test_a_full_queue_is_waited_out_before_the_preflight(run_with, monkeypatch):
    class Full(Recording):
        refusals = 2

        def submit(self, jobs):
            if self.refusals:
                self.refusals -= 1
                raise TryLaterError("the queue takes no more jobs")
            return super().submit(jobs)

    waited: list[float] = []
    monkeypatch.setattr("scalevec.orchestrator.commands.run.machines.time.sleep", waited.append)
    run, executor = run_with(Profile()), Full()
    with checked_executor(executor, Site(run.runs_dir, "simulated", 1, run.profile), run):
        assert [job.role for job in executor.jobs] == ["preflight"]
    assert len(waited) == 2


@pytest.fixture
def looked_at(run_with, monkeypatch):
    """The rungs whose machines are looked at on a site with these settings, and the space looked for."""

    def look(profile: Profile, **sections: Any) -> tuple[list[str], set[int]]:
        run = run_with(profile, **sections)
        executor = Recording()
        with checked_executor(executor, Site(run.runs_dir, "simulated", 1, profile), run):
            commands = [job.command for job in executor.jobs]
        expected = [json.loads(command[command.index("--expect") + 1]) for command in commands]
        return [job.rung for job in executor.jobs], {asked["free_bytes"] for asked in expected}

    return look


GPU_LONG = Profile(partition="cpu", rungs={"large": RungProfile(partition="gpu-long")})
TUNED_SMALL = {"learning_rate": [0.005, 0.01, 0.02], "rungs": ["small"]}


def test_rungs_of_one_kind_of_machine_are_looked_at_once(looked_at):
    assert looked_at(Profile())[0] == ["small"]
    resources = {"small": {"time": 10, "checkpoint_s": 5}, "large": {"time": 90}}
    assert looked_at(Profile(), resources=resources)[0] == ["small"]


def test_rungs_that_the_profile_sends_elsewhere_are_looked_at_too(looked_at):
    assert looked_at(GPU_LONG)[0] == ["small", "large"]


def test_rungs_whose_rate_is_still_open_are_looked_at_before_the_tuning(looked_at):
    assert looked_at(GPU_LONG, tune=TUNED_SMALL)[0] == ["small", "large"]


def test_the_space_that_the_plan_counts_is_looked_for(looked_at, run_with):
    _, space = looked_at(GPU_LONG, tune=TUNED_SMALL)
    rows = planned(run_with(GPU_LONG, tune=TUNED_SMALL))
    assert space == {sum(row["disk_bytes"] for row in rows)}


def test_rungs_that_where_leaves_out_are_not_looked_at(looked_at):
    assert looked_at(GPU_LONG, tune=TUNED_SMALL, where="rung == 'small'")[0] == ["small"]


def test_what_is_done_is_looked_at_no_more(looked_at, tmp_path):
    simulated(tmp_path / "runs")
    assert looked_at(GPU_LONG) == ([], set())


def test_the_plan_says_what_the_profile_asks_for(run_with):
    large = RungProfile(gpus=1, memory_gb=64, partition="gpu-long")
    run = run_with(Profile(cpus=1, max_gpu_hours=1e-7, rungs={"large": large}), arms={"baseline": {}})
    shown = plan_text(run, planned(run), 1).splitlines()
    assert "each trial of small asks for 1 CPU, 0 GPUs" in shown
    assert "each trial of large asks for 1 CPU, 1 GPU, 64 GB in partition gpu-long" in shown
    assert "more than max_gpu_hours, 1e-07; nothing will be submitted" in "\n".join(shown)


def test_slots_follow_what_the_profile_asks_for(tmp_path, monkeypatch):
    monkeypatch.setattr("scalevec.model.data.system.usable_cpus", lambda: 8)
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
    assert {row["rung"]: (row["gpus"], row["device"]) for row in rows} == {
        "small": (0, "cpu"),
        "large": (1, "cuda"),
    }


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
