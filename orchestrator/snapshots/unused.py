"""What was kept for trials and that nothing needs any more: snapshots, and the files of trainers."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from scalevec.model.fields import ConfigurationError
from scalevec.orchestrator.snapshots.start import ORIGIN
from scalevec.orchestrator.worker.trainers.kept_source import KEPT, kept_folder
from scalevec.results.files import CorruptRecordError, names_in
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.sweeps.trainers.foreign_trial import foreign_trial, is_foreign

KEPT_S = 24 * 3600.0
"""What is kept stays so long after its last use: a scheduler may be about to send with it."""
SLACK_S = 3600.0
"""Clocks of two machines differ."""


def drop_unused(runs_dir: Path, kept: Path) -> None:
    """Remove the snapshots beside ``kept`` that were not used for a day and that no open job was sent with.

    An open job's own time tells which it may have been sent with. The jobs are looked through only where
    there is such a snapshot.
    """
    idle = [root for root in _idle(kept.parent) if root != kept]
    if not idle:
        return
    try:
        times = list(_times_of_open_jobs(runs_dir))
    except (CorruptRecordError, OSError, KeyError, ValueError):  # who knows which one that job needs
        return
    for root in idle:
        if not _may_be_needed(root, times):
            shutil.rmtree(root, ignore_errors=True)


def drop_unused_sources(runs_dir: Path) -> None:
    """Remove the kept files of trainers (``worker.trainers.kept_source``) on which no trial rests.

    The trials are looked through at most once a day: what one of them rests on counts as used then.
    """
    idle = _idle(runs_dir / KEPT)
    if not idle:
        return
    try:
        needed = set(_sources_of_trials(runs_dir))
    except (CorruptRecordError, ConfigurationError, OSError, KeyError):  # who knows what that trial needs
        return
    for root in idle:
        if root.name not in needed:
            shutil.rmtree(root, ignore_errors=True)
            continue
        with suppress(OSError):  # another user's
            os.utime(root)


def _sources_of_trials(runs_dir: Path) -> Iterator[str]:
    for trial_id in trial_ids(runs_dir):
        fields = RunDirectory.of(runs_dir, trial_id).trial()["semantic"]
        if is_foreign(fields):
            yield kept_folder(runs_dir, foreign_trial(fields).trainer).name


def _idle(folder: Path) -> list[Path]:
    """The folders in ``folder`` that were not used for a day."""
    roots = [folder / name for name in names_in(folder)]
    return [root for root in roots if root.is_dir() and time.time() - root.stat().st_mtime > KEPT_S]


def _may_be_needed(root: Path, times: list[float]) -> bool:
    origin = root / ORIGIN
    if not origin.is_file():  # never completed, or half removed
        return False
    earliest, latest = origin.stat().st_mtime - SLACK_S, root.stat().st_mtime + SLACK_S
    return any(earliest <= sent <= latest for sent in times)


def _times_of_open_jobs(runs_dir: Path) -> Iterator[float]:
    for directory in _with_open_jobs(runs_dir):
        for job in [*directory.open_jobs(), *directory.unreached_jobs()]:
            yield datetime.fromisoformat(job["time"]).timestamp()


def _with_open_jobs(runs_dir: Path) -> Iterator[RunDirectory]:
    """Trials without a result, and the controllers of sweeps."""
    for trial_id in trial_ids(runs_dir):
        directory = RunDirectory.of(runs_dir, trial_id)
        if not directory.result_path.exists():
            yield directory
    for name in names_in(runs_dir / "sweeps"):
        yield RunDirectory(runs_dir / "sweeps" / name / "controller")
