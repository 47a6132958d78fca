"""Rows of other people's results as they stand there: files, folders of trackers, or standard input."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalevec.analysis.data.file_kind import PACKED, kind_of
from scalevec.analysis.data.runs import refuse_twins, shortened
from scalevec.analysis.data.table_file import (
    LARGEST_FILE_BYTES,
    SUFFIXES,
    rows_of_file,
    rows_of_text,
    table_of,
)
from scalevec.analysis.errors import DataError
from scalevec.analysis.imports import mlflow, tensorboard
from scalevec.analysis.imports.guesses import PATTERNS, TEXTS, plain_name

STANDARD_INPUT = "-"
DATABASE = ".db"


@dataclass(frozen=True)
class GivenTable:
    """``rows`` as they were given: cells are text, or what JSON and Parquet hold; none is interpreted."""

    name: str
    rows: pd.DataFrame


def read_given(source: str) -> GivenTable:
    """Read ``source``: a file, a folder of MLflow or TensorBoard, standard input for ``-``.

    Raises :class:`DataError`.
    """
    if source == STANDARD_INPUT:
        text = sys.stdin.read(LARGEST_FILE_BYTES + 1)
        suffix = ".jsonl" if text.lstrip().startswith("{") else ".csv"
        return _given("standard input", rows_of_text("standard input", text, suffix))
    path = Path(source)
    if path.is_dir():
        return _given(source, table_of(_runs_in(path)))
    if not path.is_file() or kind_of(path)[0] != DATABASE:
        return _given(source, rows_of_file(path))
    return _given(source, table_of(mlflow.runs_in_database(path)))


def named_by_file(tables: Sequence[GivenTable]) -> tuple[Sequence[GivenTable], list[str]]:
    """``tables``, and what was done: where each is the curve of one run, it is named after its file."""
    shapes = {frozenset(table.rows) for table in tables}
    if len(tables) == 1 or len(shapes) > 1 or not all(_is_one_run(table.rows) for table in tables):
        return tables, []
    paths = [_without_suffixes(Path(table.name)) for table in tables]
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = [path.as_posix() for path in paths]
    note = f"one run per file, of its name ({shortened(names)}), with checkpoints; arms by --map arm=run"
    runs = zip(tables, names, strict=True)
    return [GivenTable(table.name, table.rows.assign(run=run, cluster=run)) for table, run in runs], [note]


def _without_suffixes(path: Path) -> Path:
    for suffixes in (PACKED, SUFFIXES):
        path = path.with_suffix("") if path.suffix.lower() in suffixes else path
    return path


def _is_one_run(rows: pd.DataFrame) -> bool:
    """Whether ``rows`` differ by the step or tokens that they were logged at, and all are of one run."""
    names = {column: plain_name(str(column)) for column in rows}
    by_target = {
        target: [column for column in names if pattern.fullmatch(names[column])]
        for target, pattern in PATTERNS.items()
    }
    along = [column for target in ("steps", "n_tokens") for column in by_target[target]]
    alike = [column for target in (*TEXTS, "seed", "n_params") for column in by_target[target]]
    is_curve = len(rows) > 1 and any(rows[column].is_unique for column in along)
    return is_curve and not by_target["run"] and all(rows[column].nunique() == 1 for column in alike)


def is_tracker(source: str) -> bool:
    """Whether ``source`` is a tracker's folder or database, which has histories too."""
    return Path(source).is_dir() or Path(source).suffix.lower() == DATABASE


def read_history(source: str) -> GivenTable:
    """What runs measured, a row per value or per step of a run. Raises as :func:`read_given`."""
    path = Path(source)
    if not is_tracker(source):
        return read_given(source)
    if path.suffix.lower() == DATABASE:
        return _given(source, table_of(mlflow.history_in_database(path)))
    of_events = tensorboard.has_events(path)
    read = tensorboard.history_in_events if of_events else mlflow.history_in_folder
    return _given(source, table_of(read(path)))


def _runs_in(folder: Path) -> Iterable[Mapping[str, Any]]:
    if tensorboard.has_events(folder):
        return tensorboard.runs_in_events(folder)
    return mlflow.runs_in_folder(folder)


def _given(name: str, rows: pd.DataFrame) -> GivenTable:
    refuse_twins(rows)
    if rows.empty:
        raise DataError(f"{name} has no rows or runs; at least one is needed")
    return GivenTable(name, rows)
