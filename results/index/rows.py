"""From run directories to rows of the index, and what tells that a row is out of date.

A network file system takes a millisecond for each question, so threads ask several at once.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from scalevec.results.columns import (
    BLOCK_COLUMNS,
    checked,
    checked_columns,
    environment_columns,
    semantic_columns,
    timing_columns,
)
from scalevec.results.files import CorruptRecordError, to_json
from scalevec.results.index.database import OF_STATUS
from scalevec.results.run_directory import RunDirectory, state_of

INDEXED_FILES = ("trial.json", "environment.json", "events.jsonl", "result.json")


def fingerprint(folder: str) -> str | None:
    """What changes whenever an indexed file of the run directory ``folder`` does; None where there is none.

    Four stats and no path objects: this runs for every trial each time somebody looks.
    """
    stamps = [_stamp(f"{folder}/{name}") for name in INDEXED_FILES]
    return None if stamps == ["-"] * len(stamps) else " ".join(stamps)


def _stamp(path: str) -> str:
    """Time of change and size; "-" where there is no file."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return "-"
    return f"{status.st_mtime_ns}:{status.st_size}"


def row_of(run_directory: RunDirectory) -> dict[str, Any]:
    """What is told of a trial: its state, its result, its machines, and its records as they are.

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
    result = run_directory.result()
    state = state_of(run_directory.events(), result)
    return {
        "trial_id": run_directory.trial_id,
        "state": state.state,
        "cause": checked(run_directory.events_path, "cause", str, state.cause),
        **_result_columns(run_directory.result_path, result),
        **{name: checked(environment_path, name, str, value) for name, value in environment.items()},
        "semantic": trial["semantic"],
        "descriptive": trial["descriptive"],
        "result": result,
    }


def _result_columns(path: Path, result: Mapping[str, Any] | None) -> dict[str, Any]:
    """The columns of a result. Raises ``CorruptRecordError``, also where a completed trial has no loss."""
    values = {} if result is None else {**timing_columns(result), **result}
    columns = checked_columns(path, {name: values[name] for name in values if name not in BLOCK_COLUMNS})
    blocks = {name: _block_text(path, name, values.get(name)) for name in BLOCK_COLUMNS}
    if values.get("status") == "completed" and columns.get("loss") is None:
        raise CorruptRecordError(path, "is completed and has no loss")
    return columns | blocks


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
"""Trials that a thread takes at a time."""
MOST_IN_INDEX = 100
"""Characters of a cause, whoever wrote it: indexes of PostgreSQL hold no long text."""
SLOW_S = 0.025
"""For a part: below it a local disk answers sooner than a thread is told of its answer."""

Answer = TypeVar("Answer")


def look(runs_dir: Path, ids: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The present fingerprints of these trials, and what could not be looked at, with why.

    A directory that does not exist is in neither.
    """
    fingerprints, problems = dict[str, str](), dict[str, str]()
    for trial_id, stamp, problem in _by_threads(partial(_looked_at, str(runs_dir)), ids):
        if problem:
            problems[trial_id] = problem
        elif stamp is not None:
            fingerprints[trial_id] = stamp
    return fingerprints, problems


def _looked_at(runs_dir: str, trial_id: str) -> tuple[str, str | None, str]:
    try:
        return trial_id, fingerprint(_folder(runs_dir, trial_id)), ""
    except OSError as error:
        return trial_id, None, str(error)


def with_other_result(runs_dir: Path, fingerprints: Mapping[str, str]) -> list[str]:
    """The trials that have no result any more, or another one: one cheap question for each."""
    paths = (f"{_folder(str(runs_dir), trial_id)}/{INDEXED_FILES[-1]}" for trial_id in fingerprints)
    stamps = zip(fingerprints.items(), _by_threads(_stamp, paths), strict=True)
    return [trial_id for (trial_id, known), stamp in stamps if not known.endswith(stamp)]


def _folder(runs_dir: str, trial_id: str) -> str:
    return f"{runs_dir}/trials/{trial_id[:2]}/{trial_id}"


def read_rows(runs_dir: Path, ids: Sequence[str]) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Yield these trials, in their order, each with its row or with what keeps it from having one."""
    return zip(ids, _by_threads(partial(_row, runs_dir), ids), strict=True)


def _row(runs_dir: Path, trial_id: str) -> dict[str, Any] | str:
    try:
        row = row_of(RunDirectory.of(runs_dir, trial_id))
    except (CorruptRecordError, OSError) as error:
        return str(error)
    # JSON is made here, by whichever thread read the records, and sent on as it is.
    of_status = {name: row.get(name) for name in OF_STATUS}
    of_status["cause"] = (of_status["cause"] or "")[:MOST_IN_INDEX] or None
    return {"trial_id": trial_id, "state": row["state"], **of_status, "record": to_json(row).decode()}


def _by_threads(work: Callable[[str], Answer], texts: Iterable[str]) -> Iterator[Answer]:
    """Yield what ``work`` answers for each of ``texts``, in order; threads begin at the first slow part."""
    all_texts, took_s = list(texts), 0.0
    parts = (all_texts[start : start + PART] for start in range(0, len(all_texts), PART))
    while took_s < SLOW_S and (part := next(parts, None)):
        began = time.perf_counter()
        answers = [work(text) for text in part]
        took_s = time.perf_counter() - began
        yield from answers
    with ThreadPoolExecutor(THREADS) as pool:
        for answers in pool.map(lambda part: [work(text) for text in part], parts):
            yield from answers
