"""What a table holds: text for people, and the same figures with every digit for programs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Table:
    """A table of text: ``numeric`` says which columns are set flush right, ``notes`` stand below.

    ``groups`` is a heading over each column ("" for none), ``best`` the cells (row, column) that are set in
    bold, ``breaks`` the rows above which a rule stands. ``records``, where there are any, are what CSV
    holds: one mapping a row, numbers with every digit, None for what is not there.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    notes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    best: frozenset[tuple[int, int]] = frozenset()
    breaks: frozenset[int] = frozenset()
    records: tuple[Mapping[str, Any], ...] = field(default=())
