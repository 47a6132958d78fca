"""What the queue of a cluster says of a sweep's jobs, and what the sweep's controller does."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalevec.orchestrator.attempts.unreached_jobs import tell_unreached
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.base import QueuedJob
from scalevec.orchestrator.executors.registry import KEEPERS
from scalevec.orchestrator.progress import counted
from scalevec.orchestrator.scheduling.ownership import QUEUE_LOOK_S
from scalevec.orchestrator.sources.readable import readable
from scalevec.orchestrator.sweep.controller import again, directory_of, end_of
from scalevec.results.run_directory import RunDirectory

Record = dict[str, Any]

MOST_TRIALS = 2000
"""Trials whose jobs are looked for: each is a file to read."""
MOST_NAMED = 3


class Queues:
    """Asks the queues of clusters, and remembers their answers for a while."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, frozenset[str]], tuple[float, dict[str, QueuedJob] | str]] = {}

    def look(self, executor: str, numbers: Iterable[str]) -> dict[str, QueuedJob] | str:
        """Return what the queue knows of these jobs, or why it cannot be asked."""
        key, now = (executor, frozenset(numbers)), time.monotonic()
        if key not in self._answers or now - self._answers[key][0] >= QUEUE_LOOK_S:
            try:
                answer: dict[str, QueuedJob] | str = KEEPERS[executor].look_at_queue(key[1])
            except MissingRequirementError as problem:
                answer = str(problem)
            self._answers = {key: (now, answer)}
        return self._answers[key][1]


def jobs_of(sweep: str, trials: Sequence[str], runs_dir: Path, queues: Queues) -> Record:
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
    answers = {executor: queues.look(executor, wanted) for executor, wanted in numbers.items()}
    of_controller = newest.pop("")
    return {
        "jobs": {name: _shown(job, answers[job["executor"]]) for name, job in newest.items() if job},
        "controller": _controller(controller, of_controller, answers) if of_controller else None,
        "unknown": next((answer for answer in answers.values() if isinstance(answer, str)), None),
    }


def _job(directory: RunDirectory) -> Record | None:
    """The newest job of a trial or controller that may still wait or run in a queue."""
    jobs: list[Record] = readable(directory.open_jobs, [], "its jobs are unknown")
    shown = [job for job in jobs if (of := KEEPERS.get(job["executor"])) is not None and of.queue_view]
    return shown[-1] if shown else None


def _shown(job: Record, answer: Mapping[str, QueuedJob] | str) -> Record:
    """``state`` is None for a job that the queue does not have, or where it cannot be asked."""
    queued = None if isinstance(answer, str) else answer.get(job["job"])
    name = job["job"].partition("/")[0]
    if queued is None:
        return {"job": name, "state": None, "reason": "", "node": None}
    return {"job": name, "state": queued.state, "reason": queued.reason, "node": queued.node}


def _controller(directory: RunDirectory, job: Record, answers: Mapping[str, Any]) -> Record:
    end = readable(lambda: end_of(directory, job["job"]), None, "how its controller ended is unknown")
    again_with = readable(lambda: again(directory), None, "how to send its controller again is unknown")
    return {
        **_shown(job, answers[job["executor"]]),
        "says": directory.last_log_line(),
        "exit_code": end["exit_code"] if end else None,
        "again": again_with,
    }


def queue_lines(view: Record, waiting: Sequence[str]) -> list[str]:
    """Return the controller's line, and one for each reason for which trials wait."""
    lines = [f"  {controller_text(view['controller'], view['unknown'])}"] if view["controller"] else []
    groups: defaultdict[tuple[str | None, str], list[str]] = defaultdict(list)
    for trial in waiting:
        if trial in view["jobs"]:
            job = view["jobs"][trial]
            groups[job["state"], job["reason"]].append(job["job"])
    lines += [f"  {_group_text(*key, jobs, view['unknown'])}" for key, jobs in groups.items()]
    return lines


def _group_text(state: str | None, reason: str, jobs: Sequence[str], unknown: str | None) -> str:
    different = list(dict.fromkeys(jobs))
    more = f" and {len(different) - MOST_NAMED} more" if len(different) > MOST_NAMED else ""
    named = f"job{'s' * (len(different) > 1)} {', '.join(different[:MOST_NAMED])}{more}"
    trials = counted(len(jobs), "trial")
    if state is None:
        return f"{trials} in {named}: {unknown or 'not in the queue any more'}"
    return f"{trials} {state.lower()}{f' ({reason})' if reason else ''} in {named}"


def _end_text(controller: Record, unknown: str | None) -> str:
    if controller["exit_code"] is not None:
        how = f"ended with exit code {controller['exit_code']}"
    else:
        how = unknown or "not in the queue any more, and it left no word of its end"
    to_go_on = controller["again"] if controller["exit_code"] != 0 and not unknown else None
    return f"{how}; to go on: {to_go_on}" if to_go_on else how


def controller_text(controller: Record, unknown: str | None) -> str:
    """Return what a sweep's controller does, in words; ``unknown`` says why the queue could not be asked."""
    state = controller["state"]
    if state is None:
        how = _end_text(controller, unknown)
    else:
        reason = f" ({controller['reason']})" if controller["reason"] else ""
        how = f"{state.lower()}{reason}{' on ' + controller['node'] if controller['node'] else ''}"
    says = f"; it says: {controller['says']}" if controller["says"] else ""
    return f"controller, job {controller['job']}: {how}{says}"
