"""Sorting more documents than memory holds: sorted runs on the disk, of which a range is merged at a time.

A run has the names of its documents in the order of their digest, and, where their text is kept, the places
of the documents in the order of their rank, in which their text follows one another.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalevec.model.data.documents import rank
from scalevec.model.data.durable_files import write_synced

HELD_BYTES = 48 << 20
"""Of documents in memory before a run of them is written."""
NAME = np.dtype([("digest", "S32"), ("origin", "u1"), ("size", "<i8")])
PLACE = np.dtype([("rank", "S32"), ("origin", "u1"), ("size", "<i8"), ("start", "<i8")])
ORIGINS = ("test", "validation", "train")
"""The first keeps a document that several hold: what is held out is never trained on."""
_OVERHEAD = 400
"""Bytes that Python needs for a document beside its text."""
_KEY_BITS = 64

Rows = np.ndarray[tuple[int], np.dtype[Any]]
Range = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class RankedDocument:
    """A document as it waits: its rank, the split whose files held it, its text."""

    rank: bytes
    origin: str
    content: bytes


def ranges(count: int) -> list[Range]:
    """``count`` ranges of keys: the first key of each, and of the next one (None: the end)."""
    starts = [(number << _KEY_BITS) // count for number in range(count)]
    # As NumPy gives such strings back: without the zeros at their end.
    keys = [start.to_bytes(_KEY_BITS // 8).rstrip(b"\0") for start in starts]
    return list(zip(keys, [*keys[1:], None], strict=True))


class RunWriter:
    """Writes documents in runs ``0``, ``1``, ... into ``directory``; each once in a run."""

    def __init__(self, directory: Path, *, keeps_text: bool) -> None:
        self._directory, self._keeps_text = directory, keeps_text
        self._documents: dict[bytes, tuple[int, int, bytes | None]] = {}
        self._held = 0
        self.runs = 0

    def add(self, digest: bytes, split: str, size: int, content: bytes | None) -> None:
        """A document of ``size`` bytes; without ``content`` its text is not kept."""
        kept = content if self._keeps_text else None
        entry = (ORIGINS.index(split), size, kept)
        before = self._documents.get(digest)
        if before is None:
            self._held += len(kept or b"") + _OVERHEAD
        if before is None or entry[0] < before[0]:
            self._documents[digest] = entry
        if self._held > HELD_BYTES:
            self.write()

    def write(self) -> None:
        """Write what is held as a run of its own."""
        if not self._documents:
            return
        base = self._directory / str(self.runs)
        names = [(digest, origin, size) for digest, (origin, size, _) in sorted(self._documents.items())]
        write_synced(base.with_suffix(".names"), np.array(names, NAME).tobytes())
        if self._keeps_text:
            self._write_text(base)
        self.runs += 1
        self._documents.clear()
        self._held = 0

    def _write_text(self, base: Path) -> None:
        kept = sorted(
            (rank(digest), origin, content)
            for digest, (origin, _, content) in self._documents.items()
            if content is not None
        )
        sizes = np.array([len(content) for _, _, content in kept], np.int64)
        starts = np.cumsum(sizes) - sizes
        places = np.zeros(len(kept), PLACE)
        for field, column in (
            ("rank", [key for key, _, _ in kept]),
            ("origin", [origin for _, origin, _ in kept]),
            ("size", sizes),
            ("start", starts),
        ):
            places[field] = column
        write_synced(base.with_suffix(".places"), places.tobytes())
        write_synced(base.with_suffix(".text"), *(content for _, _, content in kept))


@dataclass(frozen=True)
class TextRuns:
    """All runs of a corpus. ``whole`` are those of documents as they were read, of which only those of up to
    ``longest`` bytes count; ``pieces`` those of what the others were cut into. Paths without their suffix.
    """

    whole: tuple[str, ...]
    pieces: tuple[str, ...] = ()
    longest: int = 1 << 62

    def names(self, within: Range) -> Rows:
        """The distinct documents with digests ``within`` a range, ascending, as ``NAME``."""
        return self._distinct("names", NAME, "digest", within)

    def places(self, within: Range) -> Rows:
        """The distinct documents with ranks ``within`` a range, ascending, as ``PLACE``."""
        return self._distinct("places", PLACE, "rank", within)

    def documents(self, within: Range) -> Iterator[RankedDocument]:
        """The distinct documents with ranks ``within`` a range, ascending; all their text is held."""
        waiting: list[tuple[bytes, int, memoryview]] = []
        for path, limit in self._limited():
            waiting += _texts(path, within, limit)
        # Of equal texts the origin that comes first in ``ORIGINS`` stands first, and is kept.
        waiting.sort(key=lambda document: document[:2])
        last = b""
        for key, origin, content in waiting:
            if key != last:
                yield RankedDocument(key, ORIGINS[origin], bytes(content))
            last = key

    def remove_text(self) -> None:
        """Of documents that are not needed any more."""
        for path, _ in self._limited():
            Path(f"{path}.text").unlink(missing_ok=True)

    def _limited(self) -> Iterator[tuple[str, int]]:
        yield from ((path, self.longest) for path in self.whole)
        yield from ((path, 1 << 62) for path in self.pieces)

    def _distinct(self, suffix: str, dtype: "np.dtype[Any]", key: str, within: Range) -> Rows:
        slices = [np.zeros(0, dtype)]
        for path, limit in self._limited():
            rows = _rows(f"{path}.{suffix}", dtype, key, within)
            slices.append(rows[rows["size"] <= limit])
        rows = np.concatenate(slices)
        rows = rows[np.lexsort((rows["origin"], rows[key]))]
        is_first = np.ones(len(rows), bool)
        is_first[1:] = rows[key][1:] != rows[key][:-1]
        return rows[is_first]


def keys_of(rows: Rows, field: str) -> Iterator[bytes]:
    """The 32 bytes of each key; NumPy would leave out zeros at the end."""
    column = rows[field].tobytes()
    return (column[start : start + 32] for start in range(0, len(column), 32))


def _rows(path: str, dtype: "np.dtype[Any]", key: str, within: Range) -> Rows:
    """The rows of a sorted file within a range, read from the disk."""
    if not Path(path).stat().st_size:
        return np.zeros(0, dtype)
    rows = np.memmap(path, dtype, mode="r")
    low, high = within
    start = bisect_left(rows[key], low)
    stop = len(rows) if high is None else bisect_left(rows[key], high, lo=start)
    return np.array(rows[start:stop])


def _texts(path: str, within: Range, limit: int) -> Iterator[tuple[bytes, int, memoryview]]:
    rows = _rows(f"{path}.places", PLACE, "rank", within)
    if not len(rows):
        return
    first, last = int(rows["start"][0]), int(rows["start"][-1] + rows["size"][-1])
    with Path(f"{path}.text").open("rb") as file:
        file.seek(first)
        text = memoryview(file.read(last - first))
    for key, row in zip(keys_of(rows, "rank"), rows, strict=True):
        if row["size"] <= limit:
            start = int(row["start"]) - first
            yield key, int(row["origin"]), text[start : start + int(row["size"])]


def checksum(ranks: Iterable[bytes]) -> int:
    """Of documents in any order."""
    total = 0
    for key in ranks:
        total ^= int.from_bytes(key)
    return total


def rank_of(content: bytes) -> bytes:
    """The rank of a document, from its text."""
    return rank(hashlib.sha256(content).digest())
