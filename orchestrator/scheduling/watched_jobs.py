"""The jobs that a scheduler sends and watches: those of its trials not known to have ended."""

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scalevec.orchestrator.attempts.jobs import Task, WorkerExit, job_of
from scalevec.orchestrator.attempts.retry_policy import attempt_of, is_fault, was_called_off
from scalevec.orchestrator.errors import MissingRequirementError, TryLaterError, read_or_else
from scalevec.orchestrator.executors.base import Ended, Executor
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.private import private_folder, who_may_change
from scalevec.orchestrator.worker.preflight import versions_to_send
from scalevec.orchestrator.worker.trainers.kept_source import keep_source
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import ForeignTrial

Events = list[dict[str, Any]]


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


def as_event(ended: Ended) -> dict[str, Any]:
    """Return what the executor knows of an end, as fields of an event."""
    cause = ended.cause or ("error" if (ended.exit_code or 0) > 0 else "killed")
    fields = {"cause": cause, "exit_code": ended.exit_code, "node": ended.node, "note": ended.message or None}
    return {name: value for name, value in fields.items() if value is not None}


def launch_order(task: Task) -> tuple[float, int, float]:
    """Arms take turns among trials of like length: what a machine does meanwhile strikes both of a pair.

    Of a seed the longest still goes first: it trains the trunk that others branch off.
    """
    return -float(f"{task.estimate_s:.2g}"), task.trial.seed, -task.estimate_s


def interruption_text(events: Events, ended: Ended) -> str:
    """Return what interrupted a trial that is sent again, for a person."""
    if ended.cause == "not_started":
        return f"{ended.message}; it is sent again"
    cause = next((str(event["cause"]) for event in reversed(events) if is_fault(event)), "interrupted")
    return f"{cause.replace('_', ' ')}{f' on {ended.node}' if ended.node else ''}; it is sent again"


@dataclass(frozen=True)
class WatchedJob:
    """A job that this scheduler watches; ``token`` is what its worker writes into its claim."""

    task: Task
    token: str


