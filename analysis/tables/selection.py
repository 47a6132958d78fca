"""A part of a table: some of its columns, fewer digits."""

import re
from collections.abc import Sequence
from dataclasses import replace

from scalevec.analysis.errors import DataError
from scalevec.analysis.tables.content import Table

_LOSS = re.compile(r"\d+\.\d{4}(?!\d)")
"""Losses and differences are shown with four decimals."""
_NO_LOSS = re.compile("rate|p$")


def selected(table: Table, columns: Sequence[str] | None = None, digits: int | None = None) -> Table:
    """Return ``table`` with these ``columns`` in this order, its losses with ``digits`` decimals.

    Raises :class:`DataError` for a column that it does not have, and for more decimals than there are.
    """
    if digits is not None:
        table = _rounded(table, digits)
    return table if not columns else _cut(table, [at for name in columns for at in _places(table, name)])


def headings(table: Table) -> list[tuple[str, str]]:
    """Group and name of each column."""
    return list(zip(table.groups or [""] * len(table.columns), table.columns, strict=True))


def _places(table: Table, name: str) -> list[int]:
    names = [{column, f"{group}: {column}"} for group, column in headings(table)]
    places = [at for at, known in enumerate(names) if name in known]
    if not places:
        allowed = dict.fromkeys(
            f"{group}: {column}" if group else column for group, column in headings(table)
        )
        raise DataError(f"table {table.title!r} has no column {name!r}; allowed: {', '.join(allowed)}")
    return places


def _cut(table: Table, places: Sequence[int]) -> Table:
    return replace(
        table,
        columns=tuple(table.columns[at] for at in places),
        groups=tuple(table.groups[at] for at in places) if table.groups else (),
        numeric=tuple(table.numeric[at] for at in places),
        rows=tuple(tuple(row[at] for at in places) for row in table.rows),
        best=frozenset((row, places.index(at)) for row, at in table.best if at in places),
    )


def _rounded(table: Table, digits: int) -> Table:
    if not 1 <= digits <= 4:
        raise DataError(f"digits is {digits}; allowed: 1 to 4 decimals")
    is_of_losses = [not _NO_LOSS.search(name) for name in table.columns]
    rows = (
        tuple(
            _LOSS.sub(lambda match: f"{float(match[0]):.{digits}f}", text) if rounds else text
            for text, rounds in zip(row, is_of_losses, strict=True)
        )
        for row in table.rows
    )
    return replace(table, rows=tuple(rows))
