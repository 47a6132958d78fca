"""One call of an executor's ``submit``, on record before and after it; how long to wait after a refusal."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalevec.orchestrator.attempts.jobs import Task, job_of
from scalevec.orchestrator.errors import TryLaterError
from scalevec.orchestrator.executors.base import Executor
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.private import private_folder, who_may_change
from scalevec.orchestrator.scheduling.watched_jobs import WatchedJob
from scalevec.orchestrator.worker.preflight import versions_to_send
from scalevec.orchestrator.worker.trainers.kept_source import keep_source
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import ForeignTrial


@dataclass(frozen=True)
class Sending:
    """What was taken, by its number, and what was not because of a refusal that passes."""

    sent: dict[str, WatchedJob]
    left: list[Task]
    refusal: TryLaterError | None = None


def send(
    tasks: Sequence[Task],
    runs_dir: Path,
    executor: Executor,
    avoid: tuple[str, ...],
    private_dir: str | None = None,
) -> Sending:
    """Submit ``tasks``, away from the nodes ``avoid``. Raises what ``Executor.submit`` raises for good."""
    sends_away = EXECUTORS[executor.name].sends_away
    _keep_sources(tasks, runs_dir, private_dir, sends_away=sends_away)
    by_token = {secrets.token_hex(8): task for task in tasks}
    jobs = [job_of(task, runs_dir, token, avoid) for token, task in by_token.items()]
    # Once for each interpreter: to ask for versions for each of thousands of trials takes seconds.
    interpreters = {task.interpreter for task in tasks} if sends_away else set()
    known = {each: {"versions": versions_to_send(each)} for each in interpreters}
    # On record before the job exists: its worker may write "running" before submit() returns.
    for token, task in by_token.items():
        more: dict[str, Any] = known.get(task.interpreter, {})
        _directory(runs_dir, task).append_event("queued", executor=executor.name, job=token, **more)
    numbers: dict[str, str] = {}
    refusal = None
    try:
        numbers = dict(zip(by_token, executor.submit(jobs), strict=True))
    except TryLaterError as problem:
        numbers, refusal = problem.sent, problem
        _say_not_submitted([task for token, task in by_token.items() if token not in numbers], runs_dir)
    except BaseException:
        _say_not_submitted(tasks, runs_dir)
        raise
    if not EXECUTORS[executor.name].keeps_jobs:  # one that does has kept each array before the next was sent
        for token, number in numbers.items():
            _directory(runs_dir, by_token[token]).write_job(executor.name, number, token)
    sent = {number: WatchedJob(by_token[token], token) for token, number in numbers.items()}
    return Sending(sent, [task for token, task in by_token.items() if token not in numbers], refusal)


def _keep_sources(
    tasks: Sequence[Task], runs_dir: Path, private_dir: str | None, *, sends_away: bool
) -> None:
    """Keep what a foreign trainer's tasks need to start: they may wait for days while somebody edits it."""
    for task in tasks:
        if isinstance(task.trial, ForeignTrial) and task.protocol is not None:
            folder = Path(task.protocol.folder)
            if sends_away or who_may_change(folder):
                keep_source(runs_dir, private_folder(private_dir, runs_dir), task.trial.trainer, folder)


def _say_not_submitted(tasks: Sequence[Task], runs_dir: Path) -> None:
    for task in tasks:
        _directory(runs_dir, task).append_event("pending", cause="not submitted")


def _directory(runs_dir: Path, task: Task) -> RunDirectory:
    return RunDirectory.of(runs_dir, task.trial_id)


FIRST_S, LONGEST_S = 5.0, 300.0


@dataclass
class Backoff:
    """Longer after each refusal, from the start again after a success; each new reason is said once."""

    say: Callable[[str], None]
    first_s: float = FIRST_S
    longest_s: float = LONGEST_S
    _wait_s: float = 0.0
    _until: float = 0.0
    _reason: str = ""

    @property
    def left_s(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._until - time.monotonic())

    def failed(self, reason: str) -> None:
        """Wait from now on, twice as long as after the refusal before."""
        self._wait_s = min(self.longest_s, 2 * self._wait_s or self.first_s)
        self._until = time.monotonic() + self._wait_s
        if reason != self._reason:
            self.say(f"{reason}; tried again in {self._wait_s:.0f} s, then at longer intervals")
        self._reason = reason

    def reset(self) -> None:
        """Say that what was refused goes on."""
        if self._reason:
            self.say("accepted again; the sweep goes on")
        self._wait_s, self._until, self._reason = 0.0, 0.0, ""
