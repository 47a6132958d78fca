"""Snapshots that no open job was sent with, which are removed."""

import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from scalevec.orchestrator.snapshots.start import ORIGIN
from scalevec.results.files import CorruptRecordError, names_in
from scalevec.results.run_directory import RunDirectory, trial_ids

KEPT_S = 24 * 3600.0
"""A snapshot stays so long after its last use: a scheduler may be about to send with it."""
SLACK_S = 3600.0
"""Clocks of two machines differ."""


def drop_unused(runs_dir: Path, kept: Path) -> None:
    """Remove the snapshots beside ``kept`` that were not used for a day and that no open job was sent with.

    An open job's own time tells which it may have been sent with. The jobs are looked through only where
    there is such a snapshot.
    """
    roots = [kept.parent / name for name in names_in(kept.parent) if name not in (kept.name,)]
    idle = [root for root in roots if root.is_dir() and time.time() - root.stat().st_mtime > KEPT_S]
    if not idle:
        return
    try:
        times = list(_times_of_open_jobs(runs_dir))
    except (CorruptRecordError, OSError, KeyError, ValueError):  # who knows which one that job needs
        return
    for root in idle:
        if not _may_be_needed(root, times):
            shutil.rmtree(root, ignore_errors=True)


def _may_be_needed(root: Path, times: list[float]) -> bool:
    origin = root / ORIGIN
    if not origin.is_file():  # never completed, or half removed
        return False
    earliest, latest = origin.stat().st_mtime - SLACK_S, root.stat().st_mtime + SLACK_S
    return any(earliest <= sent <= latest for sent in times)


def _times_of_open_jobs(runs_dir: Path) -> Iterator[float]:
    for directory in _with_open_jobs(runs_dir):
        for job in directory.open_jobs():
            yield datetime.fromisoformat(job["time"]).timestamp()


def _with_open_jobs(runs_dir: Path) -> Iterator[RunDirectory]:
    """Trials without a result, and the controllers of sweeps."""
    for trial_id in trial_ids(runs_dir):
        directory = RunDirectory.of(runs_dir, trial_id)
        if not directory.result_path.exists():
            yield directory
    for name in names_in(runs_dir / "sweeps"):
        yield RunDirectory(runs_dir / "sweeps" / name / "controller")
