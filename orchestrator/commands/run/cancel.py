"""``scalevec cancel``: what a sweep has waiting or running is called off."""

import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scalevec.orchestrator.cli.hints import command
from scalevec.orchestrator.cli.options import RUNS, ProfileName, Runs, Sweep
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.progress import counted, note
from scalevec.orchestrator.sources.sources import UNREADABLE, exit_after, recorded_state, recorded_states
from scalevec.orchestrator.sources.sweep_files import sweep_folder
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from scalevec.orchestrator.executors.base import Executor

END_WAIT_S = 60.0
"""How long ``cancel`` waits for the jobs to write their checkpoints and end."""
OPEN_STATES = ("pending", "queued", "running")


def cancel(
    source: Sweep,
    runs_dir: Runs = RUNS,
    profile: ProfileName = None,
    removed: Annotated[
        bool, typer.Option("--removed", help="Only trials that the sweep file, once edited, no longer holds.")
    ] = False,
) -> Result:
    """Cancel what a sweep has waiting or running; results and checkpoints stay."""
    from scalevec.orchestrator.sweep.controller import directory_of
    from scalevec.orchestrator.sweep.removed import removed_trials

    if removed:
        states = [(directory, recorded_state(directory)) for directory in removed_trials(source, runs_dir)]
    else:
        states = recorded_states(source, runs_dir)
    cancelled = [(directory, state) for directory, state in states if state in OPEN_STATES]
    for directory, _ in cancelled:
        directory.append_event("cancelled", cause="cancelled")
    with_jobs = [directory for directory, state in states if state in ("queued", "running", UNREADABLE)]
    sweep = sweep_folder(source, runs_dir).name
    directories = with_jobs if removed else [directory_of(runs_dir, sweep), *with_jobs]
    left = _end_jobs(sweep, runs_dir, directories, profile, Path(source).parent)
    if not (removed or left):  # a controller that never began would count as one who advances the sweep
        directory_of(runs_dir, sweep).job_path.unlink(missing_ok=True)
    sent = sum(state != "pending" for _, state in cancelled)
    status, again = command("status", source, runs_dir), command("run", source, runs_dir)
    record = {"cancelled": [directory.trial_id for directory, _ in cancelled], "sent": sent}
    lines = [
        f"{counted(len(cancelled), 'trial')} cancelled, {sent} of them had been sent",
        *([f"{counted(len(left), 'job')} still ending; to follow: {status}"] if left else []),
        f"results and checkpoints are kept. To go on: {again}",
    ]
    record |= {"jobs_left": sorted(left), "next": again}
    return Result(record, "\n".join(lines), exit_after(states))


def _end_jobs(
    sweep: str, runs_dir: Path, directories: Iterable[RunDirectory], profile: str | None, beside: Path
) -> set[str]:
    """Ask the jobs to end, wait for them, and return the numbers of those that have not."""
    from scalevec.orchestrator.executors.base import Site
    from scalevec.orchestrator.executors.profiles import load_profile

    by_executor: defaultdict[str, dict[str, RunDirectory]] = defaultdict(dict)
    for directory in directories:
        try:
            job = directory.job()
        except CorruptRecordError as problem:
            note(f"{problem}; if this job still runs, it cannot be ended from here")
            continue
        if job is not None:
            by_executor[job["executor"]][job["job"]] = directory
    left: set[str] = set()
    for name, jobs in by_executor.items():
        executor = EXECUTORS[name].build(Site(runs_dir, sweep, 1, load_profile(profile, beside)))
        try:
            left |= _end_on(executor, jobs)
        finally:
            executor.close()
    return left


def _end_on(executor: "Executor", jobs: dict[str, RunDirectory]) -> set[str]:
    alive = executor.adopt(jobs.keys())
    executor.cancel(alive)
    deadline = time.monotonic() + END_WAIT_S
    while alive and time.monotonic() < deadline:
        for ended in executor.wait(1.0):
            alive.discard(ended.number)
            _record_cancelled(jobs[ended.number])
    return alive


def _record_cancelled(directory: RunDirectory) -> None:
    """Record ``cancelled`` after the worker's own ``pending``. (A controller has no states.)"""
    try:
        state = directory.state().state
    except CorruptRecordError:  # reported when the states were read
        return
    if directory.trial_path.exists() and state in OPEN_STATES:
        directory.append_event("cancelled", cause="cancelled")
