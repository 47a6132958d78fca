# ruff: noqa: F811 (fixtures of another module)
"""A job that exists is never out of sight, whatever the state of its trial says: on a real SLURM."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from cluster.slurm_daemons import until
from cluster.test_slurm_training import (  # noqa: F401 (fixtures)
    PATIENCE_S,
    assert_whole,
    end_of,
    jobs,
    start,
    start_held,
    sweep,
    undisturbed,
    wait_for_attempt,
    workers_of,
)
from hold import release
from scalevec.results.run_directory import RunDirectory, trial_ids
from support import SCALEVEC

pytestmark = pytest.mark.slow


@pytest.fixture
def scalevec(start, tmp_path):
    """Calls the command beside the runs that ``start`` begins; in ``broken`` are commands that come first."""

    def call(*arguments: str, broken: Path | None = None) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([*([str(broken)] if broken else []), os.environ["PATH"]])
        variables = os.environ | {"SCALEVEC_CACHE_DIR": str(tmp_path / "cache"), "PATH": path}
        command = [str(SCALEVEC), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)

    return call


@pytest.fixture
def unreachable(tmp_path) -> Path:
    """Commands of SLURM that fail as they do where it does not answer."""
    folder = tmp_path / "unreachable"
    folder.mkdir()
    for name in ("squeue", "scancel", "sbatch"):
        script = folder / name
        script.write_text(
            f"#!/bin/sh\necho '{name}: error: Unable to contact slurm controller' >&2\nexit 1\n"
        )
        script.chmod(0o755)
    return folder


def trials(folder) -> list[RunDirectory]:
    return [RunDirectory.of(folder / "runs", name) for name in trial_ids(folder / "runs")]


def states(folder) -> list[str]:
    return [trial.state().state for trial in trials(folder)]


def submissions(folder) -> int:
    return len(list(folder.glob("runs/sweeps/small/slurm/2*")))


def ours(slurm) -> list[str]:
    return slurm.run("squeue", "-h", "-r", "-o", "%i").split()


def waiting(slurm) -> list[str]:
    return sorted(slurm.run("squeue", "-h", "-r", "-t", "PENDING", "-o", "%i").split())


def killed(process) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture
def held_in_the_queue(start_held, slurm, tmp_path):
    """Both trials were preempted, nobody looks after them, and their jobs wait, held so that they stay."""

    def begin(profile: str = "plain") -> list[str]:
        killed(start_held(profile))
        numbers = jobs(slurm)
        for job in numbers:
            slurm.run("scontrol", "requeuehold", job)
        until(lambda: not workers_of(tmp_path) and waiting(slurm) == sorted(numbers), "both wait", slurm.logs)
        return numbers

    return begin


@pytest.mark.nightly
def test_a_requeued_job_is_adopted_by_the_next_scheduler(
    start, held_in_the_queue, slurm, tmp_path, undisturbed
):
    numbers = held_in_the_queue()
    sent = submissions(tmp_path)
    following = start("plain")
    until(lambda: (tmp_path / "runs/sweeps/small/scheduler/claims").exists(), "it has begun")
    release(tmp_path)
    for job in numbers:
        slurm.run("scontrol", "release", job)
    messages = end_of(following)
    assert submissions(tmp_path) == sent, messages
    assert_whole(tmp_path, undisturbed)
    assert not ours(slurm)


@pytest.mark.nightly
def test_a_run_takes_back_a_cancel_that_is_under_way(
    start, start_held, slurm, tmp_path, scalevec, unreachable, undisturbed
):
    killed(start_held("plain"))
    assert scalevec("cancel", "small", "--profile", "plain", broken=unreachable).returncode == 3
    release(tmp_path)
    end_of(start("plain"))
    assert_whole(tmp_path, undisturbed)


def test_what_was_cancelled_is_not_brought_back_by_a_job_or_a_scheduler_that_was_there_before(
    start_held, slurm, tmp_path, scalevec, unreachable
):
    """The cancel cannot reach the jobs; one of them comes to its time limit, the other is requeued."""
    process = start_held("plain")
    assert scalevec("cancel", "small", "--profile", "plain", broken=unreachable).returncode == 3
    sent = submissions(tmp_path)
    first, second = jobs(slurm)
    slurm.run("scancel", "--signal=USR2", first)
    slurm.run("scontrol", "requeue", second)
    _, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, messages
    assert "2 trials cancelled" in messages
    assert states(tmp_path) == ["cancelled"] * 2
    assert submissions(tmp_path) == sent
    until(lambda: not ours(slurm), "the queue is empty", lambda: slurm.run("squeue"))
    assert json.loads(scalevec("status", "small", "--json").stdout)[0]["states"] == {"cancelled": 2}
