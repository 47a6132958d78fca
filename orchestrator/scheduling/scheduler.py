"""The scheduler: hands missing trials to an executor and reads from run directories what became of them."""

import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scalevec.model.identity import semantic_fields
from scalevec.model.training.checkpoints.folder import newest_step, prune_finished
from scalevec.orchestrator.attempts.jobs import Task, WorkerExit, job_of
from scalevec.orchestrator.attempts.retry_policy import (
    NodeWatch,
    attempt_of,
    decide,
    failure_text,
    unreadable,
    was_called_off,
    was_sent_again,
)
from scalevec.orchestrator.executors.base import Ended, Executor
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.scheduling.trunk_book import REMOTE_LOOK_S, TrunkBook
from scalevec.results.claims import ClaimObserver, end_claim, newest_attempt
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory, state_of

Events = list[dict[str, Any]]

POLL_S = 0.2
FOREIGN_POLL_S = 1.0
CANCEL_POLL_S = 3.0


@dataclass
class Outcome:
    """What a run left undone: the trials given up, and why it ended early if it did."""

    failed: dict[str, str] = field(default_factory=dict)
    """Trial id -> reason."""
    cancelled: dict[str, str] = field(default_factory=dict)
    """Trial id -> label."""
    stopped: bool = False
    left_running: int = 0
    """Jobs that go on in a cluster's queue without this scheduler."""
    left_out: int = 0
    """Trials without a result that the person did not ask for."""
    no_space: bool = False


@dataclass(frozen=True)
class _WatchedJob:
    """A job that this scheduler watches; ``token`` is what its worker writes into its claim."""

    task: Task
    token: str


