"""Commands on sweeps that run elsewhere: ``submit``, ``cancel`` and ``retry``."""

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.commands.looking import UNREADABLE
from orchestrator.commands.naming import command
from orchestrator.errors import Exit, Refused
from results.files import CorruptRecord

if TYPE_CHECKING:
    from orchestrator.commands.running import Place
    from orchestrator.executors import Executor
    from results.run_directory import RunDirectory

END_WAIT_S = 60.0
"""How long ``cancel`` waits for the jobs to write their checkpoints and end."""
OPEN_STATES = ("pending", "queued", "running")


def submit(path: str, runs_dir: Path, place: "Place") -> Exit:
    """Queue a controller that runs the sweep's stages in the cluster; nothing is sent before all is valid."""
    import sweeps
    from orchestrator import controller
    from orchestrator.commands.running import require_budget, site_of
    from orchestrator.executors import EXECUTORS
    from orchestrator.progress import Progress
    from orchestrator.sweep_run import SweepRun

    sweep = sweeps.load(path)
    name, site = site_of(sweep, path, runs_dir, place)
    executor = EXECUTORS[name](controller.site_of_controller(site))
    try:
        if not executor.keeps_jobs:
            raise Refused(f"executor {name} has no queue that goes on without us; use scalevec run, or slurm")
        run = SweepRun(sweep, site.runs_dir, Progress(site.slots), profile=site.profile)
        require_budget(run)
        already = controller.submitted(executor, site)
        if not already:
            run.write_file()
            run.write_members(run.members())
        number = already or controller.submit(executor, site, Path(path), place.profile)
    finally:
        executor.close()
    print(
        f"{sweep.name}: its controller {'is in the queue already' if already else 'was sent'}, job {number}"
    )
    print("; ".join(command(verb, path, runs_dir) for verb in ("status", "collect", "cancel")))
    return Exit.DONE


def retry(source: str, runs_dir: Path) -> Exit:
    """Give the failed trials of a sweep a clean slate; the next run trains them."""
    states = _states(source, runs_dir)
    failed = [directory for directory, state in states if state == "failed"]
    for directory in failed:
        directory.append_event("pending", cause="retry")
    print(f"{len(failed)} failed trials will run again: {command('run', source, runs_dir)}")
    return _exit_after(states)


def cancel(source: str, runs_dir: Path, profile: str | None, *, removed: bool) -> Exit:
    """Call off what a sweep has waiting or running, wherever it is; checkpoints stay.

    With ``removed`` only the trials that the sweep once sent and its file, as it is now, no longer holds.
    """
    from orchestrator.controller import directory_of
    from orchestrator.removed import removed_trials

    if removed:
        states = [(directory, _state(directory)) for directory in removed_trials(source, runs_dir)]
    else:
        states = _states(source, runs_dir)
    called_off = [(directory, state) for directory, state in states if state in OPEN_STATES]
    for directory, _ in called_off:
        directory.append_event("cancelled", cause="cancelled")
    with_jobs = [directory for directory, state in states if state in ("queued", "running", UNREADABLE)]
    sweep = _sweep_name(source, runs_dir)
    directories = with_jobs if removed else [directory_of(runs_dir, sweep), *with_jobs]
    left = _end_jobs(sweep, runs_dir, directories, profile, Path(source).parent)
    trials = "1 trial" if len(called_off) == 1 else f"{len(called_off)} trials"
    sent = sum(state != "pending" for _, state in called_off)
    print(f"{trials} cancelled, {sent} of them had been sent")
    if left:
        print(f"{len(left)} jobs have not ended yet; {command('status', source, runs_dir)} shows them")
    print(f"results and checkpoints are kept; {command('run', source, runs_dir)} would go on")
    return _exit_after(states)


def _exit_after(states: "Sequence[tuple[RunDirectory, str]]") -> Exit:
    """What was asked for is not done where nobody can tell what became of a trial."""
    return Exit.SOME_FAILED if any(state == UNREADABLE for _, state in states) else Exit.DONE


def _end_jobs(
    sweep: str, runs_dir: Path, directories: "Iterable[RunDirectory]", profile: str | None, beside: Path
) -> set[str]:
    """Ask the jobs to end, wait for them, and return the numbers of those that have not."""
    from orchestrator.executors import EXECUTORS, Site
    from orchestrator.profiles import load_profile

    left: set[str] = set()
    for name, jobs in _by_executor(directories).items():
        executor = EXECUTORS[name](Site(runs_dir, sweep, 1, load_profile(profile, beside)))
        try:
            left |= _end_on(executor, jobs)
        finally:
            executor.close()
    return left


def _by_executor(directories: "Iterable[RunDirectory]") -> "Mapping[str, dict[str, RunDirectory]]":
    found: defaultdict[str, dict[str, RunDirectory]] = defaultdict(dict)
    for directory in directories:
        try:
            job = directory.job()
        except CorruptRecord as problem:
            print(f"{problem}; if this job still runs, it cannot be ended from here", file=sys.stderr)
            continue
        if job is not None:
            found[job["executor"]][job["job"]] = directory
    return found


def _end_on(executor: "Executor", jobs: "dict[str, RunDirectory]") -> set[str]:
    alive = executor.adopt(jobs.keys())
    executor.cancel(alive)
    deadline = time.monotonic() + END_WAIT_S
    while alive and time.monotonic() < deadline:
        for ended in executor.wait(1.0):
            alive.discard(ended.number)
            _mark(jobs[ended.number])
    return alive


def _mark(directory: "RunDirectory") -> None:
    """The worker's last word was that it stopped; ours is why. (A controller has no states.)"""
    try:
        state = directory.state().state
    except CorruptRecord:  # that was said
        return
    if directory.trial_path.exists() and state in OPEN_STATES:
        directory.append_event("cancelled", cause="cancelled")


def _states(source: str, runs_dir: Path) -> "list[tuple[RunDirectory, str]]":
    from orchestrator.sources import sweep_folder
    from results.run_directory import RunDirectory

    members = sweep_folder(source, runs_dir).members() or []
    directories = [RunDirectory.of(runs_dir, name) for name in sorted({m["trial_id"] for m in members})]
    return [(directory, _state(directory)) for directory in directories if directory.path.is_dir()]


def _state(directory: "RunDirectory") -> str:
    """``UNREADABLE``, and a word on it, where its records are: the other trials do not wait for that."""
    from orchestrator.history import unreadable

    try:
        return directory.state().state
    except CorruptRecord as problem:
        print(f"{directory.trial_id[:12]}: {unreadable(directory, problem)}", file=sys.stderr)
        return UNREADABLE


def _sweep_name(source: str, runs_dir: Path) -> str:
    from orchestrator.sources import sweep_folder

    return sweep_folder(source, runs_dir).name
