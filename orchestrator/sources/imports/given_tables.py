"""Rows of other people's results as they stand there: files, folders of trackers, or standard input."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import pandas as pd

from scalevec.analysis.data.read import (
    LARGEST_FILE_BYTES,
    PACKED,
    SUFFIXES,
    kind_of,
    rows_of_file,
    rows_of_text,
    table_of,
)
from scalevec.analysis.data.runs import refuse_twins
from scalevec.analysis.data.values import is_blank
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import shortened
from scalevec.orchestrator.sources.imports import trackers
from scalevec.orchestrator.sources.imports.column_names import PATTERNS, TEXTS, plain_name

STANDARD_INPUT = "-"
DATABASE = ".db"
SOURCE = "source"
"""The column that names the file of each row, where there are several."""


@dataclass(frozen=True)
class GivenTable:
    """``rows`` as they were given: cells are text, or what JSON and Parquet hold; none is interpreted."""

    name: str
    rows: pd.DataFrame


def read_given(source: str) -> GivenTable:
    """Read ``source``: a file, a folder of MLflow or TensorBoard, standard input for ``-``.

    Raises :class:`DataError`.
    """
    path = Path(source)
    if source == STANDARD_INPUT:
        source, rows = "standard input", _rows_of_pipe("standard input", sys.stdin)
    elif path.is_fifo():
        with path.open() as pipe:
            rows = _rows_of_pipe(source, pipe)
    elif path.is_dir() and trackers.event_files(path):
        rows = table_of(trackers.runs_in_events(path))
    elif path.is_dir():
        rows = table_of(trackers.runs_in_folder(path))
    elif path.is_file() and kind_of(path)[0] == DATABASE:
        rows = table_of(trackers.runs_in_database(path))
    else:
        rows = rows_of_file(path)
    refuse_twins(rows)
    if rows.empty:
        inside = sorted(path.iterdir()) if path.is_dir() else []
        tables = [each.name for each in inside if kind_of(each)[0] in SUFFIXES]
        files = f"; it holds {shortened(tables)}: name the files" if tables else ""
        raise DataError(f"{source} has no rows or runs; at least one is needed{files}")
    return GivenTable(source, _rows_of_steps(rows))


def _rows_of_pipe(name: str, pipe: TextIO) -> pd.DataFrame:
    try:
        text = pipe.read(LARGEST_FILE_BYTES + 1).removeprefix("\ufeff")
        text.encode()  # standard input may give what is no letter as half of one
    except UnicodeError:
        text = "\0"
    if "\0" in text:
        raise DataError(f"{name} is no text in UTF-8: a table in a pipe is CSV or JSON lines, not packed")
    if text.lstrip().startswith("["):
        raise DataError(f"{name} is a JSON list: jq -c '.[]' makes the lines of it that are read")
    return rows_of_text(name, text, ".jsonl" if text.lstrip().startswith("{") else ".csv")


def _rows_of_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """The ``rows`` of one run's log, those of a step as one where they fill each other's blanks."""
    names = {str(column): plain_name(str(column)) for column in rows}
    steps = [column for column, name in names.items() if PATTERNS["steps"].fullmatch(name)]
    of_a_run = [*TEXTS, "seed", "n_params", "n_tokens"]
    if len(steps) != 1 or any(
        PATTERNS[target].fullmatch(name) for target in of_a_run for name in names.values()
    ):
        return rows
    blank, step = rows.map(is_blank), rows[steps[0]].map(str)
    values = rows.map(str).mask(blank).groupby(step, sort=False).nunique()  # a cell may hold a list
    if not 1 < len(values) < len(rows) or (values > 1).any(axis=None):
        return rows
    return rows.mask(blank).groupby(step, sort=False).first().reset_index(drop=True).astype(object)


def named_by_file(tables: Sequence[GivenTable]) -> tuple[list[GivenTable], list[str]]:
    """``tables`` with what only the names of their files say, and notes.

    Of several, each row has its file in a column :data:`SOURCE`; a file that holds one run, or the curve of
    one, with nothing that names it, gives its name to the run.
    """
    if len(tables) == 1:
        return list(tables), []
    paths = [_without_suffixes(Path(table.name)) for table in tables]
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = [path.as_posix() for path in paths]
    if len(set(names)) < len(names):  # a.csv and a.tsv
        names = [table.name for table in tables]
    named = [
        GivenTable(table.name, table.rows.assign(**{SOURCE: table.rows.get(SOURCE, name)}))
        for table, name in zip(tables, names, strict=True)
    ]
    notes, runs = [], [_is_one_run(table.rows) for table in tables]
    if any(runs):
        of_runs = shortened([name for name, is_run in zip(names, runs, strict=True) if is_run])
        notes = [f"one run per file, of its name ({of_runs}), with checkpoints; arms by --map arm=run"]
    if not any("arm" in map(plain_name, map(str, table.rows)) for table in tables) and not all(runs):
        notes.append(f"the column {SOURCE} names the file of each row; to compare files: --map arm={SOURCE}")
    return [
        GivenTable(table.name, table.rows.assign(run=name)) if is_run else table
        for table, name, is_run in zip(named, names, runs, strict=True)
    ], notes


def _without_suffixes(path: Path) -> Path:
    for suffixes in (PACKED, SUFFIXES):
        path = path.with_suffix("") if path.suffix.lower() in suffixes else path
    return path


def _is_one_run(rows: pd.DataFrame) -> bool:
    """Whether ``rows`` are one row, or differ by the step or tokens of their logging, and are of one run."""
    names = {column: plain_name(str(column)) for column in rows}
    targets = {
        target: [column for column in names if pattern.fullmatch(names[column])]
        for target, pattern in PATTERNS.items()
    }
    along = [column for target in ("steps", "n_tokens") for column in targets[target]]
    alike = [column for target in (*TEXTS, "seed", "n_params") for column in targets[target]]
    is_curve = len(rows) == 1 or any(rows[column].is_unique for column in along)
    return is_curve and not targets["run"] and all(rows[column].nunique() <= 1 for column in alike)
