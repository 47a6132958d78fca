"""What a table holds: text for people, and the same figures with every digit for programs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
