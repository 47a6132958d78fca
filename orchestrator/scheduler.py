"""The scheduler: hands missing trials to an executor and reads from run directories what became of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from model.identity import semantic_fields
from orchestrator.executors.base import Ended, Executor
from orchestrator.jobs import Job, Task, WorkerExit, worker_command
from orchestrator.policy import decide
from orchestrator.progress import Progress
from results.claims import ClaimObserver, end_claim, newest_attempt
from results.files import CorruptRecord
from results.run_directory import RunDirectory

POLL_S = 0.2


@dataclass
class Outcome:
    """What a run left undone: the trials given up, and why it ended early if it did."""

    failed: dict[str, str] = field(default_factory=dict)
    """Trial id -> reason."""
    stopped: bool = False
    no_space: bool = False


class Scheduler:
    """Runs tasks on an executor until each has a result or is given up; safe to stop at any moment."""

    def __init__(self, runs_dir: Path, executor: Executor, progress: Progress) -> None:
        self.runs_dir, self.executor, self.progress = runs_dir, executor, progress
        self.observer = ClaimObserver()
        self._running: dict[str, Task] = {}
        self._foreign: list[Task] = []
        self._waiting: list[Task] = []
        self._outcome = Outcome()
        self._stop_requests = self._stops_passed_on = 0

    def request_stop(self) -> None:
        """Start nothing more and let the workers checkpoint; a second request ends them at once.

        Safe in a signal handler: the loop acts on it.
        """
        self._stop_requests += 1

    @property
    def _stopping(self) -> bool:
        return self._stop_requests > 0

    def run(self, tasks: Sequence[Task]) -> Outcome:
        """Run what is missing of ``tasks``, the longest first."""
        self._outcome = Outcome()
        missing = [task for task in _distinct(tasks) if not self._is_settled(task)]
        self._waiting = sorted(missing, key=lambda task: -task.estimate_s)
        self.progress.begin(self._waiting, self.executor.name)
        try:
            self._work()
        except BaseException:
            self.executor.stop()  # nobody would look after the workers: let them checkpoint and end
            raise
        self._outcome.stopped = self._stopping
        return self._outcome

    def _work(self) -> None:
        while self._running or (not self._stopping and (self._waiting or self._foreign)):
            self._start()
            self._pass_on_stops()
            for ended in self.executor.wait(POLL_S):
                self._settle(self._running.pop(ended.number), ended)
            self._look_at_foreign()
            self.progress.tick()

    def _pass_on_stops(self) -> None:
        if self._stop_requests > self._stops_passed_on:
            self._stops_passed_on = self._stop_requests
            self.executor.stop(hard=self._stop_requests > 1)

    def _is_settled(self, task: Task) -> bool:
        """Whether ``task`` needs nothing more; makes its run directory if it has none."""
        directory = self._directory(task)
        directory.create(semantic_fields(task.trial), task.descriptive)
        result = self._result(directory)
        if result is not None:
            return True
        state = directory.state()
        if state.state == "failed":
            reason = f"{state.cause}; see {directory.log_path}"
            self._outcome.failed[task.trial_id] = f"{task.label}: {reason}"
            return True
        return False

    def _result(self, directory: RunDirectory) -> dict[str, Any] | None:
        try:
            return directory.result()
        except CorruptRecord as problem:
            aside = directory.set_aside_result()
            self.progress.message(f"{problem}; set aside as {aside.name}, the trial runs again")
            return None

    def _start(self) -> None:
        """Fill the free slots; a trial that another live worker owns is watched instead."""
        while not self._stopping and self._waiting and self._free_slots() > 0:
            task = self._waiting.pop(0)
            directory = self._directory(task)
            if self._has_owner(directory):
                self._foreign.append(task)
                continue
            command = worker_command(self.runs_dir, task.trial_id, task.options)
            directory.append_event("queued", executor=self.executor.name)
            number = self.executor.submit(Job(task.trial_id, command, directory.log_path))
            self._running[number] = task
            self.progress.started(task)

    def _has_owner(self, directory: RunDirectory) -> bool:
        """Whether a live worker owns the trial; a claim that was found dead is ended, so that one can."""
        attempt = newest_attempt(directory)
        if self.observer.is_alive(directory):
            return True
        if attempt:
            end_claim(directory, attempt, "found dead by the scheduler")
        return False

    def _free_slots(self) -> int:
        return self.executor.free_slots - len(self._foreign)

    def _settle(self, task: Task, ended: Ended) -> None:
        """Decide what follows the end of one attempt."""
        directory = self._directory(task)
        result = self._result(directory)
        if result is not None:
            self._finish(task, result)
        elif ended.exit_code == WorkerExit.NOT_OWNER:
            self._foreign.append(task)
        elif ended.exit_code == WorkerExit.NO_SPACE:
            self._outcome.no_space = True
            self._stop_requests = self._stop_requests or 1
        elif not self._stopping:
            self._after_fault(task, directory, ended.exit_code)
        else:
            self.progress.interrupted(task)

    def _after_fault(self, task: Task, directory: RunDirectory, exit_code: int | None) -> None:
        if directory.state().state != "pending":  # the worker had no time to say anything
            cause = "error" if exit_code is not None and exit_code > 0 else "killed"
            directory.append_event("pending", cause=cause, exit_code=exit_code)
        decision = decide(directory.events(), task.trial.batch_sequences)
        if decision.again:
            options = replace(task.options, micro_batch=decision.micro_batch or task.options.micro_batch)
            self._waiting.insert(0, replace(task, options=options))
            self.progress.interrupted(task)
            return
        directory.append_event("failed", cause=decision.cause, reason=decision.reason)
        self._outcome.failed[task.trial_id] = f"{task.label}: {decision.reason}; see {directory.log_path}"
        self.progress.ended(task, "failed", None)

    def _look_at_foreign(self) -> None:
        """Results of trials that others own; those whose owner has died are run here."""
        for task in list(self._foreign):
            directory = self._directory(task)
            result = self._result(directory)
            if result is not None:
                self._foreign.remove(task)
                self._finish(task, result)
            elif not self.observer.is_alive(directory):
                self._foreign.remove(task)
                self._waiting.insert(0, task)

    def _finish(self, task: Task, result: dict[str, Any]) -> None:
        self.progress.ended(task, result["status"], result.get("loss_validation"))

    def _directory(self, task: Task) -> RunDirectory:
        return RunDirectory.of(self.runs_dir, task.trial_id)


def _distinct(tasks: Iterable[Task]) -> list[Task]:
    """Each trial once; arms that are identical by construction share theirs."""
    return list({task.trial_id: task for task in tasks}.values())
