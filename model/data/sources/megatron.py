"""Megatron's indexed datasets: token ids in NAME.bin, where the documents begin and end in NAME.idx."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalevec.model.data.sources.files import CorpusError, opened

MAGIC = b"MMIDIDX\x00\x00"
DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""What the data file holds, by its code in the index; the other codes are no whole numbers."""
_VERSION = 1
_HEADER = struct.Struct("<9sQBQQ")
_ROWS_AT_ONCE = 1 << 20

Numbers = np.ndarray[tuple[int], np.dtype[Any]]


@dataclass(frozen=True)
class MegatronIndex:
    """``dtype`` of the ids; ``ends``: the token behind each document, ascending, shape [documents]."""

    dtype: str
    ends: Numbers


def data_path(index: Path) -> Path:
    """The file of the token ids."""
    return index.with_suffix(".bin")


def read_index(path: Path) -> MegatronIndex:
    """The index at ``path`` (NAME.idx), checked against the size of its data.

    Layout: magic, version (uint64), code of the type (uint8), numbers of sequences and of entries of the
    document index (uint64 each); then of each sequence its tokens (int32) and its first byte (int64), and
    the sequence with which each document begins (int64), their number at the end. Modes of sequences
    (int8) may follow.

    Raises :class:`CorpusError` for a file that is something else, is damaged, or whose data is missing.
    """
    with opened(path) as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(MAGIC):
        raise _unusable(path, "it does not begin as such an index does")
    _, version, code, n_sequences, n_entries = _HEADER.unpack(head)
    if version != _VERSION:
        raise _unusable(path, f"its version is {version}; 1 is needed")
    if code not in DTYPES:
        raise _unusable(path, f"the code of its type is {code}; allowed: {', '.join(map(str, DTYPES))}")
    sizes_end = _HEADER.size + 4 * n_sequences
    pointers_end = sizes_end + 8 * n_sequences
    needed, size = pointers_end + 8 * n_entries, path.stat().st_size
    if size not in (needed, needed + n_sequences) or n_entries < 1:
        raise _unusable(
            path, f"it has {size:,} bytes, not what {n_sequences:,} sequences and {n_entries:,} entries need"
        )
    tokens = _mapped(path, "<i4", _HEADER.size, n_sequences)
    starts = _mapped(path, "<i8", sizes_end, n_sequences)
    documents = _mapped(path, "<i8", pointers_end, n_entries)
    ends = _checked_ends(path, tokens, starts, np.dtype(DTYPES[code]).itemsize)
    return MegatronIndex(DTYPES[code], ends[_checked_documents(path, documents, n_sequences)])


def _unusable(path: Path, fault: str) -> CorpusError:
    return CorpusError(
        f"corpus file {str(path)!r} is no index of a Megatron dataset: {fault}; name the .idx file beside "
        "its .bin, and fetch it again if it is damaged"
    )


def _mapped(path: Path, dtype: str, offset: int, count: int) -> Numbers:
    if not count:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", offset=offset, shape=(count,))


def _checked_ends(path: Path, tokens: Numbers, starts: Numbers, itemsize: int) -> Numbers:
    """The token behind each sequence, after one for none: sequences have to follow one another."""
    ends = np.zeros(len(tokens) + 1, np.int64)
    for first in range(0, len(tokens), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        sizes = tokens[rows].astype(np.int64)
        if (sizes < 0).any():
            raise _unusable(path, f"a sequence after number {first:,} has fewer than no tokens")
        begins = ends[first] + np.cumsum(sizes) - sizes
        ends[first + 1 : first + 1 + len(sizes)] = begins + sizes
        if (starts[rows] != begins * itemsize).any():
            raise _unusable(path, f"a sequence after number {first:,} does not follow the one before it")
    data = data_path(path)
    size = data.stat().st_size if data.is_file() else 0
    if size != int(ends[-1]) * itemsize:
        raise CorpusError(
            f"corpus file {str(data)!r} has {size:,} bytes; its index says {int(ends[-1]) * itemsize:,}; "
            "it is missing, damaged, or belongs to another index"
        )
    return ends


def _checked_documents(path: Path, documents: Numbers, n_sequences: int) -> Numbers:
    """How many sequences there are up to the end of each document."""
    entries = np.array(documents)
    if entries[0] != 0 or entries[-1] != n_sequences or (np.diff(entries) < 0).any():
        raise _unusable(path, "its documents do not follow one another from the first sequence to the last")
    return entries[1:]
