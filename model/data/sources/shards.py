"""The source of pre-tokenized binary shards: token ids as they were written, separated into documents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scalevec.model.data.sources.files import BLOCK, Blocks, CorpusError, opened

DTYPES = {"uint16": "<u2", "uint32": "<u4"}
"""What a shard may hold, by name: little-endian ids without a header."""
LONGEST_DOCUMENT = 1 << 18
"""Tokens; a longer run without a separator counts as several documents."""

Ids = np.ndarray[tuple[int], np.dtype[np.unsignedinteger[Any]]]


def shards(path: Path, dtype: str, vocabulary_size: int, separator: int, stored: str) -> Iterator[Blocks]:
    """The documents between separators as ids of the type ``stored``, as the corpus will hold them.

    Raises :class:`CorpusError` for a file that ends within an id, or holds one outside the vocabulary.
    """
    pending: list[Ids] = []
    continued = False
    for ids in _blocks(path, np.dtype(DTYPES[dtype]), vocabulary_size):
        *ended, rest = np.split(ids, np.flatnonzero(ids == separator) + 1)
        for part in ended:
            yield from _documents([*pending, part[:-1]], stored, continued=continued)
            pending, continued = [], False
        pending.append(rest)
        if sum(map(len, pending)) >= LONGEST_DOCUMENT:
            *whole, rest = _in_pieces(np.concatenate(pending))
            yield from ((piece.astype(stored).tobytes(),) for piece in whole)
            pending, continued = [rest], True
    if any(map(len, pending)):
        yield from _documents(pending, stored, continued=continued)


def _documents(parts: list[Ids], stored: str, *, continued: bool) -> Iterator[Blocks]:
    """The document that ``parts`` make up, in pieces if it is too long; the end of one if ``continued``."""
    pieces = [piece for piece in _in_pieces(np.concatenate(parts)) if len(piece)]
    if not pieces and not continued:
        yield (b"",)
    for piece in pieces:
        yield (piece.astype(stored).tobytes(),)


def _in_pieces(ids: Ids) -> list[Ids]:
    """``ids`` in pieces of the longest document; the last is shorter, or empty."""
    return np.split(ids, range(LONGEST_DOCUMENT, len(ids) + 1, LONGEST_DOCUMENT))


def _blocks(path: Path, dtype: "np.dtype[Any]", vocabulary_size: int) -> Iterator[Ids]:
    """The ids of the file at ``path`` in blocks, each checked."""
    position = 0
    with opened(path) as file:
        while block := file.read(BLOCK):
            if len(block) % dtype.itemsize:
                raise broken_shard(path, position * dtype.itemsize + len(block), dtype)
            ids = np.frombuffer(block, dtype)
            check_ids(path, ids, vocabulary_size, position)
            position += len(ids)
            yield ids


def broken_shard(path: Path, size: int, dtype: "np.dtype[Any]") -> CorpusError:
    """What is said of a file of ``size`` bytes that ends within an id."""
    return CorpusError(
        f"corpus file {str(path)!r} has {size:,} bytes, which is no whole number of {dtype.itemsize}-byte "
        f"token ids ({dtype.name}); it is damaged or of another type"
    )


def check_ids(
    path: Path, ids: "np.ndarray[tuple[int], np.dtype[Any]]", vocabulary_size: int, position: int
) -> None:
    """Raise :class:`CorpusError` unless each of ``ids``, which begin at token ``position``, is a token."""
    outside = np.flatnonzero((ids < 0) | (ids >= vocabulary_size))
    if len(outside):
        raise CorpusError(
            f"corpus file {str(path)!r} holds the token id {ids[outside[0]]} at token "
            f"{position + outside[0]:,}; allowed: ids below the vocabulary size {vocabulary_size:,}. "
            "It is damaged, of another type, or made with another tokenizer"
        )
