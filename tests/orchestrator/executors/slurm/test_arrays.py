"""Arrays as they are sent to SLURM and ended there, without a SLURM."""

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scalevec.orchestrator.attempts.jobs import WORKER, Job
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import by_hand
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm.submission import Submitter, queued_trials
from scalevec.orchestrator.snapshots.snapshot import taken
from scalevec.results.run_directory import RunDirectory

TOKEN = "20260101T000000-0011aabb"


def test_jobs_that_one_may_not_end_are_said_after_ones_own_were_ended(monkeypatch):
    asked = []

    def call(*command):
        asked.append(command)
        raise slurm_queue.SlurmCommandError(
            "scancel: error: Kill job error on job id 7: Access/permission denied"
        )

    monkeypatch.setattr(slurm_queue, "call", call)
    with pytest.raises(MissingRequirementError, match=r"somebody else.*job id 7: Access/permission denied"):
        slurm_queue.end(["6", "7"], hard=False)
    assert asked == [
        ("scancel", "--state=PENDING", "6", "7"),
        ("scancel", "--state=SUSPENDED", "6", "7"),
        ("scancel", "--signal=TERM", "--state=RUNNING", "6", "7"),
    ]


SENT = """\
#!/bin/bash

# Parameters
#SBATCH --array=0-1%2
#SBATCH --error=/sent/%A_%a_0_log.err
#SBATCH --job-name=small.a.old
#SBATCH --output=/sent/%A_%a_0_log.out
#SBATCH --time=7

# setup
module load cuda

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /sent/out python -m submitit.core._submit /sent
"""


class Submitit:
    """Takes arrays as SLURM would; ``before`` is called for each."""

    def __init__(self, folder: Path, before) -> None:
        self.folder, self.before = folder, before

    def submit_array(self, payloads):
        self.before()
        script = self.folder / "0_submission.sh"
        script.write_text(SENT)
        paths = SimpleNamespace(submission_file=script)
        return [SimpleNamespace(job_id=f"{position}", paths=paths) for position, _ in enumerate(payloads)]


def test_each_array_can_be_found_again_before_it_is_sent(tmp_path, monkeypatch):
    directories = [RunDirectory.of(tmp_path / "runs", letter * 64) for letter in "abc"]
    jobs = []
    for directory in directories:
        directory.path.mkdir(parents=True)
        jobs.append(Job(directory.trial_id, ("run", "a b"), directory.path, token=f"t{len(jobs)}"))
    seen = []

    def look() -> None:
        actual = [directory.job() for directory in directories]
        seen.append([job["token"] for job in actual if job])

    monkeypatch.setattr(Submitter, "_submitit", lambda self, folder, *_: Submitit(folder, look))
    sent = Submitter(Site(tmp_path / "runs", "small", 1, Profile())).submit(jobs, 1)
    assert seen == [["t0"], ["t0", "t1"], ["t0", "t1", "t2"]]
    assert [directory.job()["job"] for directory in directories] == [trial.number for trial in sent]


def test_the_script_that_is_kept_runs_one_trial_by_hand(tmp_path, monkeypatch):
    directory = RunDirectory.of(tmp_path / "runs", "a" * 64)
    directory.path.mkdir(parents=True)
    job = Job(directory.trial_id, ("run", "a b", "t0"), directory.path, "the label", token="t0", rung="a")
    monkeypatch.setattr(Submitter, "_submitit", lambda self, folder, *_: Submitit(folder, lambda: None))
    Submitter(Site(tmp_path / "runs", "small", 1, Profile(dependency="afterok:5"))).submit([job], 1)
    kept = (directory.path / "submit.sh").read_text()
    assert kept.startswith("#!/bin/bash\n# the label: to run it by hand, sbatch this file.\n")
    assert "#SBATCH --time=7\n" in kept
    assert "module load cuda\n" in kept
    assert "#SBATCH --dependency=afterok:5\n" in kept
    assert f"#SBATCH --output={directory.path}/log.txt\n" in kept
    assert kept.endswith(f" {directory.path} -- run 'a b' t0\n")  # as a shell takes it
    assert not set(re.findall("submitit|SUBMITIT|array|/sent", kept))


def test_the_script_that_is_kept_runs_the_code_that_was_sent(tmp_path, monkeypatch):
    directory = RunDirectory.of(tmp_path / "runs", "a" * 64)
    directory.path.mkdir(parents=True)
    job = Job(directory.trial_id, (*WORKER, "--job", "t0"), directory.path, token="t0")
    monkeypatch.setattr(Submitter, "_submitit", lambda self, folder, *_: Submitit(folder, lambda: None))
    Submitter(Site(tmp_path / "runs", "small", 1, Profile())).submit([job], 1)
    start = taken(tmp_path / "runs").start
    last = shlex.split((directory.path / "submit.sh").read_text().splitlines()[-1])
    modules = [last[position + 1] for position, word in enumerate(last) if word == "-m"]
    assert modules == ["scalevec.orchestrator.executors.slurm.by_hand", WORKER[-1]]
    assert [last[position - 1] for position, word in enumerate(last) if word == "-m"] == [start, start]
    shutil.rmtree(tmp_path / "runs" / "snapshots")
    done = subprocess.run(["bash", directory.path / "submit.sh"], capture_output=True, text=True)
    assert (done.returncode, "was removed; scalevec run takes a new" in done.stdout) == (3, True)


