"""Looking at many run directories: which have changed, which still have their result, what is in them.

A network file system answers each question slowly, so several are asked at once (threads); reading many
records costs processor time, so several processes share it.
"""

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from results.files import CorruptRecord
from results.index_rows import INDEXED_FILES, fingerprint, row_of
from results.run_directory import RunDirectory

THREADS = 16
PART = 250
SLOW_S = 2e-4
"""Seconds for one trial from which on a file system counts as slow."""
MANY = 4000
"""From this many records on, starting processes to read them is worth its time."""
WINDOW = 10_000
"""Rows that may wait in memory to be written."""
PROCESSES = 8

Found = TypeVar("Found")


@dataclass
class Looks:
    """What a look at directories found; ``changed`` and ``problems`` are by trial id."""

    changed: dict[str, str] = field(default_factory=dict)
    """The present fingerprint."""
    unchanged: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Read:
    """The row of a trial, or why there is none."""

    trial_id: str
    row: dict[str, Any] | None
    problem: str = ""


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
    found: list[tuple[str, str | None, str]] = []
    for trial_id in part:
        try:
            found.append((trial_id, fingerprint(_folder(runs_dir, trial_id)), ""))
        except OSError as error:
            found.append((trial_id, None, str(error)))
    return found


def without_result(runs_dir: Path, ids: Iterable[str]) -> list[str]:
    """Those of ``ids`` that have no result any more: one cheap question for each trial."""
    return list(_in_parts(ids, partial(_lacking, str(runs_dir))))


def _lacking(runs_dir: str, part: list[str]) -> list[str]:
    name = INDEXED_FILES[-1]
    return [one for one in part if not os.access(f"{_folder(runs_dir, one)}/{name}", os.F_OK)]


def _folder(runs_dir: str, trial_id: str) -> str:
    return f"{runs_dir}/trials/{trial_id[:2]}/{trial_id}"


def read_rows(runs_dir: Path, ids: Iterable[str]) -> Iterator[Read]:
    """The rows of these trials, in their order."""
    names = list(ids)
    if len(names) < MANY:
        yield from (read for part in _parts(names) for read in _read(runs_dir, part))
        return
    processes = min(PROCESSES, os.cpu_count() or 1)
    with multiprocessing.get_context("spawn").Pool(processes, _begin_reader) as pool:
        for start in range(0, len(names), WINDOW):
            for reads in pool.imap(partial(_read, runs_dir), _parts(names[start : start + WINDOW])):
                yield from reads


def _read(runs_dir: Path, part: list[str]) -> list[Read]:
    return [_read_one(runs_dir, trial_id) for trial_id in part]


def _read_one(runs_dir: Path, trial_id: str) -> Read:
    try:
        return Read(trial_id, row_of(RunDirectory.of(runs_dir, trial_id)))
    except (CorruptRecord, OSError) as error:
        return Read(trial_id, None, str(error))


def _begin_reader() -> None:
    """Leave interrupts to the parent; what was imported stays, so nobody need look for garbage in it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()


def _in_parts(ids: Iterable[str], work: Callable[[list[str]], list[Found]]) -> Iterator[Found]:
    """What ``work`` finds in parts of ``ids``, in their order; by threads once a part was slow.

    A local disk answers before a thread could take over, a network file system does not.
    """
    parts = _parts(ids)
    for part in parts:
        began = time.perf_counter()
        found = work(part)
        slow = time.perf_counter() - began > SLOW_S * len(part)
        yield from found
        if slow:
            break
    with ThreadPoolExecutor(THREADS) as pool:
        for found in pool.map(work, parts):
            yield from found


def _parts(ids: Iterable[str]) -> Iterator[list[str]]:
    names = iter(ids)
    while part := list(islice(names, PART)):
        yield part
