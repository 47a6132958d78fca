"""Jobs that an older scalevec queued: its module names are gone, nothing was started, they are sent again."""

from pathlib import Path

import pytest
import yaml

from scalevec import sweeps
from scalevec.model.identity import semantic_fields
from scalevec.orchestrator.attempts.jobs import FORMER_NAME_NOTE, Task
from scalevec.orchestrator.attempts.retry_policy import decide
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.simulate.planted_law import nominal_corpus
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm import slurm_executor
from scalevec.orchestrator.executors.slurm.queue import JobRow
from scalevec.orchestrator.executors.slurm.slurm_executor import SlurmExecutor
from scalevec.orchestrator.executors.slurm.submission import QueuedTrial, Submitter, job_name
from scalevec.orchestrator.scheduling.scheduler import Scheduler
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from scalevec.results.files import write_json
from scalevec.results.run_directory import RunDirectory
from simulations import SWEEP, Silent

OLD, NEW = "20261101T000000-0badc0de", "20261122T000000-c0ffee00"
UNPICKLED = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'orchestrator'\n"
COMMAND = (
    "python: Error while finding module specification for 'orchestrator.worker' "
    "(ModuleNotFoundError: No module named 'orchestrator')\n"
)


class Telling(Silent):
    """Keeps what it is told."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.told: list[str] = []

    def message(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture
def task(tmp_path) -> Task:
    sweep = sweeps.loads(yaml.safe_dump(SWEEP, sort_keys=False))
    run = SweepRun(sweep, tmp_path, Silent(1), nominal_corpus(sweep))
    return run.task(run.members()[0])


@pytest.fixture
def directory(tmp_path, task) -> RunDirectory:
    """A trial as an older scalevec queued it, as place 0 of job 7."""
    directory = RunDirectory.of(tmp_path, task.trial_id)
    directory.create(semantic_fields(task.trial), {})
    directory.append_event("queued", executor="slurm", job="old")
    directory.write_job("slurm", f"7/0@{OLD}", "old")
    return directory


@pytest.fixture
def folder(tmp_path, directory) -> Path:
    """What the older scalevec kept of the submission."""
    folder = tmp_path / "sweeps" / "planted" / "slurm" / OLD
    folder.mkdir(parents=True)
    jobs = {"7": [str(directory.path)]}
    write_json(folder / "places.json", {"name": job_name("planted", "a", OLD), "jobs": jobs})
    return folder


@pytest.fixture
def executor(tmp_path, directory, monkeypatch) -> SlurmExecutor:
    """On a SLURM where job 7 waits at the first look and fails at the next; what is then sent completes."""
    looks = iter(("PENDING",))

    def queued(_jobs):
        return {"7": JobRow("7", job_name("planted", "a", OLD), next(looks, "FAILED"), 1, "n1")}

    def submit(_self, jobs, _largest_array):
        assert [job.trial_id for job in jobs] == [directory.trial_id]
        directory.write_result({"status": "completed", "loss_validation": 1.0})
        sent = tmp_path / "sweeps" / "planted" / "slurm" / NEW
        (sent / "ended").mkdir(parents=True)
        ended = {"final": True, "exit_code": 0, "cause": None, "node": "n1", "start": 0}
        write_json(sent / "ended" / "8.0.json", ended)
        return [QueuedTrial(sent, "8", 0, directory.path)]

    monkeypatch.setattr(slurm_executor.shutil, "which", lambda name: name)
    monkeypatch.setattr(slurm_queue, "configuration", dict)
    monkeypatch.setattr(slurm_queue, "queued", queued)
    monkeypatch.setattr(slurm_queue, "accounted", lambda jobs: {})
    monkeypatch.setattr(Submitter, "submit", submit)
    profile = Profile(max_submitted=4, poll_s=0.1)
    return SlurmExecutor(Site(tmp_path, "planted", 1, profile))


def test_a_job_that_cannot_be_unpickled_any_more_is_sent_again(tmp_path, folder, executor, task, directory):
    (folder / "7_0_log.err").write_text(UNPICKLED)
    progress = Telling(1)
    outcome = Scheduler(tmp_path, executor, progress).run([task])
    assert not outcome.failed
    assert directory.result()["status"] == "completed"
    (ended,) = [event for event in directory.events() if event["state"] == "pending"]
    assert (ended["cause"], ended["note"]) == ("not_started", FORMER_NAME_NOTE)
    assert f"{task.label}: {FORMER_NAME_NOTE}; it is sent again" in progress.told


def test_a_job_under_way_that_gives_the_former_command_is_sent_again(
    tmp_path, folder, executor, task, directory
):
    (folder / "ended").mkdir()
    record = {"final": True, "exit_code": 1, "cause": None, "node": "n1", "start": 0}
    executor.adopt([f"7/0@{OLD}"])
    write_json(folder / "ended" / "7.0.json", record)
    directory.log_path.write_text(f"{COMMAND}[slurm] 2026-11-22 the process ended with 1\n")
    (ended,) = executor.wait(5.0)
    assert (ended.exit_code, ended.cause, ended.message) == (None, "not_started", FORMER_NAME_NOTE)


def test_an_error_of_the_trial_after_such_an_end_is_its_own(folder, executor, directory):
    (folder / "ended").mkdir()
    record = {"final": True, "exit_code": 1, "cause": None, "node": "n1", "start": 0}
    executor.adopt([f"7/0@{OLD}"])
    write_json(folder / "ended" / "7.0.json", record)
    directory.log_path.write_text(f"{COMMAND}Traceback:\nValueError: of the trial\n[slurm] it ended with 1\n")
    (ended,) = executor.wait(5.0)
    assert (ended.exit_code, ended.cause) == (1, None)


def test_what_was_not_started_never_counts_as_a_fault_of_the_trial():
    ends = [{"state": "pending", "cause": "not_started", "job": str(n), "step": 0} for n in range(5)]
    assert decide(ends, 8).again
