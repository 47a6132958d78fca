"""Arrays as they are sent to SLURM and ended there, without a SLURM."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.errors import Lacking
from orchestrator.executors import slurm_queue
from orchestrator.executors.base import Site
from orchestrator.executors.slurm_submission import Submitter
from orchestrator.jobs import Job
from orchestrator.profiles import Profile
from results.run_directory import RunDirectory


def test_jobs_that_one_may_not_end_are_said_after_ones_own_were_ended(monkeypatch):
    asked = []

    def call(*command):
        asked.append(command)
        raise slurm_queue.SlurmFailed("scancel: error: Kill job error on job id 7: Access/permission denied")

    monkeypatch.setattr(slurm_queue, "call", call)
    with pytest.raises(Lacking, match=r"somebody else.*job id 7: Access/permission denied"):
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
        return [SimpleNamespace(job_id=f"{place}", paths=paths) for place, _ in enumerate(payloads)]


def test_each_array_can_be_found_again_before_the_next_is_sent(tmp_path, monkeypatch):
    directories = [RunDirectory.of(tmp_path / "runs", letter * 64) for letter in "abc"]
    jobs = []
    for directory in directories:
        directory.path.mkdir(parents=True)
        jobs.append(Job(directory.trial_id, ("run", "a b"), directory.path, token=f"t{len(jobs)}"))
    seen = []

    def look() -> None:
        found = [directory.job() for directory in directories]
        seen.append([job["token"] for job in found if job])

    monkeypatch.setattr(Submitter, "_submitit", lambda self, folder, *_: Submitit(folder, look))
    sent = Submitter(Site(tmp_path / "runs", "small", 1, Profile()), 1).submit(jobs)
    assert seen == [[], ["t0"], ["t0", "t1"]]
    assert [directory.job()["job"] for directory in directories] == [one.jobs["0"][0].number for one in sent]
    kept = directories[0].submit_script_path.read_text().splitlines()
    assert kept[0] == "#SBATCH --time=7"
    assert kept[-1] == "# run 'a b'"  # as a shell takes it
