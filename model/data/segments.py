"""Tokens of a split that stand in several places of files that were there before."""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

TokenIds = np.ndarray[tuple[int], np.dtype[np.integer[Any]]]
Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]
COLUMNS = 3
"""Of a table of segments: the number of the file, the first token in it, how many they are."""


class Segments:
    """The tokens of ``table`` (shape [segments, 3]) in ``files`` (each of shape [tokens]), one after another.

    Any token is as quick to find as the first: what is asked for is read, and nothing else.
    Like an array, it has a length, and gives an array for an array of places (not negative), and a part of
    itself for a slice.
    """

    def __init__(self, files: Sequence[TokenIds], table: Table, within: range | None = None) -> None:
        self._files, self._table = files, table
        self._ends = np.cumsum(table[:, 2])
        total = int(self._ends[-1]) if len(table) else 0
        self._within = range(total) if within is None else within
        self.dtype = files[0].dtype

    def __len__(self) -> int:
        return len(self._within)

    @overload
    def __getitem__(self, index: slice) -> "Segments": ...

    @overload
    def __getitem__(self, index: "int | np.ndarray[Any, Any]") -> TokenIds: ...

    def __getitem__(self, index: "slice | int | np.ndarray[Any, Any]") -> Any:
        if isinstance(index, slice):
            return Segments(self._files, self._table, self._within[index])
        places = np.asarray(index)
        if places.size and not (int(places.min()) >= 0 and int(places.max()) < len(self)):
            raise IndexError(f"{len(self):,} tokens, none at {places.min()} to {places.max()}")
        places = self._within.start + places * self._within.step
        segment = np.searchsorted(self._ends, places, side="right")
        number, first, length = (self._table[segment, column] for column in range(COLUMNS))
        in_file = first + places - (self._ends[segment] - length)
        tokens = np.empty(places.shape, self.dtype)
        for file in np.unique(number):
            here = number == file
            tokens[here] = self._files[file][in_file[here]]
        return tokens

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> TokenIds:
        """All tokens in memory."""
        return self[np.arange(len(self))].astype(dtype or self.dtype)


TokenArray = TokenIds | Segments
"""Tokens of a split, shape [tokens]."""
