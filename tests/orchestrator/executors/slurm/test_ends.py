"""When a job of SLURM counts as ended: what the queue shows, and what it no longer shows, without a SLURM."""

from dataclasses import replace
from pathlib import Path

import pytest

from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm import slurm_executor
from scalevec.orchestrator.executors.slurm.queue import JobRow
from scalevec.orchestrator.executors.slurm.slurm_executor import LOOKS_WITHOUT_RECORD, SlurmExecutor
from scalevec.orchestrator.executors.slurm.submission import job_name
from scalevec.results.files import write_json

PATIENCE_S = 300.0
TOKEN = "20261122T000000-c0ffee00"
NUMBER = f"7/0@{TOKEN}"


def row(state: str, reason: str = "") -> JobRow:
    return JobRow("7", job_name("small", "a", TOKEN), state, None, "n1", reason)


NO_ANSWER = row("no answer")


class Queue:
    """What ``squeue`` shows of job 7: one of ``rows`` at each look, then the last of them for good."""

    def __init__(self, *rows: JobRow | None) -> None:
        self.rows = list(rows)
        self.looks = 0
        self.ended: list[str] = []

    def queued(self, _jobs):
        self.looks += 1
        shown = self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]
        if shown is NO_ANSWER:
            return None
        return {} if shown is None else {"7": shown}

    def end(self, jobs, *, hard):
        self.ended += jobs


@pytest.fixture
def executor_on(tmp_path: Path, monkeypatch):
    """An executor that has adopted job 7, on a SLURM that shows the rows of a queue from then on."""

    def build(*rows: JobRow | None) -> tuple[SlurmExecutor, Queue]:
        queue = Queue(row("RUNNING"), *rows)
        monkeypatch.setattr(slurm_executor, "CONFIRM_S", 0.01)
        monkeypatch.setattr(slurm_executor.shutil, "which", lambda name: name)
        monkeypatch.setattr(slurm_queue, "configuration", dict)
        monkeypatch.setattr(slurm_queue, "queued", queue.queued)
        monkeypatch.setattr(slurm_queue, "accounted", lambda jobs: {})
        monkeypatch.setattr(slurm_queue, "end", queue.end)
        folder = tmp_path / "sweeps" / "small" / "slurm" / TOKEN
        folder.mkdir(parents=True)
        places = {"name": job_name("small", "a", TOKEN), "jobs": {"7": [f"trials/aa/{'a' * 64}"]}}
        write_json(folder / "places.json", places)
        executor = SlurmExecutor(Site(tmp_path, "small", 1, Profile(max_submitted=4, poll_s=0.1)))
        assert executor.adopt([NUMBER]) == {NUMBER}
        queue.looks = 0
        return executor, queue

    return build


def look_at(executor: SlurmExecutor, queue: Queue, looks: int) -> None:
    """So often; nothing has ended."""
    while queue.looks < looks:
        assert executor.wait(0.1) == []


def test_a_job_that_the_queue_shows_has_not_ended(executor_on):
    look_at(*executor_on(row("RUNNING")), LOOKS_WITHOUT_RECORD + 1)


def test_a_job_that_the_accounting_alone_has_as_running_is_lost_after_a_while(executor_on, monkeypatch):
    executor, queue = executor_on(None)
    monkeypatch.setattr(slurm_queue, "accounted", lambda jobs: {"7": row("RUNNING")})
    look_at(executor, queue, LOOKS_WITHOUT_RECORD + 1)
    monkeypatch.setattr(slurm_executor, "LOST_S", 0.0)
    (ended,) = executor.wait(PATIENCE_S)
    assert (ended.number, ended.cause) == (NUMBER, "node_failure")
    assert "the queue has no such job; accounted as RUNNING" in ended.message


def test_a_job_that_the_queue_shows_again_was_not_lost(executor_on, monkeypatch):
    executor, queue = executor_on(None, row("RUNNING"))
    monkeypatch.setattr(slurm_queue, "accounted", lambda jobs: {"7": row("RUNNING")})
    look_at(executor, queue, LOOKS_WITHOUT_RECORD + 1)
    assert executor._lost_since == {}


def test_a_job_that_the_queue_has_forgotten_has_ended_at_the_second_look(executor_on):
    executor, queue = executor_on(None)
    (ended,) = executor.wait(PATIENCE_S)
    assert (ended.number, ended.exit_code, ended.cause) == (NUMBER, None, None)
    assert ended.message == "SLURM knows nothing of the job any more"
    assert queue.looks == LOOKS_WITHOUT_RECORD


def test_a_job_that_the_queue_shows_again_was_only_out_of_sight(executor_on):
    look_at(*executor_on(None, row("RUNNING"), None, row("PENDING"), row("RUNNING")), 6)


def test_while_slurm_does_not_answer_nothing_has_ended_and_a_person_is_told(executor_on, monkeypatch):
    monkeypatch.setattr(slurm_executor, "TOLD_AFTER_S", 0.0)
    executor, queue = executor_on(*[NO_ANSWER] * 3, row("RUNNING"))
    look_at(executor, queue, 5)
    (job, words), (_, again) = executor.notices()
    assert (job, words.partition(";")[0]) == (None, "SLURM has not answered for 1 min")
    assert again == "SLURM answers again, after 1 min"
    assert executor.notices() == []


def test_a_short_silence_is_no_news(executor_on):
    executor, queue = executor_on(NO_ANSWER, row("RUNNING"))
    look_at(executor, queue, 3)
    assert executor.notices() == []


def test_a_job_that_slurm_cannot_launch_is_ended_and_is_a_fault_of_the_node(executor_on):
    executor, queue = executor_on(row("PENDING", "launch failed requeued held"))
    (ended,) = executor.wait(PATIENCE_S)
    assert (ended.cause, ended.node) == ("node_failure", "n1")
    assert queue.ended == ["7"]


@pytest.mark.parametrize(
    ("n_trials", "since_change_s", "seconds"),
    [(1, 0, 2), (10, 0, 2), (1, 300, 30), (1, 9000, 60), (11, 0, 60)],
)
def test_few_trials_are_polled_often_at_first_and_many_seldom(executor_on, n_trials, since_change_s, seconds):
    executor, _ = executor_on(row("RUNNING"))
    executor.site = replace(executor.site, profile=Profile(poll_s=60))
    (trial,) = executor._trials.values()
    executor._trials = {str(number): trial for number in range(n_trials)}
    assert executor._until_next_look(executor._changed + since_change_s) == pytest.approx(seconds)


def test_a_job_that_had_no_space_for_its_record_had_none_for_its_trial(executor_on, tmp_path):
    executor, _ = executor_on(replace(row("FAILED"), exit_code=74))
    folder = tmp_path / "sweeps" / "small" / "slurm" / TOKEN / "ended"
    folder.mkdir()
    began = {"final": False, "exit_code": None, "cause": None, "node": "n1", "start": 0}
    write_json(folder / "7.0.json", began)
    ended = []
    while not ended:
        ended = executor.wait(0.1)
    assert [(end.exit_code, end.cause) for end in ended] == [(WorkerExit.NO_SPACE, None)]
