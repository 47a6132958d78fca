"""From tables of somebody else's to tidy rows: columns named, cells read, all problems said at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import HAS_RESULT, shortened
from scalevec.analysis.data.where import computed
from scalevec.analysis.errors import DataError
from scalevec.analysis.imports.checks import (
    Findings,
    checked_losses,
    checked_sizes,
    checked_units,
    listed,
    without_copies,
    without_repeats,
)
from scalevec.analysis.imports.given_tables import GivenTable
from scalevec.analysis.imports.guesses import (
    NEEDED,
    PATTERNS,
    TEXTS,
    guessed,
    is_training_loss,
)
from scalevec.analysis.imports.values import is_blank, number, status


@dataclass(frozen=True)
class ImportedTable:
    """Tidy ``rows``; by source the expression of each of our columns; what a person should know."""

    rows: pd.DataFrame
    columns: Mapping[str, Mapping[str, str]]
    notes: Sequence[str]


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows as they were ``given``, whose columns and arithmetic on them are asked for by expressions."""

    given: pd.DataFrame

    @cached_property
    def typed(self) -> pd.DataFrame:
        """The same with numbers as such, read once."""
        return typed(self.given)

    def column(self, expression: str) -> str | None:
        """The column that ``expression`` is the name of, with or without backticks."""
        name = expression.strip()
        return next((column for column in (name, name.strip("`")) if column in self.given.columns), None)

    def cells(self, expression: str) -> "pd.Series[Any]":
        """The cells of a column, or the value of an expression, a row each. Raises :class:`DataError`."""
        column = self.column(expression)
        return computed(self.typed, expression) if column is None else self.given[column]

    def first_able(self, name: str, expressions: Sequence[str], findings: Findings) -> str:
        """The first of ``expressions`` that has a value; where none has, the first one's problem is added."""
        problems = []
        for expression in expressions:
            try:
                self.cells(expression)
            except DataError as error:
                problems.append(str(error))
            else:
                return expression
        findings.problems.append(f"--map {name}={expressions[0]}: {problems[0]}")
        return expressions[0]


def imported(tables: Sequence[GivenTable], given: Sequence[str] = (), unit: str = "nats") -> ImportedTable:
    """Tidy rows of ``tables``, one below the other.

    Args:
        tables: As they were read; each has columns of its own.
        given: ``NAME=EXPRESSION`` of our columns (``loss=val/loss``); of several for one name the first that
            a table can compute counts.
        unit: Of the losses, ``nats``, ``bits``, ``perplexity`` or ``bits-per-byte``: they become nats/token,
            bits per byte where a column ``bytes_per_token`` is known.

    Returns:
        The rows, with the columns that were found, and all others by the names that they had.

    Raises:
        DataError: What is ambiguous, missing or cannot be read, all of it, with rows.
    """
    wanted, columns, findings, parts = parsed_maps(given), {}, Findings(), {}
    for table in tables:
        of_table = Findings()
        rows = GivenRows(table.rows.reset_index(drop=True))
        given_here = {name: rows.first_able(name, texts, of_table) for name, texts in wanted.items()}
        chosen = guessed(rows.given, given_here, of_table)
        columns[table.name] = chosen
        parts[table.name] = _tidy(rows, chosen, unit, of_table)
        findings.add(table.name, of_table)
    findings.refuse()
    together = _joined(parts, findings)
    findings.refuse()
    return ImportedTable(together, columns, findings.notes)


def _joined(parts: Mapping[str, pd.DataFrame], findings: Findings) -> pd.DataFrame:
    """The rows of all sources one below the other, each run once, with losses of one unit."""
    several = len(parts) > 1
    labels = [
        f"{name} row {row + 1}" if several else f"row {row + 1}"
        for name, part in parts.items()
        for row in part.index
    ]
    rows = pd.concat(parts.values()).set_axis(labels)
    checked_units(rows, findings)
    if several:
        common = [name for name in PATTERNS if all(name in part for part in parts.values())]
        rows = without_repeats(rows, common, findings)
    return rows.reset_index(drop=True)


def parsed_maps(given: Sequence[str]) -> dict[str, list[str]]:
    """``NAME=EXPRESSION`` by name. Raises :class:`DataError`."""
    wanted: dict[str, list[str]] = {}
    for text in given:
        name, _, expression = (part.strip() for part in text.partition("="))
        if not name.isidentifier() or not expression:
            raise DataError(
                f"--map is {text!r}; allowed: NAME=COLUMN or NAME=EXPRESSION, as in loss=val/loss; names: "
                f"{', '.join(PATTERNS)}"
            )
        wanted.setdefault(name, []).append(expression)
    return wanted


def typed(rows: pd.DataFrame) -> pd.DataFrame:
    """Cells as they were given, with columns of numbers as such and all others as text."""
    columns = {}
    for name in rows.columns:
        read = [None if is_blank(cell) else number(cell) for cell in rows[name]]
        known = [
            blank or value is not None for blank, value in zip(map(is_blank, rows[name]), read, strict=True)
        ]
        columns[name] = (
            pd.Series(read, dtype=float) if all(known) else rows[name].map(str, na_action="ignore")
        )
    return pd.DataFrame(columns)


