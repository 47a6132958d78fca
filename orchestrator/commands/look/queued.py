"""What the queue of a cluster says of a sweep's jobs, and what the sweep's controller does."""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalevec.orchestrator.attempts.unreached_jobs import tell_unreached
from scalevec.orchestrator.cli.hints import command
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.base import QueuedJob
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.progress import counted
from scalevec.orchestrator.scheduling.ownership import QUEUE_LOOK_S
from scalevec.orchestrator.sources.readable import readable
from scalevec.orchestrator.sweep.controller import again, directory_of, end_of
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.results.sweep_folder import SweepFolder, sweep_names

Record = dict[str, Any]

MOST_TRIALS = 2000
"""Trials whose jobs are looked for: each is a file to read."""
MOST_NAMED = 3


class Queues:
    """Asks the queues of clusters, and remembers their answers for a while."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, frozenset[str]], tuple[float, dict[str, QueuedJob] | str]] = {}
        self._removed: tuple[float, Mapping[str, list[RunDirectory]]] = (-math.inf, {})

    def look(self, executor: str, numbers: Iterable[str]) -> dict[str, QueuedJob] | str:
        """Return what the queue knows of these jobs, or why it cannot be asked."""
        key, now = (executor, frozenset(numbers)), time.monotonic()
        young = {asked: it for asked, it in self._answers.items() if now - it[0] < QUEUE_LOOK_S}
        self._answers = young
        if key not in young:
            try:
                answer: dict[str, QueuedJob] | str = EXECUTORS[executor].look_at_queue(key[1])
            except MissingRequirementError as problem:
                answer = str(problem)
            young[key] = (now, answer)
        return young[key][1]

    def removed(self, sweep: str, runs_dir: Path) -> list[RunDirectory]:
        """Return the trials with open jobs that were first sent for ``sweep`` and that no sweep has now."""
        if time.monotonic() - self._removed[0] >= QUEUE_LOOK_S:
            self._removed = time.monotonic(), _removed_trials(runs_dir)
        return self._removed[1].get(sweep, [])


def _removed_trials(runs_dir: Path) -> Mapping[str, list[RunDirectory]]:
    """By sweep; an edit of its file leaves them behind, and their jobs in the queue.

    None where a list of members is damaged: whoever shows that sweep tells it.
    """
    held = set[str]()
    for name in sweep_names(runs_dir):
        try:
            members, problems = SweepFolder.of(runs_dir, name).members_and_problems() or ([], [])
        except (CorruptRecordError, OSError):
            return {}
        if problems:
            return {}
        held |= {entry["trial_id"] for entry in members}
    removed: defaultdict[str, list[RunDirectory]] = defaultdict(list)
    for directory in (RunDirectory.of(runs_dir, name) for name in trial_ids(runs_dir) if name not in held):
        if directory.jobs_path.exists() and not directory.result_path.exists() and _job(directory):
            nobody: Record = {"descriptive": {}}
            trial = readable(directory.trial, nobody, "whether its sweep has it still is unknown")
            removed[str(trial["descriptive"].get("first_sweep"))].append(directory)
    return removed


def jobs_of(sweep: str, trials: Sequence[str], runs_dir: Path, queues: Queues) -> Record:
    """Return the jobs of ``trials`` that wait or run, by trial, and the sweep's controller.

    ``"unknown"`` says why the queue could not be asked.
    """
    controller = directory_of(runs_dir, sweep)
    directories = {trial: RunDirectory.of(runs_dir, trial) for trial in trials[:MOST_TRIALS]}
    tell_unreached([controller, *directories.values()])
    removed = queues.removed(sweep, runs_dir)
    everything = {**directories, "": controller} | {each.trial_id: each for each in removed}
    newest = {name: _job(directory) for name, directory in everything.items()}
    numbers: defaultdict[str, set[str]] = defaultdict(set)
    for job in newest.values():
        if job is not None:
            numbers[job["executor"]].add(job["job"])
    answers = {executor: queues.look(executor, wanted) for executor, wanted in numbers.items()}
    of_controller = newest.pop("")
    shown = {name: _shown(job, answers[job["executor"]]) for name, job in newest.items() if job}
    left = [job for trial in removed if (job := shown.pop(trial.trial_id, None)) and job["state"]]
    return {
        "jobs": shown,
        "removed": left,
        "cancel_removed": command("cancel", sweep, runs_dir, removed=True) if left else None,
        "controller": _controller(controller, of_controller, answers) if of_controller else None,
        "unknown": next((answer for answer in answers.values() if isinstance(answer, str)), None),
    }


def _job(directory: RunDirectory) -> Record | None:
    """The newest job of a trial or controller that may still wait or run in a queue."""
    jobs: list[Record] = readable(directory.open_jobs, [], "its jobs are unknown")
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
    groups: defaultdict[tuple[str | None, str], list[Record]] = defaultdict(list)
    for trial in waiting:
        if trial in view["jobs"]:
            job = view["jobs"][trial]
            groups[job["state"], job["reason"]].append(job)
    lines += [f"  {_group_text(jobs, view['unknown'])}" for jobs in groups.values()]
    if view["removed"]:
        what = f"{_named(view['removed'])} of trials that the sweep file no longer has"
        lines.append(f"  {what}: {view['cancel_removed']}")
    return lines


def _named(jobs: Sequence[Record]) -> str:
    names = list(dict.fromkeys(job["job"] for job in jobs))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"job{'s' * (len(names) > 1)} {', '.join(names[:MOST_NAMED])}{more}"


def _group_text(jobs: Sequence[Record], unknown: str | None) -> str:
    """What holds for the jobs of trials that have one state and reason in common."""
    trials, first = counted(len(jobs), "trial"), jobs[0]
    if first["state"] is None:
        return f"{trials} in {_named(jobs)}: {unknown or 'not in the queue any more'}"
    return f"{trials} {_state_text(first)} in {_named(jobs)}{_remedy_text(first)}"


def _state_text(job: Record) -> str:
    return f"{job['state'].lower()}{' (' + job['reason'] + ')' if job['reason'] else ''}"


def _remedy_text(job: Record) -> str:
    return f"; to let it go on: {job['remedy']}" if job["remedy"] else ""


def gone_text(job: Record | None, *, owned: bool) -> str:
    """Return what to do for a trial whose worker gives no sign of life: its job may be in the queue."""
    if job is not None and job["state"]:
        return f"its worker is gone, its job {job['job']} {_state_text(job)}{_remedy_text(job)}"
    return f"its worker is gone; {'it will be started again' if owned else 'run the sweep again'}"


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
        on = f" on {controller['node']}" if controller["node"] else ""
        how = f"{_state_text(controller)}{on}{_remedy_text(controller)}"
    says = f"; it says: {controller['says']}" if controller["says"] else ""
    return f"controller, job {controller['job']}: {how}{says}"
