"""Real trainings on SLURM: the losses of an undisturbed local run, bit for bit, whatever happens to jobs."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from cluster.slurm_daemons import until
from cluster.trunk_sweep import outcomes, states_left
from hold import hold, release
from scalevec.model.train import newest_step
from scalevec.results.run_directory import RunDirectory, trial_ids
from support import SCALEVEC, finished, two_arms

pytestmark = pytest.mark.slow

PATIENCE_S = 900
PROFILES = """\
plain: {poll_s: 0.2, memory_gb: 1.5, time: 60}
shared: {poll_s: 0.2, memory_gb: 1.5, time: 60, trials_per_job: 2}
side: {poll_s: 0.2, memory_gb: 1.5, time: 60, trials_per_gpu: 2}
spare: {poll_s: 0.2, memory_gb: 1.5, time: 60, partition: spare, preempt: cancel}
"""


def at_night(value: str):
    """A parameter like others that every change is tested with."""
    return pytest.param(value, marks=pytest.mark.nightly)


@pytest.fixture(scope="session")
def sweep(text_files) -> str:
    return two_arms("small", text_files, tokens_per_parameter=3)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, sweep):
    return losses(finished(tmp_path_factory.mktemp("local"), sweep))


@pytest.fixture
def start(start_on_slurm, tmp_path, sweep):
    (tmp_path / "small.yaml").write_text(sweep)
    (tmp_path / "profiles.yaml").write_text(PROFILES)
    return start_on_slurm


def losses(folder: Path) -> dict[str, tuple[float, float]]:
    actual = {name: RunDirectory.of(folder / "runs", name).result() for name in trial_ids(folder / "runs")}
    return {name: (result["loss"], result["loss_validation"]) for name, result in actual.items() if result}


def end_of(process) -> str:
    _, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, messages
    return messages


def jobs(slurm) -> list[str]:
    return slurm.run("squeue", "-h", "-r", "-t", "RUNNING", "-o", "%i").split()


@pytest.fixture
def start_held(start, slurm, tmp_path):
    """As ``start``; returns when both trials stand in mid-training, after a checkpoint."""

    def begin(profile: str) -> "subprocess.Popen[str]":
        hold(tmp_path)
        process = start(profile)
        wait_for_attempt(tmp_path, 1, slurm)
        return process

    return begin


def wait_for_attempt(folder: Path, attempt: int, slurm) -> None:
    until(lambda: workers_with_attempt(folder, attempt) == 2, f"both train, attempt {attempt}", slurm.logs)


def go_on(folder: Path, slurm) -> None:
    """Release both trials once they train again: before, what ends the first attempt may be on its way."""
    wait_for_attempt(folder, 2, slurm)
    release(folder)


def workers_with_attempt(folder: Path, attempt: int) -> int:
    """How many trials train for the ``attempt``-th time and have come to a checkpoint in it."""
    count = 0
    for name in trial_ids(folder / "runs"):
        directory = RunDirectory.of(folder / "runs", name)
        started = [event["step"] for event in directory.events() if "attempt" in event]
        newest = newest_step(directory.checkpoints_path)
        count += len(started) == attempt and newest > started[-1]
    return count


def causes(folder: Path) -> Counter:
    runs = folder / "runs"
    events = (event for name in trial_ids(runs) for event in RunDirectory.of(runs, name).events())
    return Counter(event["cause"] for event in events if event["state"] == "pending")


def resumed(folder: Path) -> int:
    runs = folder / "runs"
    return sum(RunDirectory.of(runs, name).result()["resumes"] for name in trial_ids(runs))


def assert_whole(folder: Path, undisturbed) -> None:
    assert losses(folder) == undisturbed
    for path in folder.glob("runs/trials/*/*/metrics.jsonl"):
        steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
        assert steps == list(range(1, len(steps) + 1))


def workers_of(folder: Path) -> list[psutil.Process]:
    actual = (process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"])
    ours = (process for process in actual if str(folder / "runs") in process.info["cmdline"])
    return [process for process in ours if "scalevec.orchestrator.worker.train" in process.info["cmdline"]]


@pytest.mark.parametrize("profile", [at_night("plain"), "shared", at_night("side")])
def test_slurm_gives_the_losses_of_this_machine(start, tmp_path, undisturbed, profile):
    end_of(start(profile))
    assert_whole(tmp_path, undisturbed)
    assert not causes(tmp_path)


@pytest.mark.nightly
def test_trials_start_through_the_launcher_of_the_profile(start, tmp_path, undisturbed, monkeypatch):
    monkeypatch.setenv("SCALEVEC_PROFILES", str(tmp_path / "profiles.yaml"))
    launcher, launched = tmp_path / "launcher", tmp_path / "launched"
    launcher.write_text(f'#!/bin/sh\necho "$5" >> "{launched}"\nexec env "$@"\n')
    launcher.chmod(0o755)
    more = f"launcher: [{launcher}], python: {sys.executable}, trials_per_job: 2"
    (tmp_path / "profiles.yaml").write_text(f"plain: {{poll_s: 0.2, memory_gb: 1.5, time: 60, {more}}}")
    end_of(start("plain"))
    assert_whole(tmp_path, undisturbed)
    modules = [name.rpartition(".")[2] for name in launched.read_text().split()]
    assert modules == ["train", "train"]


@pytest.mark.nightly
@pytest.mark.parametrize("profile", ["plain", "shared"])
def test_budgets_branch_off_their_trunk_on_slurm_as_on_this_machine(
    start, tmp_path, trunk_sweep, trunks_on_this_machine, profile
):
    (tmp_path / "small.yaml").write_text(trunk_sweep)
    end_of(start(profile))
    assert outcomes(tmp_path) == trunks_on_this_machine
    assert not causes(tmp_path)
    assert not states_left(tmp_path)


@pytest.mark.nightly
def test_a_time_limit_that_strikes_twice_changes_no_bit(start_held, slurm, tmp_path, undisturbed):
    """The signal is sent by hand: it is the one that SLURM sends before the limit."""
    process = start_held("side")
    for attempt in (2, 3):
        slurm.run("scancel", "--signal=USR2", *jobs(slurm))
        wait_for_attempt(tmp_path, attempt, slurm)
    release(tmp_path)
    end_of(process)
    assert_whole(tmp_path, undisturbed)
    assert resumed(tmp_path) == 4


@pytest.mark.nightly
def test_preemption_that_cancels_changes_no_bit(start_held, slurm, tmp_path, undisturbed):
    process = start_held("spare")
    slurm.run("sbatch", "-p", "high", "-N", "4", "--exclusive", "--output=/dev/null", "--wrap", "sleep 1")
    go_on(tmp_path, slurm)
    end_of(process)
    assert_whole(tmp_path, undisturbed)
    assert resumed(tmp_path) == 2
    assert set(causes(tmp_path)) == {"preempted"}


def servers_of(folder: Path) -> set[psutil.Process]:
    """The processes that have forked the workers, each of which is a child of its job's step."""
    servers = {worker.parent() for worker in workers_of(folder)}
    assert all("scalevec.orchestrator.worker.fork_server" in server.cmdline() for server in servers)
    return servers


