"""Rows of other people's results as they stand there: files, folders of trackers, or standard input."""

import io
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalevec.analysis.data.file_kind import kind_of, opened
from scalevec.analysis.data.parquet_file import read_parquet
from scalevec.analysis.data.runs import refuse_twins
from scalevec.analysis.data.tidy import LARGEST_FILE_BYTES
from scalevec.analysis.errors import DataError
from scalevec.analysis.imports import mlflow, tensorboard

STANDARD_INPUT = "-"
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
DATABASE = ".db"
MOST_COLUMNS, MOST_CELLS = 10_000, 40_000_000
_DEEPEST = 8
"""Levels of a JSON object whose fields become columns."""


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
        _require_size("standard input", len(text))
        read = _json_lines if text.lstrip().startswith("{") else _csv
        return _given("standard input", read("standard input", text))
    path = Path(source)
    if path.is_dir():
        return _given(source, table_of(_runs_in(path)))
    if not path.is_file():
        raise DataError(f"{source} is not a file")
    suffix, packed = kind_of(path)
    if suffix not in (*SUFFIXES, DATABASE):
        raise DataError(
            f"{source} holds no table; allowed: {', '.join((*SUFFIXES, DATABASE))}, or - (standard input)"
        )
    if suffix == DATABASE:
        return _given(source, table_of(mlflow.runs_in_database(path)))
    _require_size(source, path.stat().st_size)
    if suffix == ".parquet":
        return _given(source, _as_objects(read_parquet(path)))
    try:
        with opened(path, packed) as stream:
            text = stream.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source} cannot be read as UTF-8 text: {error}") from error
    if suffix in (".csv", ".tsv"):
        return _given(source, _csv(source, text, "\t" if suffix == ".tsv" else ","))
    return _given(source, _json_lines(source, text))


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


def _require_size(name: str, size: int) -> None:
    if size > LARGEST_FILE_BYTES:
        raise DataError(f"{name} has {size} bytes; allowed: up to {LARGEST_FILE_BYTES} (one row per run)")


def _csv(name: str, text: str, separator: str = ",") -> pd.DataFrame:
    try:
        return pd.read_csv(io.StringIO(text), sep=separator, dtype=str, keep_default_na=False)
    except ValueError as error:  # pandas' parser errors are ValueErrors
        raise DataError(f"{name} cannot be read as CSV: {error}") from error


def _as_objects(table: pd.DataFrame) -> pd.DataFrame:
    """``table`` with None where a value is missing; a NaN among numbers stays one."""
    columns = {}
    for name in table.columns:
        column = table[name].astype(object)
        missing = column.map(lambda cell: cell is None or cell is pd.NA or cell is pd.NaT)
        columns[name] = column.mask(missing, None)
    return pd.DataFrame(columns, index=table.index)


def _json_lines(name: str, text: str) -> pd.DataFrame:
    return table_of(
        _record(name, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()
    )


def table_of(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """A table of records with the fields of their records as ``outer.inner``; a missing one is None."""
    flat = [_flat(record) for record in records]
    names = list(dict.fromkeys(name for record in flat for name in record))
    if len(names) > MOST_COLUMNS or len(names) * len(flat) > MOST_CELLS:
        raise DataError(
            f"{len(flat)} rows of {len(names)} columns; allowed: up to {MOST_COLUMNS} columns and "
            f"{MOST_CELLS} cells"
        )
    return pd.DataFrame(
        {name: pd.Series([record.get(name) for record in flat], dtype=object) for name in names}
    )


def _record(name: str, number: int, line: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}:{number}: not JSON: {error}; one object on every line is needed") from error
    if not isinstance(record, dict):
        raise DataError(f"{name}:{number}: {line[:40]}; one JSON object on every line is needed")
    return record


def _flat(record: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """``value`` wrappers, as W&B writes its configurations, are taken off."""
    fields: dict[str, Any] = {}
    for key, value in record.items():
        name = f"{prefix}{_storable(str(key))}"
        if isinstance(value, dict) and set(value) <= {"value", "desc"} and "value" in value:
            value = value["value"]
        if isinstance(value, dict) and depth < _DEEPEST:
            fields |= _flat(value, f"{name}.", depth + 1)
        elif isinstance(value, dict | list):
            fields[name] = json.dumps(value)
        else:
            fields[name] = _storable(value) if isinstance(value, str) else value
    return fields


def _storable(text: str) -> str:
    """``text`` with a question mark for each half of a surrogate pair, which no table can hold."""
    return text if text.isascii() else text.encode(errors="replace").decode()