def _tidy(rows: GivenRows, columns: Mapping[str, str], unit: str, findings: Findings) -> pd.DataFrame:
    if any(name not in columns for name in NEEDED) or findings.problems:
        return pd.DataFrame()
    table = pd.DataFrame(index=rows.given.index)
    for name, expression in columns.items():
        if name != "status":
            table[name] = (
                _texts(rows, expression)
                if name in TEXTS or name not in PATTERNS
                else _numbers(rows, name, expression, findings)
            )
    table["status"] = _statuses(rows, columns, table["loss"], findings)
    if "seed" in table:
        table["seed"] = _seeds(table["seed"], table["status"], findings)
    if is_training_loss(columns["loss"]):
        findings.notes.append(
            f"{columns['loss']} looks like the loss of the training text, not of held-out text"
        )
    checked_sizes(table, findings)
    table["loss"] = checked_losses(table, unit, findings)
    whole = pd.concat([table, _others(rows, columns)], axis=1)
    return _ended(without_copies(whole, findings), findings)


def _ended(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """The runs with a result. Of others nobody planned that they be there: they leave no pair incomplete."""
    without = ~table["status"].isin(HAS_RESULT)
    for name, rows in table[without].groupby("status"):
        findings.notes.append(f"left out: {len(rows)} {name} (rows {shortened((rows.index + 1).tolist())})")
    return table[~without]


def _texts(rows: GivenRows, expression: str) -> "pd.Series[str]":
    cells = rows.cells(expression)
    return cells.map(lambda cell: "" if is_blank(cell) else str(cell).strip()).astype(object)


def _numbers(rows: GivenRows, name: str, expression: str, findings: Findings) -> "pd.Series[float]":
    cells = rows.cells(expression)
    if name == "seed":  # may be a name
        return cells
    read = [None if is_blank(cell) else number(cell) for cell in cells]
    wrong = [
        f"row {row}: {str(cell)[:30]!r}"
        for row, (cell, value) in enumerate(zip(cells, read, strict=True), 1)
        if not is_blank(cell) and value is None
    ]
    if wrong:
        findings.problems.append(f"{name}={expression} holds what is no number: {shortened(wrong)}")
    return pd.Series(read, cells.index, dtype=float)


def _statuses(
    rows: GivenRows, columns: Mapping[str, str], loss: "pd.Series[float]", findings: Findings
) -> "pd.Series[str]":
    """A run that ended with a loss of nan or inf has diverged; one that ended without any failed."""
    expression = columns.get("status")
    given = _texts(rows, expression) if expression else pd.Series("", loss.index)
    read = given.map(lambda cell: "completed" if cell == "" else status(cell)).astype(object)
    unknown = given[read.isna()].unique()
    if len(unknown):
        findings.problems.append(
            f"status={expression} holds {shortened([repr(word) for word in unknown])}; known: "
            "finished, completed, crashed, failed, killed, running, diverged and words like these"
        )
    is_column = rows.column(columns["loss"]) is not None
    silent = rows.cells(columns["loss"]).map(is_blank) if is_column else loss.isna()
    ended = read == "completed"
    if (ended & silent).any():
        findings.notes.append(f"rows {listed(ended & silent)} ended without a loss: failed")
    return read.mask(ended & ~np.isfinite(loss), "diverged").mask(ended & silent, "failed")


def _seeds(cells: "pd.Series[Any]", statuses: "pd.Series[str]", findings: Findings) -> "pd.Series[Any]":
    """Whole numbers, else names; a run without one repeats no other."""
    blank = cells.map(is_blank)
    missing = blank & (statuses == "completed")
    if missing.any():
        findings.notes.append(f"rows {listed(missing)} have no seed: they pair with no run")
    read = cells[~blank].map(number)
    if read.notna().all() and (read % 1 == 0).all():
        return cells.map(lambda cell: None if is_blank(cell) else int(number(cell) or 0)).astype("Int64")
    return cells.map(lambda cell: None if is_blank(cell) else str(cell)).astype(object)


def _others(rows: GivenRows, columns: Mapping[str, str]) -> pd.DataFrame:
    """All columns that are none of ours, numbers as such; one with a name of ours gets another."""
    taken = {rows.column(expression) for expression in columns.values()}
    rest = rows.typed[[name for name in rows.typed.columns if name not in taken]]
    return rest.rename(
        columns={name: f"given.{name}" for name in rest.columns if name in {*columns, "status"}}
    )


def repeated(columns: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The options ``--map`` that choose the same columns again, each once."""
    maps = (f"{name}={expression}" for of_table in columns.values() for name, expression in of_table.items())
    return list(dict.fromkeys(maps))


def mapping_lines(columns: Mapping[str, Mapping[str, str]], rows: pd.DataFrame) -> Iterator[str]:
    """What was taken for what, by table, with the first value of each of our columns."""
    for source, of_table in columns.items():
        yield f"{source}:"
        for name, expression in of_table.items():
            first = rows.get(name, pd.Series(dtype=object)).dropna()
            example = f"  (as in {first.iloc[0]})" if len(first) else ""
            yield f"  {name:16} {expression}{example}"
