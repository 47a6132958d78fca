"""Two schedulers on one sweep or on the same jobs: no trial runs twice, each fault counts once."""

import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scalevec.orchestrator.attempts.jobs import Job, Task
from scalevec.orchestrator.attempts.retry_policy import decide
from scalevec.orchestrator.executors.base import Ended
from scalevec.orchestrator.executors.registry import EXECUTORS, RegisteredExecutor
from scalevec.orchestrator.scheduling import scheduler as scheduling
from scalevec.orchestrator.scheduling.scheduler import Scheduler
from scalevec.orchestrator.scheduling.watched_jobs import Outcome
from scalevec.results.claims import acquire
from scalevec.results.files import names_in
from scalevec.results.run_directory import RunDirectory, trial_ids
from simulations import Silent, sweep_run
from support import wait_until
from two_schedulers import compete

PATIENCE_S = 300.0


@dataclass
class Cluster:
    """Jobs by number; those that run do so until somebody ends them."""

    ends: dict[str, Ended | None] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, job: Job) -> str:
        """What a worker does first."""
        with self.lock:
            number = str(len(self.ends))
            self.ends[number] = None
        claim = acquire(RunDirectory(job.directory), {"job": job.token})
        RunDirectory(job.directory).append_event("running", attempt=claim.attempt, step=0)
        return number

    def fail(self, number: str) -> None:
        """Its node is gone."""
        self.ends[number] = Ended(number, None, "node_failure", "n1")

    def complete(self, number: str, directory: RunDirectory) -> None:
        """The worker's last deeds."""
        directory.write_result({"status": "completed", "loss_validation": 1.0})
        directory.append_event("completed")
        self.ends[number] = Ended(number, 0)


class Queue:
    """A scheduler's own view of a cluster that keeps jobs. ``deaf`` while it is not to hear of any end."""

    name = "queue"
    free_slots = 4

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.watched, self.deaf = cluster, set[str](), False
        self.looking = threading.Lock()

    def deafen(self) -> None:
        """From now on; a look that is under way ends first."""
        with self.looking:
            self.deaf = True

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        numbers = [self.cluster.start(job) for job in jobs]
        for job, number in zip(jobs, numbers, strict=True):
            RunDirectory(job.directory).write_job(self.name, number, job.token)
        self.watched |= set(numbers)
        return numbers

    def adopt(self, numbers: Collection[str]) -> set[str]:
        alive = {number for number in numbers if self.cluster.ends[number] is None}
        self.watched |= alive
        return alive

    def wait(self, timeout_s: float) -> list[Ended]:
        time.sleep(0.001)
        with self.looking:
            ended = [] if self.deaf else [end for item in self.watched if (end := self.cluster.ends[item])]
        self.watched -= {item.number for item in ended}
        return ended

    def notices(self) -> list[tuple[str | None, str]]:
        return []

    def cancel(self, numbers: Collection[str]) -> None:
        assert not numbers

    def stop(self, *, hard: bool = False) -> None:
        raise AssertionError(hard)

    def close(self) -> None:
        """Nothing is held."""


class Watcher:
    """A scheduler in a thread of its own."""

    def __init__(self, cluster: Cluster, runs_dir: Path, task: Task) -> None:
        self.queue = Queue(cluster)
        progress = Silent()
        self.told: list[str] = []
        progress.started = lambda task: self.told.append(task.trial_id)  # type: ignore[method-assign]
        self.scheduler = Scheduler(runs_dir, self.queue, progress)
        self.outcome: Outcome | None = None
        self.thread = threading.Thread(target=self._run, args=(task,))
        self.thread.start()

    def _run(self, task: Task) -> None:
        self.outcome = self.scheduler.run([task])

    def join(self) -> Outcome:
        self.thread.join(PATIENCE_S)
        return self.outcome


@pytest.fixture
def task(tmp_path) -> Task:
    run = sweep_run(tmp_path)
    return run.task(run.members()[0])


@pytest.fixture
def directory(tmp_path, task) -> RunDirectory:
    return RunDirectory.of(tmp_path, task.trial_id)


@pytest.fixture
def cluster(monkeypatch) -> Cluster:
    monkeypatch.setattr(scheduling, "ELSEWHERE_POLL_S", 0.0)
    monkeypatch.setitem(EXECUTORS, Queue.name, RegisteredExecutor("", "", keeps_jobs=True, sends_away=True))
    return Cluster()


@pytest.fixture
def both(cluster, tmp_path, task) -> list[Watcher]:
    """The first has sent the trial, the second has adopted its job."""
    first = Watcher(cluster, tmp_path, task)
    wait_until(lambda: first.scheduler.jobs.running)
    second = Watcher(cluster, tmp_path, task)
    wait_until(lambda: second.scheduler.jobs.running)
    return [first, second]


def faults(directory: RunDirectory) -> int:
    return sum(event["state"] == "pending" for event in directory.events())