class WatchedJobs:
    """By their numbers. A trial may have several jobs: one that was sent while another could not be seen."""

    def __init__(self, runs_dir: Path, executor: Executor, private_dir: str | None = None) -> None:
        self.runs_dir, self.executor, self._private_dir = runs_dir, executor, private_dir
        self._kind = EXECUTORS[executor.name]
        self.running: dict[str, WatchedJob] = {}
        self._of_trial: defaultdict[str, set[str]] = defaultdict(set)
        self._gone: set[str] = set()
        """Of which the executor said that they neither wait nor run."""
        self._asked_to_end: set[str] = set()
        self._looks: dict[str, tuple[int, bool]] = {}
        """By trial: the size of its events when they were read, and whether they call it off."""
        self._good_rungs: set[str] = set()
        """Those of which a trial has begun on a machine."""

    def watch(self, jobs: Mapping[str, WatchedJob]) -> None:
        """The executor has these jobs."""
        for number, job in jobs.items():
            self.running[number] = job
            self._of_trial[job.task.trial_id].add(number)

    def send(self, tasks: Sequence[Task], avoid: tuple[str, ...]) -> TryLaterError | None:
        """Submit ``tasks``, away from the nodes ``avoid``, and watch what was taken.

        Each is on record before and after it. Returns a refusal that passes, raises what ``Executor.submit``
        raises for good.
        """
        self._keep_sources(tasks)
        by_token = {secrets.token_hex(8): task for task in tasks}
        jobs = [job_of(task, self.runs_dir, token, avoid) for token, task in by_token.items()]
        # Once for each interpreter: to ask for versions for each of thousands of trials takes seconds.
        interpreters = {task.interpreter for task in tasks} if self._kind.sends_away else set()
        known = {each: {"versions": versions_to_send(each)} for each in interpreters}
        # On record before the job exists: its worker may write "running" before submit() returns.
        for token, task in by_token.items():
            more: dict[str, Any] = known.get(task.interpreter, {})
            directory = self._directory(task)
            directory.append_event("queued", executor=self.executor.name, job=token, **more)
        numbers: dict[str, str] = {}
        refusal = None
        try:
            numbers = dict(zip(by_token, self.executor.submit(jobs), strict=True))
        except TryLaterError as problem:
            numbers, refusal = problem.sent, problem
        finally:
            for token in by_token.keys() - numbers.keys():
                self._directory(by_token[token]).append_event("pending", cause="not submitted")
        if not self._kind.keeps_jobs:  # one that does has kept each array before the next was sent
            for token, number in numbers.items():
                self._directory(by_token[token]).write_job(self.executor.name, number, token)
        self.watch({number: WatchedJob(by_token[token], token) for token, number in numbers.items()})
        return refusal

    def _keep_sources(self, tasks: Sequence[Task]) -> None:
        """Keep what a foreign trainer's tasks need to start: somebody may edit it while they wait."""
        for task in tasks:
            if isinstance(task.trial, ForeignTrial) and task.protocol is not None:
                folder = Path(task.protocol.folder)
                if self._kind.sends_away or who_may_change(folder):
                    private = private_folder(self._private_dir, self.runs_dir)
                    keep_source(self.runs_dir, private, task.trial.trainer, folder)

    def adopt(self, tasks: Sequence[Task]) -> list[Task]:
        """Watch the jobs of ``tasks`` that wait or run, whatever the trial's state; the trials that have any.

        One question to the executor for all of them, none where no job is open. Raises
        ``MissingRequirementError`` where it does not answer.
        """
        by_number = {number: job for task in tasks for number, job in self._open(task).items()}
        asked = by_number.keys() - self.running.keys() - self._gone
        alive = self.executor.adopt(asked) if asked else set()
        self._gone |= asked - alive
        self.watch({number: by_number[number] for number in alive})
        if alive != asked:  # to ask for a job may bring to light under which number it exists
            return self.adopt(tasks)
        return [task for task in tasks if self.of(task)]

    def _open(self, task: Task) -> dict[str, WatchedJob]:
        # Where they are damaged, its claim must say whether somebody has it.
        jobs: list[dict[str, Any]] = read_or_else(self._directory(task).open_jobs, [])
        return {
            job["job"]: WatchedJob(task, job["token"])
            for job in jobs
            if job["executor"] == self.executor.name
        }

    def of(self, task: Task) -> set[str]:
        """The numbers of a trial's jobs that are watched."""
        return set(self._of_trial[task.trial_id])

    def ended(self, number: str) -> WatchedJob:
        """A job is over; what it was."""
        self._asked_to_end.discard(number)
        job = self.running.pop(number)
        self._of_trial[job.task.trial_id].discard(number)
        with suppress(CorruptRecordError):  # told of the trial when its events are read
            self._directory(job.task).end_job(number)
        return job

    def tasks(self) -> list[Task]:
        """The trials that have a job."""
        return [job.task for job in self.running.values()]

    def called_off(self) -> set[str]:
        """The jobs of trials that somebody has called off; events are read where they have grown."""
        return {number for number, job in self.running.items() if self._is_called_off(job.task)}

    def _is_called_off(self, task: Task) -> bool:
        directory = self._directory(task)
        with suppress(CorruptRecordError, OSError):  # reported when it has ended
            size = directory.events_path.stat().st_size
            if self._looks.get(task.trial_id, (None,))[0] != size:
                self._looks[task.trial_id] = (size, was_called_off(directory.events()))
            return self._looks[task.trial_id][1]
        return False

    def ask_to_end(self, numbers: Collection[str]) -> None:
        """Ask each of these jobs once to write a checkpoint and end."""
        asked = set(numbers) - self._asked_to_end
        if asked:
            self.executor.cancel(asked)
            self._asked_to_end |= asked

    def learn(self, job: WatchedJob, attempt: int) -> None:
        """Take in that ``job`` has ended; ``attempt`` numbers its claim of the trial, 0 without one."""
        if attempt:
            self._good_rungs.add(job.task.rung)

    def judged(
        self, job: WatchedJob, events: Events, ended: Ended, *, has_begun: bool
    ) -> tuple[Events, Ended]:
        """Return events and end of ``job``, by the fault of one machine where others are ready for its rung.

        Args:
            job: It has ended without a result.
            events: Those of its trial.
            ended: What its executor says.
            has_begun: Whether it claimed its trial.

        Raises:
            MissingRequirementError: Its machine was not ready, and no trial of its rung has begun on another:
                what has not begun leaves the queue.
        """
        task, directory = job.task, self._directory(job.task)
        if has_begun or not _is_of_the_machine(ended):
            return events, ended
        lack = _what_is_lacking(events, job.token, ended) or directory.last_log_line()
        waiting = {number: other for number, other in self.running.items() if not self._has_begun(other)}
        begun = {other.task.rung for number, other in self.running.items() if number not in waiting}
        if task.rung in begun | self._good_rungs:
            ended = replace(ended, cause="node_failure", message=lack)
            directory.append_event("pending", job=job.token, **as_event(ended))
            return directory.events(), ended
        for unsent in (job, *waiting.values()):
            with suppress(CorruptRecordError):  # told when the trial is to be run
                note = f"the machine of a trial of {task.rung} was not ready"
                self._directory(unsent.task).append_event(
                    "pending", cause="not_started", job=unsent.token, note=note
                )
        with suppress(MissingRequirementError):  # they find the same when they start
            self.executor.cancel(waiting.keys())
        where = f" {ended.node}" if ended.node else ""
        raise MissingRequirementError(
            f"the machine{where} lacks what trials of {task.rung} need; nothing more is sent:\n{lack}"
        )

    def _has_begun(self, job: WatchedJob) -> bool:
        with suppress(CorruptRecordError, FileNotFoundError):
            return attempt_of(self._directory(job.task), job.token) > 0
        return False

    def _directory(self, task: Task) -> RunDirectory:
        return RunDirectory.of(self.runs_dir, task.trial_id)


