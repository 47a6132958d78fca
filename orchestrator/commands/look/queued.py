"""What the queue of a cluster says of a sweep's jobs, and what the sweep's controller does."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from scalevec.orchestrator.attempts.jobs import tell_unreached
from scalevec.orchestrator.errors import MissingRequirementError, read_or_warn
from scalevec.orchestrator.executors.base import QueuedJob
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.progress import listed
from scalevec.orchestrator.sweep.controller import again, directory_of, end_of, queue_period
from scalevec.results.run_directory import RunDirectory

Record = dict[str, Any]

MOST_TRIALS = 2000
"""Trials whose jobs are looked for: each is a file to read."""
MOST_NAMED = 3


@lru_cache
def in_queue(executor: str, numbers: frozenset[str], _period: int) -> dict[str, QueuedJob] | str:
    """What the queue knows of these jobs, or why it cannot be asked."""
    try:
        return EXECUTORS[executor].look_at_queue(numbers)
    except MissingRequirementError as problem:
        return str(problem)


def jobs_of(sweep: str, trials: Sequence[str], runs_dir: Path) -> Record:
    """Return the jobs of ``trials`` that wait or run, by trial, and the sweep's controller.

    ``"unknown"`` says why the queue could not be asked.
    """
    controller = directory_of(runs_dir, sweep)
    directories = {trial: RunDirectory.of(runs_dir, trial) for trial in trials[:MOST_TRIALS]}
    tell_unreached([controller, *directories.values()])
    newest = {name: _job(directory) for name, directory in {**directories, "": controller}.items()}
    numbers: defaultdict[str, set[str]] = defaultdict(set)
    for job in newest.values():
        if job is not None:
            numbers[job["executor"]].add(job["job"])
    answers = {
        executor: in_queue(executor, frozenset(wanted), queue_period())
        for executor, wanted in numbers.items()
    }
    of_controller = newest.pop("")
    return {
        "jobs": {name: _shown(job, answers[job["executor"]]) for name, job in newest.items() if job},
        "controller": _controller(controller, of_controller, answers) if of_controller else None,
        "unknown": next((answer for answer in answers.values() if isinstance(answer, str)), None),
    }


def _job(directory: RunDirectory) -> Record | None:
    """The newest job of a trial or controller that may still wait or run in a queue."""
    jobs: list[Record] = read_or_warn(directory.open_jobs, [], "its jobs are unknown")
    shown = [job for job in jobs if (of := EXECUTORS.get(job["executor"])) is not None and of.queue_view]
    return shown[-1] if shown else None


def _shown(job: Record, answer: Mapping[str, QueuedJob] | str) -> Record:
    """``state`` is None for a job that the queue does not have, or where it cannot be asked."""
    queued = None if isinstance(answer, str) else answer.get(job["job"])
    name = job["job"].partition("/")[0]
    if queued is None:
        return {"job": name, "state": None, "reason": "", "node": None, "remedy": ""}
    return {**vars(queued), "job": name}


def _controller(directory: RunDirectory, job: Record, answers: Mapping[str, Any]) -> Record:
    events: list[Record] = read_or_warn(directory.events, [], "how its controller ended is unknown")
    end = end_of(events, job["job"])
    return {
        **_shown(job, answers[job["executor"]]),
        "says": directory.last_log_line(),
        "exit_code": end["exit_code"] if end else None,
        "again": again(events),
    }


def jobs_text(names: Sequence[str]) -> str:
    """Return ``jobs 7_2, 7_3, 7_4 and 5 more``."""
    return f"job{'s' * (len(names) > 1)} {listed(names, MOST_NAMED)}"


def state_text(job: Record) -> str:
    """Return ``pending (Priority)``."""
    return f"{job['state'].lower()}{' (' + job['reason'] + ')' if job['reason'] else ''}"


def remedy_text(job: Record) -> str:
    """Return how what waits for a person goes on; nothing where it waits for no one."""
    return f"; to let it go on: {job['remedy']}" if job["remedy"] else ""


def gone_text(job: Record | None, *, owned: bool) -> str:
    """Return what to do for a trial whose worker gives no sign of life: its job may be in the queue."""
    if job is not None and job["state"]:
        return f"its worker is gone, its job {job['job']} {state_text(job)}{remedy_text(job)}"
    return f"its worker is gone; {'it will be started again' if owned else 'run the sweep again'}"


def controller_text(controller: Record, unknown: str | None) -> str:
    """Return what a sweep's controller does, in words; ``unknown`` says why the queue could not be asked."""
    if controller["state"] is not None:
        on = f" on {controller['node']}" if controller["node"] else ""
        how = f"{state_text(controller)}{on}{remedy_text(controller)}"
    elif controller["exit_code"] is not None:
        how = f"ended with exit code {controller['exit_code']}"
    else:
        how = unknown or "not in the queue any more, and it left no word of its end"
    is_over = controller["state"] is None and controller["exit_code"] != 0 and not unknown
    how += f"; to go on: {controller['again']}" if is_over and controller["again"] else ""
    says = f"; it says: {controller['says']}" if controller["says"] else ""
    return f"controller, job {controller['job']}: {how}{says}"
