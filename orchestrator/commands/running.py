"""Commands that train: ``run`` and ``demo``."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from orchestrator.errors import Exit, Lacking, Refused

if TYPE_CHECKING:
    from orchestrator.sweep_run import StageIncomplete, SweepRun


def run_sweep(path: str, runs_dir: Path, executor_name: str, jobs: int, *, retune: bool) -> Exit:
    """Run what is missing of the sweep file at ``path``; says on standard output what is there now."""
    import sweeps
    from orchestrator.executors import EXECUTORS
    from orchestrator.progress import progress_for
    from orchestrator.scheduler import Scheduler
    from orchestrator.sweep_run import StageIncomplete, SweepRun

    if executor_name not in EXECUTORS:
        raise Refused(f"executor is {executor_name!r}; allowed: {', '.join(EXECUTORS)}")
    slots = jobs or os.cpu_count() or 1
    sweep = sweeps.load(path)
    progress = progress_for(slots)
    run = SweepRun(sweep, runs_dir, progress, retune=retune)
    for warning in sweeps.identical_arms(run.cells):
        progress.message(f"warning: {warning}")
    scheduler = Scheduler(runs_dir, EXECUTORS[executor_name](slots), progress)
    try:
        with _stoppable(scheduler.request_stop, progress.message):
            run.run(scheduler)
    except StageIncomplete as incomplete:
        return _say_incomplete(incomplete, path)
    finally:
        progress.close()
    _say_done(run, path)
    return Exit.DONE


@contextmanager
def _stoppable(request_stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for a stop with checkpoints; a second one ends everything at once."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        say("stopping: the running trials write a checkpoint (again to end them at once)")
        request_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_incomplete(incomplete: "StageIncomplete", path: str) -> Exit:
    outcome = incomplete.outcome
    if outcome.no_space:
        raise Lacking(
            "no space left on the device of the runs; free some and give the same command again, "
            "nothing is lost"
        )
    if outcome.stopped:
        print(f"stopped; nothing is lost. To go on: scalevec run {path}", file=sys.stderr)
        return Exit.INTERRUPTED
    for reason in outcome.failed.values():
        print(f"failed: {reason}", file=sys.stderr)
    print(f"to try them again: scalevec retry {path}, then scalevec run {path}", file=sys.stderr)
    return Exit.SOME_FAILED


def _say_done(run: "SweepRun", path: str) -> None:
    from orchestrator.sources import indexed_rows

    ids = {run.id_of(member.trial) for member in run.members()}
    rows, problems = indexed_rows(run.runs_dir, sorted(ids))
    counts = {state: sum(row["state"] == state for row in rows) for state in ("completed", "diverged")}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    print(f"{run.sweep.name}: {len(ids)} trials, {said}. Next: scalevec report {path}")
    for name, problem in problems.items():
        print(f"warning: {name[:12]}: {problem}", file=sys.stderr)


def demo(runs_dir: Path, jobs: int, output: Path | None) -> Exit:
    """The quickstart sweep, then its verdict and its report."""
    import sweeps
    from orchestrator.commands.reading import compare, write_report

    path = str(sweeps.shipped("quickstart"))
    code = run_sweep(path, runs_dir, "local", jobs, retune=False)
    if code is Exit.DONE:
        compare("quickstart", runs_dir, None, {}, where=None, as_json=False)
        write_report("quickstart", runs_dir, output)
    return code


def retry(source: str, runs_dir: Path) -> Exit:
    """Give the failed trials of a sweep a clean slate; the next run trains them."""
    from orchestrator.sources import sweep_folder
    from results.run_directory import RunDirectory

    members = sweep_folder(source, runs_dir).members() or []
    directories = [RunDirectory.of(runs_dir, name) for name in sorted({m["trial_id"] for m in members})]
    failed = [directory for directory in directories if directory.state().state == "failed"]
    for directory in failed:
        directory.append_event("pending", cause="retry")
    print(f"{len(failed)} failed trials will run again: scalevec run {source}")
    return Exit.DONE
