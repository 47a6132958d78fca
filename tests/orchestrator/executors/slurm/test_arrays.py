"""Arrays as they are sent to SLURM and ended there, without a SLURM."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from scalevec.orchestrator.attempts.jobs import Job
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm.submission import Submitter
from scalevec.results.run_directory import RunDirectory


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
        ("scancel", "--signal=TERM", "--state=RUNNING", "6", "7"),
    ]


class Submitit:
    """Takes arrays as SLURM would; ``before`` is called for each."""

    def __init__(self, folder: Path, before) -> None:
        self.folder, self.before = folder, before

    def submit_array(self, payloads):
        self.before()
        script = self.folder / "script.sh"
        script.write_text("#SBATCH --time=7\n")
        paths = SimpleNamespace(submission_file=script)
        return [SimpleNamespace(job_id=f"{position}", paths=paths) for position, _ in enumerate(payloads)]


def test_each_array_can_be_found_again_before_the_next_is_sent(tmp_path, monkeypatch):
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
    assert seen == [[], ["t0"], ["t0", "t1"]]
    assert [directory.job()["job"] for directory in directories] == [trial.number for trial in sent]
    kept = (directories[0].path / "submit.sh").read_text().splitlines()
    assert kept[0] == "#SBATCH --time=7"
    assert kept[-1] == "# run 'a b'"  # as a shell takes it


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
    assert sent.folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH) == 0
