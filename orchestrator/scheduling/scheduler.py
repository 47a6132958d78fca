"""The scheduler: hands missing trials to an executor and reads from run directories what became of them."""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scalevec.model.train import newest_step
from scalevec.orchestrator.attempts import retry_policy
from scalevec.orchestrator.attempts.jobs import Task, WorkerExit
from scalevec.orchestrator.attempts.kept_files import prune_trained
from scalevec.orchestrator.errors import MissingRequirementError, TryLaterError
from scalevec.orchestrator.executors.base import Ended, Executor
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.scheduling import watched_jobs
from scalevec.orchestrator.scheduling.trunk_book import REMOTE_LOOK_S, TrunkBook
from scalevec.orchestrator.scheduling.watched_jobs import WatchedJob, launch_order
from scalevec.results.claims import ClaimObserver, end_claim, newest_attempt
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory, state_of

POLL_S, ELSEWHERE_POLL_S = 0.2, 1.0
CANCEL_POLL_S = 3.0
QUEUE_CANCEL_POLL_S = 30.0
"""Where ``cancel`` itself reaches the jobs: this one finds those that were sent in that very moment."""
MOST_CORRUPT = 3
"""Results of one trial that may be found unreadable, each after the other, before it is given up."""


class Scheduler:
    """Runs tasks on an executor until each has a result or is given up; safe to stop at any moment."""

    def __init__(
        self,
        runs_dir: Path,
        executor: Executor,
        progress: Progress,
        may_send: Callable[[], bool] = lambda: True,
        private_dir: str | None = None,
    ) -> None:
        """``may_send`` is asked before each submission: False once the sweep is cancelled."""
        self.runs_dir, self.executor, self.progress = runs_dir, executor, progress
        self.may_send = may_send
        self.observer, self.nodes = ClaimObserver(), retry_policy.NodeWatch()
        registered = EXECUTORS[executor.name]
        self._keeps_jobs = registered.keeps_jobs
        self.trunks = TrunkBook(runs_dir, REMOTE_LOOK_S if registered.sends_away else 0.0)
        self.jobs = watched_jobs.WatchedJobs(runs_dir, executor, private_dir)
        self.backoff, self._outcome = watched_jobs.Backoff(progress.message), watched_jobs.Outcome()
        self._settled: set[str] = set()
        self._owned_elsewhere: list[Task] = []
        """Trials that a worker of another scheduler owns."""
        self._waiting: deque[Task] = deque()
        self._reasons_told: set[str] = set()
        self._stop_requests = self._stops_passed_on = 0
        self._looked_elsewhere = self._looked_for_cancellations = time.monotonic()

    def request_stop(self) -> None:
        """Start nothing more and let workers checkpoint; twice: end them. For signal handlers too."""
        self._stop_requests += 1

    @property
    def _stopping(self) -> bool:
        return self._stop_requests > 0

    def run(self, tasks: Sequence[Task]) -> watched_jobs.Outcome:
        """Run what is missing of ``tasks``, the longest first, those of like length seed by seed."""
        self._outcome, self._settled = watched_jobs.Outcome(), set()
        # Each trial once: arms that are identical by construction share theirs.
        tasks = list({task.trial_id: task for task in tasks}.values())
        missing = self.trunks.begin(tasks, [task for task in tasks if self._begin(task)])
        self.progress.begin(missing, self.executor.name)
        adopted = {task.trial_id for task in self._adopt(missing)}
        self._waiting = deque(sorted((t for t in missing if t.trial_id not in adopted), key=launch_order))
        try:
            self._work()
        except BaseException:
            if not self._keeps_jobs:
                self.executor.stop()  # nobody would look after the workers: let them checkpoint and end
            raise
        self._outcome.stopped = self._stopping
        self._outcome.left_running = len(self.jobs.running)
        return self._outcome

    def _work(self) -> None:
        while self.jobs.running or (not self._stopping and (self._waiting or self._owned_elsewhere)):
            self._start()
            self._pass_on_stops()
            if self._stopping and self._keeps_jobs:
                return
            for ended in self.executor.wait(POLL_S):
                job = self.jobs.ended(ended.number)
                with self._isolated(job.task):
                    self._settle(job, ended)
            self._report_notices()
            self._look_elsewhere()
            self._look_for_cancellations()
            self.progress.tick()

    def _report_notices(self) -> None:
        for number, note in self.executor.notices():
            job = self.jobs.running.get(number or "")
            self.progress.message(f"{job.task.label}: {note}" if job else note)

    def _pass_on_stops(self) -> None:
        if self._stop_requests == self._stops_passed_on:
            return
        hard, self._stops_passed_on = self._stop_requests > 1, self._stop_requests
        self.progress.stopping(keeps_jobs=self._keeps_jobs, hard=hard)
        if not self._keeps_jobs:
            self.executor.stop(hard=hard)

    @contextmanager
    def _isolated(self, task: Task) -> Iterator[None]:
        """A trial whose records nobody can read counts as failed, and the sweep goes on without it."""
        try:
            yield
        except CorruptRecordError as problem:
            self._give_up(task, retry_policy.unreadable(self._directory(task), problem))

    def _begin(self, task: Task) -> bool:
        """Make the run directory; whether the trial is to be run: not done, not failed, readable."""
        directory = self._directory(task)
        try:
            directory.create(task.trial.semantic_fields(), task.descriptive)
            if (result := self._result(directory)) is not None:
                prune_trained(directory, result)
                return False
            events = directory.events()
        except CorruptRecordError as problem:
            self._note_failure(task, retry_policy.unreadable(directory, problem))
            self.progress.message(self._outcome.failed[task.trial_id])
            return False
        self.nodes.learn(task.trial_id, events)
        state = state_of(events, None)
        if state.state == "failed":
            self._note_failure(task, str(state.cause))
        return state.state != "failed"

    def _adopt(self, tasks: Sequence[Task]) -> list[Task]:
        """Watch the jobs of ``tasks`` that wait or run, whoever sent them; the trials that have one."""
        before = {task.trial_id for task in self.jobs.tasks()}
        adopted = self.jobs.adopt(tasks)
        for task in adopted:
            if task.trial_id not in before:
                self.progress.started(task)
        return adopted

    def _result(self, directory: RunDirectory) -> dict[str, Any] | None:
        try:
            return directory.result()
        except CorruptRecordError as problem:
            aside = directory.set_aside_result().name
            causes = [event.get("cause") for event in retry_policy.since_retry(directory.events())]
            if causes.count("corrupt_result") >= MOST_CORRUPT:  # no disk does that: its worker writes so
                raise
            self.progress.message(f"{problem}; set aside as {aside}, the trial runs again")
            return None

    def _start(self) -> None:
        """Give the executor what it can take, but nothing that another trial is about to spare it."""
        if self._stopping or not self._waiting or self.backoff.left_s:
            return
        if not self.may_send():
            self._call_off_all()
            return
        batch, held = list[Task](), list[Task]()
        self.trunks.look_around([*self.jobs.tasks(), *self._owned_elsewhere])
        free = self.executor.free_slots  # once: it may count thousands of running trials
        while self._waiting and len(batch) < free - self._slots_of_others():
            task = self._waiting.popleft()
            if self.trunks.waits(task):
                held.append(task)
                continue
            with self._isolated(task):
                if (ready := self._ready(task)) is not None:
                    batch.append(ready)
                    self.trunks.sent(ready)
        self._waiting.extendleft(reversed(held))
        try:
            with_jobs = {task.trial_id for task in self._adopt(batch)}
        except TryLaterError as refusal:
            self._send_later(batch, refusal)
            return
        if without := [task for task in batch if task.trial_id not in with_jobs]:
            self._submit(without)

    def _send_later(self, tasks: Sequence[Task], refusal: TryLaterError) -> None:
        self._waiting.extendleft(reversed(tasks))
        self.backoff.failed(str(refusal))

    def _ready(self, task: Task) -> Task | None:
        """Return the task as it is to be sent; None for one that is done, run or given up: it goes there."""
        directory = self._directory(task)
        directory.require_no_links()
        # In this order: an owner lets go of the trial only after its result is there.
        has_owner, result = self._has_owner(directory), self._result(directory)
        events = directory.events()
        if result is not None:
            self._finish(task, result)
        elif (state := state_of(events, None)).state == "failed":
            self._give_up(task, str(state.cause))
        elif has_owner:
            self._owned_elsewhere.append(task)
            self.trunks.sent(task)
        elif retry_policy.was_called_off(events):
            self._call_off(task, events)
        else:
            return retry_policy.with_what_fits(task, events)
        return None

    def _submit(self, tasks: Sequence[Task]) -> None:
        refusal = self.jobs.send(tasks, self.nodes.bad)
        for task in tasks:
            if self.jobs.of(task):
                self.progress.started(task)
        if refusal:
            self._send_later([task for task in tasks if not self.jobs.of(task)], refusal)
        else:
            self.backoff.reset()

    def _has_owner(self, directory: RunDirectory) -> bool:
        """Whether a live worker owns the trial; a claim that was seen dead is ended, so that one can."""
        attempt = newest_attempt(directory)
        if self.observer.is_alive(directory):
            return True
        if attempt:
            end_claim(directory, attempt, "seen dead by the scheduler")
        return False

    def _slots_of_others(self) -> int:
        """Slots that other schedulers' workers take on this machine."""
        return 0 if self._keeps_jobs else len(self._owned_elsewhere)

    def _settle(self, job: WatchedJob, ended: Ended) -> None:
        """Decide what follows the end of one attempt."""
        task, directory = job.task, self._directory(job.task)
        attempt = retry_policy.attempt_of(directory, job.token)
        # The lease need not run out where the job is known to be gone; NOT_OWNER says that another holds it.
        if attempt and ended.exit_code != WorkerExit.NOT_OWNER:
            end_claim(directory, attempt, "its job has ended")
        self.jobs.learn(job, attempt)
        result = self._result(directory)
        events = directory.events()
        self.nodes.learn(task.trial_id, events)  # where trials succeed is known too
        was_ended_by_hand = retry_policy.was_ended_by_hand(events, job.token, ended.cause)
        if task.trial_id in self._settled:
            return
        if result is not None:
            self._finish(task, result)
        elif others := self.jobs.of(task):
            # What becomes of the trial is for the other job to say.
            self.progress.message(f"{task.label}: one of {len(others) + 1} jobs of this trial has ended")
        elif ended.exit_code == WorkerExit.NOT_OWNER:
            self._owned_elsewhere.append(task)
        elif ended.exit_code == WorkerExit.NO_SPACE:
            self._outcome.no_space = True
            self._stop_requests = self._stop_requests or 1
        elif retry_policy.was_sent_again(events, job.token, attempt):
            self._follow(task)
        elif retry_policy.was_called_off(events) or was_ended_by_hand:
            self._call_off(task, events)
        elif self._stopping:
            self.progress.interrupted(task)
        else:
            self._after_fault(job, *self.jobs.judged(job, events, ended, has_begun=attempt > 0))

    def _follow(self, task: Task) -> None:
        """Another scheduler has counted the fault and sent the trial again: watch its job, or its claim."""
        self.progress.interrupted(task)
        with suppress(TryLaterError):
            if not self._stopping and self._adopt([task]):
                return
        self._owned_elsewhere.append(task)

    def _call_off(self, task: Task, events: watched_jobs.Events) -> None:
        if state_of(events, None).state != "cancelled":
            self._directory(task).append_event("cancelled", cause="cancelled")
        self._outcome.cancelled[task.trial_id] = task.label
        self._over(task)
        self.progress.ended(task, "cancelled")

    def _call_off_all(self) -> None:
        """The sweep was cancelled: what waits to be sent is not sent, by whomever it is wanted too."""
        while self._waiting:
            task = self._waiting.popleft()
            self._outcome.cancelled[task.trial_id] = task.label
            self.progress.ended(task, "cancelled")

    def _over(self, task: Task) -> None:
        """The trial is settled: further jobs of it have nothing to do any more."""
        self._settled.add(task.trial_id)
        self.trunks.settled(task)
        self._ask_to_end(self.jobs.of(task))

    def _after_fault(self, job: WatchedJob, events: watched_jobs.Events, ended: Ended) -> None:
        task, directory = job.task, self._directory(job.task)
        state = state_of(events, None)
        if state.state == "failed":  # another scheduler watched the job too
            self._give_up(task, str(state.cause))
            return
        if state.state != "pending":  # the worker had no time to say anything
            step = newest_step(directory.checkpoints_path)
            directory.append_event("pending", step=step, job=job.token, **watched_jobs.as_event(ended))
            events = directory.events()
            self.nodes.learn(task.trial_id, events)
        decision = retry_policy.decide(events, task.trial.batch_sequences)
        if decision.again:
            self._tell_interruption(task, events, ended)
            self._waiting.appendleft(task)
            self.progress.interrupted(task)
            return
        directory.append_event("failed", cause=decision.cause, reason=decision.reason)
        self._give_up(task, decision.reason)

    def _tell_interruption(self, task: Task, events: watched_jobs.Events, ended: Ended) -> None:
        what = watched_jobs.interruption_text(events, ended)
        if ended.cause == "not_started":
            self._tell_once(f"{task.label}: {what}", what)
        else:
            self.progress.message(f"{task.label}: {what}")

    def _give_up(self, task: Task, reason: str) -> None:
        self._note_failure(task, reason)
        self._over(task)
        self.progress.ended(task, "failed")

    def _note_failure(self, task: Task, reason: str) -> None:
        text = retry_policy.failure_text(task.label, reason, self._directory(task))
        self._outcome.failed[task.trial_id] = text

    def _look_elsewhere(self) -> None:
        """Results of trials that others own; those whose owner has died are run here."""
        if not self._owned_elsewhere or time.monotonic() - self._looked_elsewhere < ELSEWHERE_POLL_S:
            return
        self._looked_elsewhere = time.monotonic()
        elsewhere, self._owned_elsewhere = self._owned_elsewhere, []
        for task in elsewhere:
            directory = self._directory(task)
            with self._isolated(task):
                result = self._result(directory)
                if result is not None:
                    self._finish(task, result)
                elif self.observer.is_alive(directory):
                    self._owned_elsewhere.append(task)
                else:
                    self._waiting.appendleft(task)

    def _look_for_cancellations(self) -> None:
        """Another process may cancel a trial whose job it cannot reach; each is asked to end once."""
        now = time.monotonic()
        every_s = QUEUE_CANCEL_POLL_S if self._keeps_jobs else CANCEL_POLL_S
        if now - self._looked_for_cancellations >= every_s:
            self._looked_for_cancellations = now
            self._ask_to_end(self.jobs.called_off())

    def _ask_to_end(self, numbers: Collection[str]) -> None:
        try:
            self.jobs.ask_to_end(numbers)
        except MissingRequirementError as problem:  # the next look asks again
            self._tell_once(str(problem))

    def _tell_once(self, text: str, reason: str = "") -> None:
        if (reason or text) not in self._reasons_told:
            self._reasons_told.add(reason or text)
            self.progress.message(text)

    def _finish(self, task: Task, result: dict[str, Any]) -> None:
        prune_trained(self._directory(task), result)
        self._over(task)
        self.progress.ended(task, result["status"], result)

    def _directory(self, task: Task) -> RunDirectory:
        return RunDirectory.of(self.runs_dir, task.trial_id)
