"""``cancel`` on a real SLURM, whatever state each job is in; and of one of two sweeps that share trials."""

import os
import subprocess
from pathlib import Path

import pytest

from cluster.slurm_daemons import SlurmCluster, until
from cluster.test_slurm_jobs import killed, ours, scalevec, states, trials  # noqa: F401 (fixture)
from cluster.test_slurm_training import end_of, start, sweep, workers_of  # noqa: F401 (fixtures)
from hold import can_hold, hold
from scalevec.model.train import newest_step
from scalevec.results.run_directory import RunDirectory
from support import SCALEVEC, two_arms

pytestmark = pytest.mark.slow

PROFILES = "plain: {poll_s: 0.2, memory_gb: 1, time: 60, max_parallel: 5, max_submitted: 20}\n"
SHORT, LONG = 0.05, 3
"""Tokens per parameter: of a trial that is over before it would be held, and of one that is held."""


@pytest.fixture
def forgetful(slurm_without_accounting, monkeypatch, tmp_path) -> SlurmCluster:
    """A SLURM without accounting, which forgets jobs two seconds after their end."""
    monkeypatch.setenv("SLURM_CONF", slurm_without_accounting.environment["SLURM_CONF"])
    (tmp_path / "profiles.yaml").write_text(PROFILES)
    return slurm_without_accounting


@pytest.fixture
def called(forgetful, tmp_path):
    """Starts the command; nothing of it is left in the queue afterwards."""
    processes = []

    def call(*arguments: str) -> "subprocess.Popen[str]":
        variables = can_hold(os.environ) | {"SCALEVEC_CACHE_DIR": str(tmp_path / "cache")}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [str(SCALEVEC), *arguments]
        processes.append(subprocess.Popen(command, cwd=tmp_path, env=variables, **pipes))
        return processes[-1]

    yield call
    for process in processes:
        process.kill()
        process.wait()
    # What a failed test has left would hold up the jobs of all others.
    for name in ("completing", "configuring"):
        (forgetful.root / name).unlink(missing_ok=True)
    forgetful.run("scancel", "--user=root")


def all_sent(folder: Path) -> bool:
    """And have a number."""
    newest = [trial.job() for trial in trials(folder)]
    return len(newest) == 8 and all(job and not job["job"].startswith("?") for job in newest)


def preparing(slurm: SlurmCluster) -> int:
    return slurm.run("squeue", "-h", "-r", "-o", "%T").split().count("CONFIGURING")


def number_of(trial: RunDirectory) -> str:
    return str(trial.job()["job"]).partition("/")[0]


def shown(slurm: SlurmCluster, trial: RunDirectory) -> str:
    return slurm.run("squeue", "-h", "-r", "-j", number_of(trial), "-o", "%T %r", check=False).strip()


def task_of(trial: RunDirectory) -> int:
    return int(number_of(trial).partition("_")[2])


@pytest.fixture
def in_every_state(forgetful, called, tmp_path, text_files) -> dict[str, RunDirectory]:
    """Of one array four trials train, the others end where they begin; nobody looks after any of them."""
    slurm = forgetful
    budgets = two_arms("small", text_files, LONG, seeds=(0, 1)).replace(f"[{LONG}]", f"[{LONG}, {SHORT}]")
    (tmp_path / "small.yaml").write_text(budgets)
    hold(tmp_path)
    process = called("run", "small.yaml", "--executor", "slurm", "--profile", "plain")
    until(lambda: all_sent(tmp_path), "all are sent", slurm.logs)
    killed(process)
    by_task = sorted(trials(tmp_path), key=task_of)
    (running, requeued, completing, forgotten), short = by_task[:4], by_task[4:]
    completed, _, held, pending = short
    slurm.run("scontrol", "hold", number_of(held), number_of(pending))
    until(lambda: all(newest_step(trial.checkpoints_path) for trial in by_task[:4]), "four train", slurm.logs)
    until(lambda: completed.result() is not None, "one has completed", slurm.logs)
    array = number_of(running).partition("_")[0]
    slurm.run("scontrol", "update", f"jobid={array}", "ArrayTaskThrottle=1")
    slurm.run("scontrol", "release", number_of(pending))
    slurm.run("scancel", number_of(forgotten))
    # The job of a trial that has its result may still be about to end.
    for gone in (forgotten, completed):
        until(lambda gone=gone: not shown(slurm, gone), "it is forgotten", slurm.logs)
    (slurm.root / "completing").touch()
    slurm.run("scancel", number_of(completing))
    slurm.run("scontrol", "requeue", number_of(requeued))
    names = ("running", "requeued", "completing", "forgotten", "completed", "held", "pending")
    return dict(zip(names, (running, requeued, completing, forgotten, completed, held, pending), strict=True))


def test_cancel_ends_jobs_in_every_state_and_none_comes_back(forgetful, in_every_state, called, tmp_path):
    seen = {state: shown(forgetful, trial) for state, trial in in_every_state.items()}
    # On its way back into the queue, for whatever reason.
    assert seen.pop("requeued").startswith("COMPLETING ")
    assert seen == {
        "running": "RUNNING None",
        "completing": "COMPLETING None",
        "forgotten": "",
        "completed": "",
        "held": "PENDING JobHeldAdmin",
        "pending": "PENDING JobArrayTaskLimit",
    }
    cancel = called("cancel", "small", "--profile", "plain")
    until(lambda: "cancelling" in states(tmp_path), "it has forbidden more", lambda: str(states(tmp_path)))
    (forgetful.root / "completing").unlink()
    _, errors = cancel.communicate(timeout=120)
    assert cancel.returncode == 0, errors
    ends = {state: trial.state().state for state, trial in in_every_state.items()}
    assert ends == dict.fromkeys(in_every_state, "cancelled") | {"completed": "completed"}
    assert not workers_of(tmp_path)
    until(lambda: not ours(forgetful), "the queue is empty", lambda: forgetful.run("squeue"))


def test_cancel_ends_a_job_whose_machine_is_being_prepared(forgetful, called, tmp_path, text_files):
    sent = ("--executor", "slurm", "--profile", "plain")
    (tmp_path / "small.yaml").write_text(two_arms("small", text_files, SHORT))
    _, errors = (process := called("run", "small.yaml", *sent)).communicate(timeout=120)
    assert process.returncode == 0, errors
    (forgetful.root / "configuring").touch()
    (tmp_path / "other.yaml").write_text(two_arms("other", text_files, SHORT, seeds=(1,)))
    called("run", "other.yaml", *sent)
    until(lambda: preparing(forgetful) == 2, "both are configuring", forgetful.logs)
    cancel = called("cancel", "other", "--profile", "plain")
    until(lambda: "cancelling" in states(tmp_path), "it has forbidden more", forgetful.logs)
    assert preparing(forgetful) == 2
    (forgetful.root / "configuring").unlink()
    _, errors = cancel.communicate(timeout=120)
    assert cancel.returncode == 0, errors
    assert sorted(states(tmp_path)) == ["cancelled"] * 2 + ["completed"] * 2
    until(lambda: not ours(forgetful), "the queue is empty", lambda: forgetful.run("squeue"))
