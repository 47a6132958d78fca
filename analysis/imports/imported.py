"""From tables of somebody else's to tidy rows: columns named, cells read, all problems said at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import HAS_RESULT, shortened
from scalevec.analysis.data.tidy import STATUSES, UNREAD
from scalevec.analysis.data.values import REQUIRED, is_blank, number, numbers, status, typed
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
from scalevec.analysis.imports.given_tables import GivenTable, named_by_file
from scalevec.analysis.imports.guesses import (
    PATTERNS,
    TEXTS,
    guessed,
    is_training_loss,
    quoted,
    refuse_charts,
)


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
    tables, findings.notes = named_by_file(tables)
    for table in tables:
        of_table = Findings()
        refuse_charts(table.rows)
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


def as_read(table: GivenTable, given: Sequence[str] = ()) -> ImportedTable:
    """The rows of one table with our columns beside its own, for commands that know its unit themselves.

    Columns of our names are taken as they are. Where the loss, N or tokens are not found, the rows stay as
    they are: a formula may need none of them. Raises :class:`DataError`.
    """
    rows, findings = GivenRows(table.rows.reset_index(drop=True)), Findings()
    refuse_charts(rows.given)
    ours = {name: quoted(name) for name in PATTERNS if name in rows.given}
    wanted = {name: rows.first_able(name, texts, findings) for name, texts in parsed_maps(given).items()}
    findings.refuse()
    columns = guessed(rows.given, ours | wanted, findings)
    of_arm = rows.column(columns.get("arm", ""))
    beside = rows.given.drop(columns=[of_arm] if of_arm and of_arm != "arm" else [])
    whole = typed(beside.assign(**{name: rows.cells(text) for name, text in columns.items()}))
    if any(name not in columns for name in REQUIRED):
        whole.attrs[UNREAD] = "; ".join(findings.problems)
        return ImportedTable(whole, {}, [])
    words = set(_texts(rows, columns["status"])) if columns.get("status") == "status" else {""}
    if not words <= set(STATUSES) and pd.api.types.is_numeric_dtype(whole["loss"]):
        statuses = _statuses(rows, columns, whole["loss"].astype(float), findings)
        findings.refuse()
        if "status" in columns or (statuses != "completed").any():
            whole = _ended(whole.assign(status=statuses), findings).reset_index(drop=True)
    guesses = {name: text for name, text in columns.items() if name not in ours or name in wanted}
    return ImportedTable(whole, {table.name: guesses} if guesses else {}, findings.notes)


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


def _tidy(rows: GivenRows, columns: Mapping[str, str], unit: str, findings: Findings) -> pd.DataFrame:
    if any(name not in columns for name in REQUIRED) or findings.problems:
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
    read = numbers(cells.tolist(), name)
    wrong = [
        f"row {row}: {str(cell)[:30]!r}"
        for row, (cell, value) in enumerate(zip(cells, read, strict=True), 1)
        if value is None
    ]
    if wrong:
        findings.problems.append(f"{name}={expression} holds what is no number: {shortened(wrong)}")
    return pd.Series(read, cells.index, dtype=float)


def _statuses(
    rows: GivenRows, columns: Mapping[str, str], loss: "pd.Series[float]", findings: Findings
) -> "pd.Series[str]":
    """A run that ended with a loss of nan or inf, or a blank one, has diverged; one without has failed."""
    expression = columns.get("status")
    given = _texts(rows, expression) if expression else pd.Series("", loss.index)
    read = given.map(lambda cell: "completed" if cell == "" else status(cell)).astype(object)
    unknown = given[read.isna()].unique()
    if len(unknown):
        findings.problems.append(
            f"status={expression} holds {shortened([repr(word) for word in unknown])}; known: "
            "finished, completed, crashed, failed, killed, running, diverged and words like these"
        )
    bad = (read == "completed") & ~np.isfinite(loss)
    silent = bad & rows.cells(columns["loss"]).map(lambda cell: cell is None)
    for which, what in (
        (silent, "have no loss at all: failed"),
        (bad & ~silent, "ended without a finite loss: diverged; leave them out if none was measured"),
    ):
        if which.any():
            findings.notes.append(f"rows {listed(which)} {what}")
    return read.mask(bad, "diverged").mask(silent, "failed")


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