def fail(cluster: Cluster, early: Watcher, late: Watcher) -> str:
    """The job's node dies; ``late`` hears of it when ``early`` has sent the trial again. The new job."""
    (number,) = early.queue.watched
    late.queue.deafen()
    cluster.fail(number)
    wait_until(lambda: early.scheduler.jobs.running.keys() - {number})
    late.queue.deaf = False
    (again,) = early.queue.watched
    wait_until(lambda: late.queue.watched == {again})
    return again


def test_two_faults_that_both_notice_count_twice_and_the_trial_goes_on(cluster, both, directory, task):
    first, second = both
    fail(cluster, first, second)
    again = fail(cluster, second, first)
    assert faults(directory) == 2
    assert directory.state().state == "running"
    assert decide(directory.events(), task.trial.batch_sequences).again
    cluster.complete(again, directory)
    for watcher in both:
        assert not watcher.join().failed
    assert len(cluster.ends) == 3


def test_the_third_fault_is_the_end_for_both(cluster, both, directory, task):
    first, second = both
    fail(cluster, first, second)
    last = fail(cluster, first, second)
    second.queue.deafen()
    cluster.fail(last)
    assert set(first.join().failed) == {task.trial_id}
    second.queue.deaf = False
    assert set(second.join().failed) == {task.trial_id}
    states = [event["state"] for event in directory.events()]
    assert (states.count("pending"), states.count("failed"), states[-1]) == (3, 1, "failed")


def test_a_job_that_is_adopted_is_told_as_one_that_has_started(cluster, both, directory):
    cluster.complete(next(iter(both[0].queue.watched)), directory)
    for watcher in both:
        assert not watcher.join().failed
        assert watcher.told == [directory.trial_id]


def test_an_end_of_which_two_speak_at_once_is_one_fault():
    def fault(job: str) -> dict[str, object]:
        return {"state": "pending", "cause": "node_failure", "job": job, "step": 0}

    spoken = [fault(job) for job in ("a", "a", "b", "b")]
    assert decide(spoken, 8).again
    assert not decide([*spoken, fault("c")], 8).again


def test_what_somebody_else_gave_up_is_not_started(tmp_path, cluster, task, directory):
    """It was somebody else's when the scheduler began, and their last attempt failed since."""
    scheduler = Scheduler(tmp_path, Queue(cluster), Silent())
    scheduler._begin(task)
    directory.append_event("failed", cause="node_failure")
    assert scheduler._ready(task) is None
    assert set(scheduler._outcome.failed) == {task.trial_id}


BOTH_WANT_THE_SAME_FIRST = ((8, 8), False)
BOTH_WANT_ALL_AT_ONCE = ((200, 200), False)
MEETING_IN_THE_MIDDLE = [((16, 16), True), ((200, 200), True), ((1, 32), True)]


@pytest.mark.parametrize(
    ("executor", "trials", "repetitions"),
    [
        ("simulate", 200, [BOTH_WANT_THE_SAME_FIRST, BOTH_WANT_ALL_AT_ONCE]),
        ("local", 24, [BOTH_WANT_THE_SAME_FIRST]),
        pytest.param("simulate", 200, MEETING_IN_THE_MIDDLE, marks=pytest.mark.nightly),
        pytest.param("local", 200, [BOTH_WANT_THE_SAME_FIRST], marks=pytest.mark.nightly),
    ],
)
@pytest.mark.slow
def test_no_trial_runs_twice_and_none_is_lost(executor, trials, repetitions, tmp_path):
    contested = 0
    for number, (slots, reverse) in enumerate(repetitions):
        runs_dir = tmp_path / str(number)
        compete(executor, runs_dir, slots, trials, reverse=reverse)
        directories = [RunDirectory.of(runs_dir, name) for name in trial_ids(runs_dir)]
        assert len(directories) == trials
        for directory in directories:
            assert_ran_once(directory)
        contested += sum(map(was_contested, directories))
    assert contested > 0, "the two schedulers never wanted the same trial: nothing was tested"


def assert_ran_once(directory: RunDirectory) -> None:
    """One attempt ran, the first, and it alone made the result; nobody holds a claim any more."""
    events, claims = directory.events(), set(names_in(directory.claims_path))
    states = [event["state"] for event in events]
    assert [event["attempt"] for event in events if event["state"] == "running"] == [1], events
    assert states.count("completed") == 1, events
    assert not {"pending", "failed", "cancelled"} & set(states), events
    assert directory.result()["status"] == "completed"
    claimed = {Path(name).stem for name in claims if name.endswith(".json")}
    assert claimed == {Path(name).stem for name in claims if name.endswith(".done")}


def was_contested(directory: RunDirectory) -> bool:
    """Whether both schedulers gave the trial to their executors."""
    return len({event["pid"] for event in directory.events() if event["state"] == "queued"}) == 2
