"""Rows of other people's results as they stand there: files, folders of trackers, or standard input."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalevec.analysis.data.runs import refuse_twins
from scalevec.analysis.data.table_file import LARGEST_FILE_BYTES, rows_of_file, rows_of_text, table_of
from scalevec.analysis.errors import DataError
from scalevec.analysis.imports import mlflow, tensorboard

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
    if path.suffix.lower() != DATABASE:
        return _given(source, rows_of_file(path))
    if not path.is_file():
        raise DataError(f"{source} is not a file")
    return _given(source, table_of(mlflow.runs_in_database(path)))


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
