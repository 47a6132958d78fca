# ruff: noqa: F811 (fixtures of another module)
"""What a job runs is what was sent, whether it waited, was sent by hand, or came to its time limit."""

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from cluster.slurm_daemons import until
from cluster.test_slurm_jobs import killed, ours, trials
from cluster.test_slurm_training import (  # noqa: F401 (fixtures)
    jobs,
    losses,
    start,
    start_held,
    sweep,
    undisturbed,
    workers_with_attempt,
)
from hold import can_hold, release
from plugin_copy import PACKAGES, copied_packages
from scalevec.results.run_directory import RunDirectory

pytestmark = pytest.mark.slow

PROFILES = """\
behind: {{poll_s: 0.2, memory_gb: 1.5, time: 60, dependency: "afterany:{other}"}}
plain: {{poll_s: 0.2, memory_gb: 1.5, time: 60}}
once: {{poll_s: 0.2, memory_gb: 1.5, time: 60, preempt: cancel}}
"""


def sent_by_hand(trial: RunDirectory, environment: Mapping[str, str]) -> str:
    """The job of a trial's kept script."""
    command = ["sbatch", "--parsable", str(trial.path / "submit.sh")]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def waiting_and_edited(slurm, slurm_commands, tmp_path, sweep):
    """Both trials wait in the queue, sent from a copy of our packages each of which now refuses to be run.

    What is returned are the variables under which Python imports that copy, and the job they wait for.
    """
    other = slurm.run("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap", "true").strip()
    (tmp_path / "small.yaml").write_text(sweep)
    (tmp_path / "profiles.yaml").write_text(PROFILES.format(other=other))
    copy = tmp_path / "copy"
    environment = copied_packages(copy)
    command = [sys.executable, "-P", "-m", "scalevec.orchestrator.cli.main", "run", "small.yaml"]
    with (tmp_path / "log.txt").open("wb") as log:
        options = ["--executor", "slurm", "--profile", "behind"]
        process = subprocess.Popen(
            [*command, *options], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
    until(lambda: len(list((tmp_path / "runs").glob("trials/*/*/submit.sh"))) == 2, "both wait", slurm.logs)
    killed(process)
    for name in PACKAGES:
        (copy / name / "__init__.py").write_text('raise SystemExit("the edited code was run")\n')
    yield environment, other
    slurm.run("scancel", "--user=root")


def test_jobs_that_wait_and_those_sent_by_hand_run_the_code_that_was_sent(
    waiting_and_edited, slurm, tmp_path, undisturbed
):
    environment, other = waiting_and_edited
    waits, by_hand = trials(tmp_path)
    slurm.run("scancel", str(by_hand.job()["job"]).partition("/")[0])
    slurm.run("scancel", other)
    until(lambda: waits.result() is not None, "the trial that waited has its result", slurm.logs)
    assert by_hand.result() is None
    sent_by_hand(by_hand, environment)
    until(lambda: by_hand.result() is not None, "so has the one sent by hand", by_hand.log_path.read_text)
    assert losses(tmp_path) == undisturbed
    (snapshot,) = (tmp_path / "runs/snapshots").glob("*/*")
    codes = {event["code"] for trial in (waits, by_hand) for event in trial.events() if "code" in event}
    assert codes == {snapshot.name}


@pytest.fixture
def by_hand(start_held, slurm, tmp_path):
    """A trial that trains, held, in a job that a person has sent; nobody looks after it."""

    def begin(profile: str) -> tuple:
        (tmp_path / "profiles.yaml").write_text(PROFILES.format(other=1))
        killed(start_held(profile))
        for job in jobs(slurm):
            slurm.run("scancel", job)
        until(lambda: not ours(slurm), "the queue is empty", lambda: slurm.run("squeue"))
        trial = trials(tmp_path)[0]
        job = sent_by_hand(trial, can_hold(os.environ))
        until(lambda: workers_with_attempt(tmp_path, 2) == 1, "it trains by hand", trial.log_path.read_text)
        return trial, job

    return begin


def test_a_job_sent_by_hand_goes_on_after_its_time_limit(by_hand, slurm, tmp_path, undisturbed):
    trial, job = by_hand("plain")
    slurm.run("scancel", "--signal=USR2", job)
    until(lambda: workers_with_attempt(tmp_path, 3) == 1, "it trains again", trial.log_path.read_text)
    release(tmp_path)
    until(lambda: trial.result() is not None, "it has its result", trial.log_path.read_text)
    assert losses(tmp_path)[trial.trial_id] == undisturbed[trial.trial_id]
    assert trial.result()["resumes"] == 2
    assert [record["job"].partition("/")[0] for record in trial.jobs()[1:]] == [job]
    until(lambda: not ours(slurm), "the queue is empty", lambda: slurm.run("squeue"))


def test_a_job_sent_by_hand_that_is_not_requeued_says_how_to_go_on(by_hand, slurm, tmp_path):
    trial, job = by_hand("once")
    slurm.run("scancel", "--signal=USR2", job)
    until(lambda: not ours(slurm), "the queue is empty", lambda: slurm.run("squeue"))
    assert (trial.state().state, trial.state().cause) == ("pending", "timeout")
    log = trial.log_path.read_text()
    assert "the time limit is near; the trial has written its checkpoint" in log
    assert f"to go on: sbatch {trial.path}/submit.sh" in log
