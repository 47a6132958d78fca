"""Looking at many run directories: which have changed, which still have their result, what is in them.

A network file system takes a millisecond for each question, so threads ask several at once.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from scalevec.results.files import CorruptRecordError
from scalevec.results.index.rows import INDEXED_FILES, fingerprint, row_of
from scalevec.results.run_directory import RunDirectory

THREADS = 16
PART = 250

Answer = TypeVar("Answer")


@dataclass
class Looks:
    """What a look at directories has shown; ``changed`` and ``problems`` are by trial id."""

    changed: dict[str, str] = field(default_factory=dict)
    """The present fingerprint."""
    unchanged: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)


def look(runs_dir: Path, ids: Iterable[str], known: dict[str, str]) -> Looks:
    """Compare directories with the fingerprints in ``known``; those that do not exist are in no part."""
    looks = Looks()
    for trial_id, stamp, problem in _in_parts(ids, partial(_fingerprints, str(runs_dir))):
        if problem:
            looks.problems[trial_id] = problem
        elif stamp is not None and stamp == known.get(trial_id):
            looks.unchanged.add(trial_id)
        elif stamp is not None:
            looks.changed[trial_id] = stamp
    return looks


def _fingerprints(runs_dir: str, part: list[str]) -> list[tuple[str, str | None, str]]:
    stamps: list[tuple[str, str | None, str]] = []
    for trial_id in part:
        try:
            stamps.append((trial_id, fingerprint(_folder(runs_dir, trial_id)), ""))
        except OSError as error:
            stamps.append((trial_id, None, str(error)))
    return stamps


def without_result(runs_dir: Path, ids: Iterable[str]) -> list[str]:
    """Those of ``ids`` that have no result any more: one cheap question for each trial."""
    return list(_in_parts(ids, partial(_lacking, str(runs_dir))))


def _lacking(runs_dir: str, part: list[str]) -> list[str]:
    name = INDEXED_FILES[-1]
    return [trial_id for trial_id in part if not os.access(f"{_folder(runs_dir, trial_id)}/{name}", os.F_OK)]


def _folder(runs_dir: str, trial_id: str) -> str:
    return f"{runs_dir}/trials/{trial_id[:2]}/{trial_id}"


def read_rows(runs_dir: Path, ids: Iterable[str]) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Yield these trials, in their order, each with its row or with what keeps it from having one."""
    return _in_parts(ids, partial(_rows, runs_dir))


def _rows(runs_dir: Path, part: list[str]) -> list[tuple[str, dict[str, Any] | str]]:
    return [(trial_id, _row(RunDirectory.of(runs_dir, trial_id))) for trial_id in part]


def _row(directory: RunDirectory) -> dict[str, Any] | str:
    try:
        return row_of(directory)
    except (CorruptRecordError, OSError) as error:
        return str(error)


def _in_parts(ids: Iterable[str], work: Callable[[list[str]], list[Answer]]) -> Iterator[Answer]:
    """Yield what ``work`` answers for parts of ``ids``, in their order."""
    names = iter(ids)
    parts = iter(lambda: list(islice(names, PART)), [])
    with ThreadPoolExecutor(THREADS) as pool:
        # A pool takes all its work at once; only so many answers may wait in memory to be used.
        while some := list(islice(parts, 2 * THREADS)):
            for answers in pool.map(work, some):
                yield from answers