def _is_of_the_machine(ended: Ended) -> bool:
    """Whether a job that claimed no trial ended as no worker does that could have: it lacks something there.

    A launcher, or the interpreter that it starts, has exit codes of its own.
    """
    code = ended.exit_code or 0
    return (
        ended.cause is None and code > 0 and (code == WorkerExit.MACHINE_LACKS or code not in set(WorkerExit))
    )


def _what_is_lacking(events: Events, token: str, ended: Ended) -> str:
    """Return what the worker of the job ``token`` said, else its executor; empty where neither did."""
    refusal = next(
        (event for event in reversed(events) if "lacks" in event and event.get("job") == token), {}
    )
    return "\n".join(f"- {problem}" for problem in refusal.get("lacks", [])) or ended.message


FIRST_S, LONGEST_S = 5.0, 300.0


@dataclass
class Backoff:
    """Longer after each refusal, from the start again after a success; each new reason is said once."""

    say: Callable[[str], None]
    _wait_s: float = 0.0
    _until: float = 0.0
    _reason: str = ""

    @property
    def left_s(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._until - time.monotonic())

    def failed(self, reason: str) -> None:
        """Wait from now on, twice as long as after the refusal before."""
        self._wait_s = min(LONGEST_S, 2 * self._wait_s or FIRST_S)
        self._until = time.monotonic() + self._wait_s
        if reason != self._reason:
            self.say(f"{reason}; tried again in {self._wait_s:.0f} s, then at longer intervals")
        self._reason = reason

    def reset(self) -> None:
        """Say that what was refused goes on."""
        if self._reason:
            self.say("accepted again; the sweep goes on")
        self._wait_s, self._until, self._reason = 0.0, 0.0, ""
