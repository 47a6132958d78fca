"""What a table holds: text for people, and the same figures with every digit for programs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scalevec.analysis.errors import DataError

_LOSS = re.compile(r"\d+\.\d{4}(?!\d)")
"""Losses and differences are shown with four decimals."""


@dataclass(frozen=True)
class Table:
    """A table of text, to be written by :func:`render`.

    Attributes:
        title: The caption, without a full stop.
        columns: The heading of each column.
        rows: The cells as text, in the order of ``columns``.
        numeric: Which columns are set flush right.
        notes: Sentences that stand below.
        groups: A heading over each column, "" for none; neighbours with the same one share it.
        best: Cells (row, column), counted from zero, that are set in bold.
        breaks: Rows above which a rule stands.
        totals: Rows that sum up those above them.
        records: What CSV holds where it is more than the cells: one mapping per row, numbers with every digit
            (losses in nats/token), None for what is not there.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    notes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    best: frozenset[tuple[int, int]] = frozenset()
    breaks: frozenset[int] = frozenset()
    totals: frozenset[int] = frozenset()
    records: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def headings(self) -> list[tuple[str, str]]:
        """Group and name of each column."""
        return list(zip(self.groups or [""] * len(self.columns), self.columns, strict=True))

    @property
    def names(self) -> list[str]:
        """The name of each column, after its group where it has one."""
        return [f"{group}: {name}" if group else name for group, name in self.headings]

    def with_columns(self, columns: Sequence[str]) -> "Table":
        """The same with these columns in this order, by their names with the group or without.

        Raises :class:`DataError` for a column that it does not have.
        """
        places: list[int] = []
        for asked in columns:
            here = [at for at, name in enumerate(self.names) if asked in (name, self.columns[at])]
            if not here:
                allowed = ", ".join(dict.fromkeys(self.names))
                raise DataError(f"table {self.title!r} has no column {asked!r}; allowed: {allowed}")
            places += here
        chosen: dict[str, Any] = {
            name: tuple(values[at] for at in places)
            for name in ("columns", "groups", "numeric")
            if (values := getattr(self, name))
        }
        rows = tuple(tuple(row[at] for at in places) for row in self.rows)
        best = frozenset((row, places.index(at)) for row, at in self.best if at in places)
        return replace(self, rows=rows, best=best, **chosen)

    def rounded(self, digits: int) -> "Table":
        """The same with ``digits`` decimals of losses. Raises :class:`DataError` for more than there are."""
        if not 1 <= digits <= 4:
            raise DataError(f"digits is {digits}; allowed: 1 to 4 decimals")
        rows = (
            tuple(
                text if name.endswith("p") else _LOSS.sub(lambda loss: f"{float(loss[0]):.{digits}f}", text)
                for text, name in zip(row, self.columns, strict=True)
            )
            for row in self.rows
        )
        return replace(self, rows=tuple(rows))