@pytest.fixture
def by_hand_in_job_7(tmp_path, monkeypatch):
    """The trial, and a call of what its script runs, in job 7 of SLURM."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    directory = RunDirectory.of(tmp_path / "runs", "a" * 64)
    directory.path.mkdir(parents=True)
    folder = tmp_path / "runs" / "sweeps" / "small" / "slurm" / TOKEN
    code = f"import sys; open({str(tmp_path / 'ran')!r}, 'a').write(sys.argv[1] + chr(10))"
    options = ["--folder", str(folder), "--job", "t0", str(directory.path), "--"]
    yield directory, lambda: by_hand.main([*options, sys.executable, "-c", code, "t0"])
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_job_sent_by_hand_is_found_as_any_other(tmp_path, by_hand_in_job_7):
    directory, run = by_hand_in_job_7
    assert run() == 0
    job = directory.job()
    (trial,) = queued_trials(tmp_path / "runs", [job["job"]])
    assert (job["executor"], job["job"], trial.directory) == ("slurm", f"7/0@{TOKEN}", directory.path)
    assert (tmp_path / "ran").read_text() == job["token"] + "\n" != "t0\n"
    (event,) = directory.events()
    assert (event["state"], event["job"]) == ("queued", job["token"])
    assert trial.read()["exit_code"] == 0


def test_a_job_sent_by_hand_registers_once_however_often_slurm_starts_it(tmp_path, by_hand_in_job_7):
    directory, run = by_hand_in_job_7
    run()
    directory.append_event("cancelled", cause="cancelled")
    (tmp_path / "runs" / "sweeps" / "small" / "slurm" / TOKEN / "ended" / "7.0.json").unlink()
    run()
    assert [event["state"] for event in directory.events()] == ["queued", "cancelled"]
    assert len((tmp_path / "ran").read_text().splitlines()) == 1


def test_a_trial_with_a_result_is_not_run_by_hand(tmp_path, by_hand_in_job_7, capsys):
    directory, run = by_hand_in_job_7
    directory.write_result({"status": "completed", "loss": 1.0, "loss_validation": 1.0})
    assert run() == 0
    assert "has its result already" in capsys.readouterr().out
    assert not (tmp_path / "ran").exists()


def test_jobs_are_named_by_sweep_and_what_they_are_for_and_found_by_the_token(tmp_path):
    submitter = Submitter(Site(tmp_path / "runs", "small", 1, Profile()))
    for fields, role in (({"rung": "a"}, "a"), ({"rung": "a", "role": "preflight"}, "preflight")):
        job = Job("a" * 64, ("run",), tmp_path, **fields)
        assert submitter.parameters(TOKEN, [[job]])["job_name"] == f"small.{role}.{TOKEN}"


def test_a_line_of_setup_that_fails_ends_the_job_with_its_own_words(tmp_path):
    submitter = Submitter(Site(tmp_path / "runs", "small", 1, Profile(setup=["x='a b'", "no_such 'thing'"])))
    setup = submitter.parameters(TOKEN, [[Job("a" * 64, ("run",), tmp_path)]])["setup"]
    script = "\n".join([*setup, "echo went on"])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (127, "")
    assert "no_such: command not found" in done.stderr
    assert done.stderr.endswith("scalevec: this line of setup failed: no_such 'thing'\n")


def test_a_job_waits_for_the_users_own_dependency_and_for_the_jobs_before_it(tmp_path):
    submitter = Submitter(Site(tmp_path / "runs", "small", 1, Profile(dependency="afterany:3")))
    job = Job("a" * 64, ("run",), tmp_path, after=("7_0/0@t", "8_0/0@t"))
    further = submitter.parameters(TOKEN, [[job]])["additional_parameters"]
    assert further["dependency"] == "afterany:3,afterok:7_0:8_0"
    assert further["kill-on-invalid-dep"] == "yes"


def test_nobody_else_may_write_where_a_node_unpickles_what_was_sent(tmp_path, monkeypatch):
    directory = RunDirectory.of(tmp_path / "runs", "a" * 64)
    directory.path.mkdir(parents=True)
    job = Job(directory.trial_id, ("run",), directory.path, token="t")
    monkeypatch.setattr(Submitter, "_submitit", lambda self, folder, *_: Submitit(folder, lambda: None))
    usual = os.umask(0)
    try:
        [sent] = Submitter(Site(tmp_path / "runs", "small", 1, Profile())).submit([job], 1)
    finally:
        os.umask(usual)
    others = stat.S_IWGRP | stat.S_IWOTH
    assert sent.folder.stat().st_mode & others == 0
    assert (sent.folder / "0_submission.sh").stat().st_mode & others == 0  # as submitit's own files
    assert directory.jobs_path.stat().st_mode & others == others
