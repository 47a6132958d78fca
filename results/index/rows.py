"""From run directories to rows of the index, and what tells that a row is out of date.

A network file system takes a millisecond for each question, so threads ask several at once.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from scalevec.results.columns import (
    checked,
    checked_columns,
    environment_columns,
    semantic_columns,
    timing_columns,
)
from scalevec.results.files import CorruptRecordError, to_json
from scalevec.results.index.database import BLOCK_COLUMNS, FLOAT_COLUMNS, INTEGER_COLUMNS, TEXT_COLUMNS
from scalevec.results.run_directory import RunDirectory, state_of

INDEXED_FILES = ("trial.json", "environment.json", "events.jsonl", "result.json")


def fingerprint(folder: str) -> str | None:
    """What changes whenever an indexed file of the run directory ``folder`` does; None where there is none.

    Four stats and no path objects: this runs for every trial each time somebody looks.
    """
    stamps = [_stamp(f"{folder}/{name}") for name in INDEXED_FILES]
    return None if stamps == ["-"] * len(stamps) else " ".join(stamps)


def _stamp(path: str) -> str:
    """Time of change and size; "-" where there is no file, "?" where its folder is none."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return "-"
    except NotADirectoryError:  # which row_of says in full
        return "?"
    return f"{status.st_mtime_ns}:{status.st_size}"


def row_of(run_directory: RunDirectory) -> dict[str, Any]:
    """The row without its fingerprint, documents as JSON text.

    Raises ``CorruptRecordError`` or ``OSError``.
    """
    try:
        trial = run_directory.trial()
    except FileNotFoundError:
        raise CorruptRecordError(run_directory.trial_path, "is missing") from None
    for fields in (semantic_columns(trial["semantic"]), trial["descriptive"]):
        checked_columns(run_directory.trial_path, fields)
    environment_path = run_directory.environment_path
    environment = environment_columns(run_directory.environments())
    result, events_path = run_directory.result(), run_directory.events_path
    state = state_of(run_directory.events(), result)
    return {
        "trial_id": run_directory.trial_id,
        "state": state.state,
        "cause": checked(events_path, "cause", str, state.cause),
        "attempt": checked(events_path, "attempt", int, state.attempt),
        "time": checked(events_path, "time", str, state.time),
        **_result_columns(run_directory.result_path, result),
        **{name: checked(environment_path, name, str, value) for name, value in environment.items()},
        # JSON is made here, by whichever process read the record, and sent on as it is.
        "semantic": to_json(trial["semantic"]).decode(),
        "descriptive": to_json(trial["descriptive"]).decode(),
        "result": None if result is None else to_json(result).decode(),
    }


def _result_columns(path: Path, result: Mapping[str, Any] | None) -> dict[str, Any]:
    """The columns of a result. Raises ``CorruptRecordError``, also where a completed trial has no loss."""
    values = {} if result is None else {**result, **timing_columns(result)}
    columns = checked_columns(path, {name: values[name] for name in values if name not in BLOCK_COLUMNS})
    blocks = {name: _block_text(path, name, values.get(name)) for name in BLOCK_COLUMNS}
    if values.get("status") == "completed" and columns.get("loss") is None:
        raise CorruptRecordError(path, "is completed and has no loss")
    return {name: columns.get(name) for name in (*INTEGER_COLUMNS, *FLOAT_COLUMNS, *TEXT_COLUMNS)} | blocks


def _block_text(path: Path, name: str, values: Any) -> str | None:
    """One number for each block as JSON text, losses to the digits that float32 carries; None stays None."""
    if values is None:
        return None
    if not isinstance(values, list):
        raise CorruptRecordError(path, f"has {name} = {values!r:.80}, not a list of numbers")
    if None in values:
        raise CorruptRecordError(path, f"has no number for some blocks in {name}")
    if name == "block_tokens":
        return json.dumps([checked(path, name, int, value) for value in values])
    return json.dumps([float(f"{checked(path, name, float, value):.8g}") for value in values])


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
