"""The rows of a table in a file, CSV, JSON lines or Parquet, packed or not: no cell is interpreted."""

import csv
import io
import json
import lzma
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from scalevec.analysis.data.file_kind import PACKED, encoding_of, kind_of, opened
from scalevec.analysis.data.parquet_file import read_parquet
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import plural

SEPARATORS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (*SEPARATORS, ".jsonl", ".ndjson", ".parquet")
LARGEST_FILE_BYTES = 100_000_000
csv.field_size_limit(LARGEST_FILE_BYTES)
MOST_COLUMNS, MOST_CELLS = 10_000, 40_000_000
_DEEPEST = 8
"""Levels of a JSON object whose fields become columns."""
_COMMA = re.compile(r"([+-]?)(\d{1,3}(?:\.\d{3})+|\d+),(\d+(?:e[+-]?\d+)?\s*[kmbgt]?)", re.IGNORECASE)
_POINT = re.compile(r"[+-]?\d*\.\d+(?:e[+-]?\d+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,])\d{3}(\1\d{3})*")
"""Numbers as they are grouped, by commas or points."""


def rows_of_file(path: Path) -> pd.DataFrame:
    """The rows in ``path``: cells are text, or what JSON and Parquet hold. Raises :class:`DataError`."""
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    suffix, packed = kind_of(path)
    if suffix not in SUFFIXES:
        raise DataError(f"{path} holds no table; allowed: {', '.join(SUFFIXES)}, also as {', '.join(PACKED)}")
    _require_size(str(path), path.stat().st_size)
    try:
        with opened(path, packed) as stream:
            content = stream.read(LARGEST_FILE_BYTES + 1)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    _require_size(str(path), len(content))
    if suffix == ".parquet":
        return read_parquet(path, content)
    try:
        text = content.decode(encoding_of(content))
    except UnicodeDecodeError as error:
        encoding = error.encoding.removesuffix("-le").removesuffix("-be").upper()
        raise DataError(f"{path} cannot be read as {encoding} text: {error}") from error
    return rows_of_text(str(path), text, suffix)


def _require_size(name: str, size: int) -> None:
    if size > LARGEST_FILE_BYTES:
        raise DataError(f"{name} has {size} bytes; allowed: up to {LARGEST_FILE_BYTES} (one row per trial)")


def rows_of_text(name: str, text: str, suffix: str) -> pd.DataFrame:
    """The rows of ``text``, written as files with that ``suffix`` are. Raises :class:`DataError`."""
    _require_size(name, len(text))
    if suffix in SEPARATORS:
        return _separated(name, text, SEPARATORS[suffix])
    lines = enumerate(text.split("\n"), 1)
    return table_of(_record(name, number, line) for number, line in lines if line.strip())


def _separated(name: str, text: str, usual: str) -> pd.DataFrame:
    try:
        separator = _separator(text, usual)
        header, *rows = _lines(text, separator)
    except (csv.Error, ValueError) as error:
        why = error if isinstance(error, csv.Error) else "it is empty"
        raise DataError(f"{name} cannot be read as CSV: {why}") from error
    columns = [cell.strip() or f"Unnamed: {number}" for number, cell in enumerate(header)]
    if len(columns) == 1 and re.search(r"[\s;|:,]", columns[0]):
        raise DataError(
            f"{name} has one column, {columns[0][:60]!r}: separate columns by commas, semicolons or tabs"
        )
    for number, cells in enumerate(rows, 1):
        if len(cells) != len(columns):
            raise DataError(
                f"{name}, row {number}: {plural(len(cells), 'cell')} under {plural(len(columns), 'column')}: "
                "a cut line, or a comma within a number? Write 3.51, or separate columns by semicolons"
            )
    return pd.DataFrame(_with_points(name, rows, separator), columns=columns, dtype=object)


def _lines(text: str, separator: str) -> Iterable[list[str]]:
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=separator != "\t"
    )
    return (cells for cells in reader if any(cells))


def _separator(text: str, usual: str) -> str:
    """What stands between the columns: of those that give the first two lines equally many, most of them."""
    begin = "\n".join(text.lstrip().splitlines()[:2])
    widths = {}
    for separator in dict.fromkeys((usual, ",", ";", "\t", "|")):
        first, *others = [len(cells) for cells in _lines(begin, separator)] or [0]
        widths[separator] = first if others in ([], [first]) and first > 1 else 0
    return max(widths, key=lambda separator: widths[separator])


def _with_points(name: str, rows: Sequence[list[str]], separator: str) -> Sequence[list[str]]:
    """``rows`` with decimal points where the file has decimal commas; ``3,512`` alone may be either."""
    marked = {cell for row in rows for cell in row if "," in cell or "." in cell}
    commas = {cell for cell in marked if _COMMA.fullmatch(cell)}
    grouped = {cell for cell in marked if _THOUSANDS.fullmatch(cell)}
    has_points = any(_POINT.fullmatch(cell) for cell in marked - grouped)
    if not commas or has_points or any(cell.count(",") > 1 for cell in grouped):
        return rows
    if not commas <= grouped:
        return [[_with_point(cell) for cell in row] for row in rows]
    if separator == ",":
        return rows
    cell = min(commas)
    raise DataError(
        f"{name}: {cell!r} may be {cell.replace(',', '.')} or {cell.replace(',', '')}; write numbers with "
        "decimal points and nothing between thousands"
    )


def _with_point(cell: str) -> str:
    if number := _COMMA.fullmatch(cell):
        return f"{number[1]}{number[2].replace('.', '')}.{number[3]}"
    grouped = _THOUSANDS.fullmatch(cell)
    return cell.replace(".", "") if grouped and grouped[1] == "." else cell


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
        else:  # a null was measured, and is no number: what a record lacks is None
            fields[name] = (
                _storable(value) if isinstance(value, str) else math.nan if value is None else value
            )
    return fields


def _storable(text: str) -> str:
    """``text`` with a question mark for each half of a surrogate pair, which no table can hold."""
    return text if text.isascii() else text.encode(errors="replace").decode()