class Scheduler:
    """Runs tasks on an executor until each has a result or is given up; safe to stop at any moment."""

    def __init__(self, runs_dir: Path, executor: Executor, progress: Progress) -> None:
        self.runs_dir, self.executor, self.progress = runs_dir, executor, progress
        self.observer = ClaimObserver()
        self.nodes = NodeWatch()
        registered = EXECUTORS[executor.name]
        self._keeps_jobs = registered.keeps_jobs
        self.trunks = TrunkBook(runs_dir, REMOTE_LOOK_S if registered.sends_away else 0.0)
        self._running: dict[str, _WatchedJob] = {}
        self._foreign: list[Task] = []
        """Trials that a worker of another scheduler owns."""
        self._waiting: deque[Task] = deque()
        self._outcome = Outcome()
        self._asked_to_end: set[str] = set()
        self._reasons_told: set[str] = set()
        self._stop_requests = self._stops_passed_on = 0
        self._looked_at_foreign = self._looked_for_cancellations = time.monotonic()

    def request_stop(self) -> None:
        """Start nothing more and let the workers checkpoint; a second request ends them at once.

        Jobs in a cluster's queue go on by themselves. Safe in a signal handler: the loop acts on it.
        """
        self._stop_requests += 1

    @property
    def _stopping(self) -> bool:
        return self._stop_requests > 0

    def run(self, tasks: Sequence[Task]) -> Outcome:
        """Run what is missing of ``tasks``, the longest first, those of like length seed by seed."""
        self._outcome = Outcome()
        tasks = _distinct(tasks)
        states = {task.trial_id: self._begin(task) for task in tasks}
        missing = [task for task in tasks if states[task.trial_id] is not None]
        missing = self.trunks.begin(tasks, missing)
        self.progress.begin(missing, self.executor.name)
        adopted = self._adopt([task for task in missing if states[task.trial_id] in ("queued", "running")])
        self._waiting = deque(sorted((t for t in missing if t.trial_id not in adopted), key=_turn))
        try:
            self._work()
        except BaseException:
            if not self._keeps_jobs:
                self.executor.stop()  # nobody would look after the workers: let them checkpoint and end
            raise
        self._outcome.stopped = self._stopping
        self._outcome.left_running = len(self._running)
        return self._outcome

    def _work(self) -> None:
        while self._running or (not self._stopping and (self._waiting or self._foreign)):
            self._start()
            self._pass_on_stops()
            if self._stopping and self._keeps_jobs:
                return
            for ended in self.executor.wait(POLL_S):
                self._asked_to_end.discard(ended.number)
                running = self._running.pop(ended.number)
                with self._sparing_the_others(running.task):
                    self._settle(running, ended)
            self._look_at_foreign()
            self._look_for_cancellations()
            self.progress.tick()

    def _pass_on_stops(self) -> None:
        if self._stop_requests > self._stops_passed_on and not self._keeps_jobs:
            self._stops_passed_on = self._stop_requests
            self.executor.stop(hard=self._stop_requests > 1)

    @contextmanager
    def _sparing_the_others(self, task: Task) -> Iterator[None]:
        """A trial whose records nobody can read counts as failed, and the sweep goes on without it."""
        try:
            yield
        except CorruptRecordError as problem:
            self._give_up(task, unreadable(self._directory(task), problem))

    def _begin(self, task: Task) -> str | None:
        """Make the run directory; return the state of a trial to run, None for one done or unreadable."""
        try:
            return self._state_at_begin(task)
        except CorruptRecordError as problem:
            self._note_failure(task, unreadable(self._directory(task), problem))
            self.progress.message(self._outcome.failed[task.trial_id])
            return None

    def _state_at_begin(self, task: Task) -> str | None:
        directory = self._directory(task)
        directory.create(semantic_fields(task.trial), task.descriptive)
        result = self._result(directory)
        if result is not None:
            prune_finished(directory.checkpoints_path, result)
            return None
        events = directory.events()
        self.nodes.learn(task.trial_id, events)
        state = state_of(events, None)
        if state.state == "failed":
            self._note_failure(task, str(state.cause))
            return None
        if state.state == "cancelled":
            directory.append_event("pending", cause="asked for again")
            return "pending"
        return state.state

    def _adopt(self, tasks: Sequence[Task]) -> set[str]:
        """Watch the jobs of an earlier scheduler that still wait or run; the ids of their trials."""
        watched = {}
        for task in tasks:
            with suppress(CorruptRecordError):  # then its claim must say whether somebody has it
                job = self._directory(task).job()
                if job is not None and job["executor"] == self.executor.name:
                    watched[job["job"]] = _WatchedJob(task, job["token"])
        for number in self.executor.adopt(watched.keys()) if watched else ():
            self._running[number] = watched[number]
            self.progress.started(watched[number].task)
        return {running.task.trial_id for running in self._running.values()}

    def _result(self, directory: RunDirectory) -> dict[str, Any] | None:
        try:
            return directory.result()
        except CorruptRecordError as problem:
            aside = directory.set_aside_result().name
            self.progress.message(f"{problem}; set aside as {aside}, the trial runs again")
            return None

    def _start(self) -> None:
        """Give the executor what it can take, but nothing that another trial is about to spare it."""
        batch: list[Task] = []
        held: list[Task] = []
        self.trunks.look_around([*(running.task for running in self._running.values()), *self._foreign])
        while not self._stopping and self._waiting and len(batch) < self._free_slots():
            task = self._waiting.popleft()
            if self.trunks.waits(task):
                held.append(task)
                continue
            with self._sparing_the_others(task):
                if self._may_start(task):
                    batch.append(task)
                    self.trunks.sent(task)
        self._waiting.extendleft(reversed(held))
        if batch:
            self._submit(batch)

    def _may_start(self, task: Task) -> bool:
        """Whether nobody has done it, does it, or has given it up; else it is put where it belongs."""
        directory = self._directory(task)
        # In this order: an owner lets go of the trial only after its result is there.
        has_owner, result = self._has_owner(directory), self._result(directory)
        if result is not None:
            self._finish(task, result)
        elif (state := state_of(events := directory.events(), None)).state == "cancelled":
            self._call_off(task, events)
        elif state.state == "failed":
            self._give_up(task, str(state.cause))
        elif has_owner:
            self._foreign.append(task)
            self.trunks.sent(task)
        else:
            return True
        return False

    def _submit(self, tasks: Sequence[Task]) -> None:
        tokens = [secrets.token_hex(8) for _ in tasks]
        jobs = [
            job_of(task, self.runs_dir, token, self.nodes.bad)
            for task, token in zip(tasks, tokens, strict=True)
        ]
        # On record before the job exists: its worker may write "running" before submit() returns.
        for task, token in zip(tasks, tokens, strict=True):
            self._directory(task).append_event("queued", executor=self.executor.name, job=token)
        try:
            numbers = self.executor.submit(jobs)
        except BaseException:
            for task in tasks:
                self._directory(task).append_event("pending", cause="not submitted")
            raise
        for number, task, token in zip(numbers, tasks, tokens, strict=True):
            self._directory(task).write_job(self.executor.name, number, token)
            self._running[number] = _WatchedJob(task, token)
            self.progress.started(task)

    def _has_owner(self, directory: RunDirectory) -> bool:
        """Whether a live worker owns the trial; a claim that was seen dead is ended, so that one can."""
        attempt = newest_attempt(directory)
        if self.observer.is_alive(directory):
            return True
        if attempt:
            end_claim(directory, attempt, "seen dead by the scheduler")
        return False

    def _free_slots(self) -> int:
        """Return the free slots, less those that other schedulers' workers take on this machine."""
        return self.executor.free_slots - (0 if self._keeps_jobs else len(self._foreign))

    def _settle(self, running: _WatchedJob, ended: Ended) -> None:
        """Decide what follows the end of one attempt."""
        task, directory = running.task, self._directory(running.task)
        attempt = attempt_of(directory, running.token)
        # The lease need not run out where the job is known to be gone; NOT_OWNER says that another holds it.
        if attempt and ended.exit_code != WorkerExit.NOT_OWNER:
            end_claim(directory, attempt, "its job has ended")
        result = self._result(directory)
        events = directory.events()
        self.nodes.learn(task.trial_id, events)  # where trials succeed is known too
        if result is not None:
            self._finish(task, result)
        elif ended.exit_code == WorkerExit.NOT_OWNER:
            self._foreign.append(task)
        elif ended.exit_code == WorkerExit.NO_SPACE:
            self._outcome.no_space = True
            self._stop_requests = self._stop_requests or 1
        elif was_sent_again(events, running.token, attempt):
            self._follow(task)
        elif ended.cause == "cancelled" or was_called_off(events):
            self._call_off(task, events)
        elif not self._stopping:
            self._after_fault(running, events, ended)
        else:
            self.progress.interrupted(task)

    def _follow(self, task: Task) -> None:
        """Another scheduler has counted the fault and sent the trial again: watch its job, or its claim."""
        self.progress.interrupted(task)
        if self._stopping or task.trial_id not in self._adopt([task]):
            self._foreign.append(task)

    def _call_off(self, task: Task, events: Events) -> None:
        if state_of(events, None).state != "cancelled":
            self._directory(task).append_event("cancelled", cause="cancelled")
        self._outcome.cancelled[task.trial_id] = task.label
        self.trunks.settled(task)
        self.progress.ended(task, "cancelled", None)

    def _after_fault(self, running: _WatchedJob, events: Events, ended: Ended) -> None:
        task, directory = running.task, self._directory(running.task)
        state = state_of(events, None)
        if state.state == "failed":  # another scheduler watched the job too
            self._give_up(task, str(state.cause))
            return
        if state.state != "pending":  # the worker had no time to say anything
            if ended.cause == "not_started" and ended.message not in self._reasons_told:
                self._reasons_told.add(ended.message)
                self.progress.message(f"{task.label}: {ended.message}; it is sent again")
            step = newest_step(directory.checkpoints_path)
            directory.append_event("pending", step=step, job=running.token, **_as_event(ended))
            events = directory.events()
            self.nodes.learn(task.trial_id, events)
        decision = decide(events, task.trial.batch_sequences)
        if decision.again:
            options = replace(task.options, micro_batch=decision.micro_batch or task.options.micro_batch)
            self._waiting.appendleft(replace(task, options=options))
            self.progress.interrupted(task)
            return
        directory.append_event("failed", cause=decision.cause, reason=decision.reason)
        self._give_up(task, decision.reason)

    def _give_up(self, task: Task, reason: str) -> None:
        self._note_failure(task, reason)
        self.trunks.settled(task)
        self.progress.ended(task, "failed", None)

    def _note_failure(self, task: Task, reason: str) -> None:
        self._outcome.failed[task.trial_id] = failure_text(task.label, reason, self._directory(task))

    def _look_at_foreign(self) -> None:
        """Results of trials that others own; those whose owner has died are run here."""
        if not self._foreign or time.monotonic() - self._looked_at_foreign < FOREIGN_POLL_S:
            return
        self._looked_at_foreign = time.monotonic()
        foreign, self._foreign = self._foreign, []
        for task in foreign:
            directory = self._directory(task)
            with self._sparing_the_others(task):
                result = self._result(directory)
                if result is not None:
                    self._finish(task, result)
                elif self.observer.is_alive(directory):
                    self._foreign.append(task)
                else:
                    self._waiting.appendleft(task)

    def _look_for_cancellations(self) -> None:
        """Another process may cancel a trial whose job only this one can reach; each is asked to end once."""
        now = time.monotonic()
        if self._keeps_jobs or now - self._looked_for_cancellations < CANCEL_POLL_S:
            return
        self._looked_for_cancellations = now
        called_off = {
            number
            for number, running in self._running.items()
            if number not in self._asked_to_end and self._is_called_off(running.task)
        }
        self._asked_to_end |= called_off
        self.executor.cancel(called_off)

    def _is_called_off(self, task: Task) -> bool:
        with suppress(CorruptRecordError):  # reported when it has ended
            return was_called_off(self._directory(task).events())
        return False

    def _finish(self, task: Task, result: dict[str, Any]) -> None:
        prune_finished(self._directory(task).checkpoints_path, result)
        self.trunks.settled(task)
        self.progress.ended(task, result["status"], result.get("loss_validation"))

    def _directory(self, task: Task) -> RunDirectory:
        return RunDirectory.of(self.runs_dir, task.trial_id)


def _as_event(ended: Ended) -> dict[str, Any]:
    """Return what the executor knows of an end, as fields of an event."""
    cause = ended.cause or ("error" if (ended.exit_code or 0) > 0 else "killed")
    fields = {"cause": cause, "exit_code": ended.exit_code, "node": ended.node, "note": ended.message or None}
    return {name: value for name, value in fields.items() if value is not None}


def _distinct(tasks: Iterable[Task]) -> list[Task]:
    """Each trial once; arms that are identical by construction share theirs."""
    return list({task.trial_id: task for task in tasks}.values())


def _turn(task: Task) -> tuple[float, int, float]:
    """Arms take turns among trials of like length: what a machine does meanwhile strikes both of a pair.

    Of a seed the longest still goes first: it trains the trunk that others branch off.
    """
    return -float(f"{task.estimate_s:.2g}"), task.trial.seed, -task.estimate_s
