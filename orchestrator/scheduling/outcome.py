"""What a run leaves undone, what the end of a job means, and in which order trials are sent."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from scalevec.orchestrator.attempts.jobs import Task, WorkerExit
from scalevec.orchestrator.attempts.retry_policy import attempt_of, is_fault
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.base import Ended
from scalevec.orchestrator.scheduling.watched_jobs import WatchedJob, WatchedJobs
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory

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


class Readiness:
    """The rungs of which a trial has begun on a machine, among the ``jobs`` that are watched."""

    def __init__(self, jobs: WatchedJobs) -> None:
        self._jobs = jobs
        self._good_rungs: set[str] = set()

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
        task, directory = job.task, self._directory(job)
        if has_begun or not _is_of_the_machine(ended):
            return events, ended
        lack = _what_is_lacking(events, job.token, ended) or directory.last_log_line()
        running = self._jobs.running
        waiting = {number: other for number, other in running.items() if not self._has_begun(other)}
        begun = {other.task.rung for number, other in running.items() if number not in waiting}
        if task.rung in begun | self._good_rungs:
            ended = replace(ended, cause="node_failure", message=lack)
            directory.append_event("pending", job=job.token, **as_event(ended))
            return directory.events(), ended
        for unsent in (job, *waiting.values()):
            with suppress(CorruptRecordError):  # told when the trial is to be run
                note = f"the machine of a trial of {task.rung} was not ready"
                self._directory(unsent).append_event(
                    "pending", cause="not_started", job=unsent.token, note=note
                )
        with suppress(MissingRequirementError):  # they find the same when they start
            self._jobs.executor.cancel(waiting.keys())
        where = f" {ended.node}" if ended.node else ""
        raise MissingRequirementError(
            f"the machine{where} lacks what trials of {task.rung} need; nothing more is sent:\n{lack}"
        )

    def _has_begun(self, job: WatchedJob) -> bool:
        with suppress(CorruptRecordError, FileNotFoundError):
            return attempt_of(self._directory(job), job.token) > 0
        return False

    def _directory(self, job: WatchedJob) -> RunDirectory:
        return RunDirectory.of(self._jobs.runs_dir, job.task.trial_id)


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