@pytest.mark.parametrize("what", [at_night("step"), "server"])
def test_what_a_job_of_two_trials_forked_dies_with_it_and_no_bit_changes(
    start_held, slurm, tmp_path, undisturbed, what
):
    process = start_held("side")
    workers, (server,) = workers_of(tmp_path), servers_of(tmp_path)
    victim = server if what == "server" else server.parent()
    victim.kill()
    psutil.wait_procs(workers, PATIENCE_S)
    go_on(tmp_path, slurm)
    end_of(process)
    assert_whole(tmp_path, undisturbed)
    assert resumed(tmp_path) == 2


@pytest.mark.nightly
def test_the_kill_of_a_forked_worker_leaves_its_neighbour(start_held, tmp_path, undisturbed):
    process = start_held("side")
    victim, other = workers_of(tmp_path)
    assert victim.parent() == other.parent()
    victim.kill()
    release(tmp_path)
    end_of(process)
    assert_whole(tmp_path, undisturbed)
    assert resumed(tmp_path) == 1


def test_cancelling_a_job_of_two_trials_side_by_side_writes_both_checkpoints(
    start, start_held, tmp_path, undisturbed
):
    process = start_held("side")
    command = [str(SCALEVEC), "cancel", "small"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"SCALEVEC_CACHE_DIR": str(tmp_path / "cache")})
    assert process.wait(PATIENCE_S) == 1
    assert not workers_of(tmp_path)
    release(tmp_path)
    end_of(start("side"))
    assert_whole(tmp_path, undisturbed)
    assert resumed(tmp_path) == 2
