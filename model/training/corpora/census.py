"""The first look at a corpus: its distinct documents are counted and named, and none is kept in memory."""

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalevec.model.training.corpora.documents import LARGEST_LIMIT, SPLITS, Document, cut, piece_limit, rank
from scalevec.model.training.corpora.external_sort import Spill
from scalevec.model.training.corpora.sources.files import CorpusError
from scalevec.model.training.corpora.sources.sources import ReadDocument, read
from scalevec.model.training.corpora.specification import FORMAT_VERSION, CorpusConfig, stored_type

Progress = Callable[[str], None]

SECONDS_BETWEEN = 10.0
"""Between two messages on how far the reading is."""
_ORIGINS = ("test", "validation", "train")
"""The first keeps a document that several hold: what is held out is never trained on."""
_SIZE_BYTES = 8
_LARGEST_WHOLE = ("python-stdlib", "text")
"""Sources whose pieces have no longest but their share of all text."""


@dataclass(frozen=True)
class Census:
    """What is known of a corpus before it is made.

    limit: bytes of the longest piece. counts, sizes: distinct documents, and their bytes, by the split whose
    files held them. empty: documents without content. skipped: files that were left out.
    sample_bytes: of the training split that the tokenizer is trained on; 0: on all.
    checksum: of all distinct documents, to notice files that change meanwhile.
    """

    fingerprint: str
    limit: int
    counts: Mapping[str, int]
    sizes: Mapping[str, int]
    empty: int
    skipped: tuple[str, ...]
    sample_bytes: int
    checksum: int


def take_census(config: CorpusConfig, tokenizer: Mapping[str, Any], progress: Progress) -> Census:
    """Read all text, once or twice; ``tokenizer`` is what the fingerprint says of it.

    Raises :class:`CorpusError` for text that is missing, unreadable, not UTF-8 or empty.
    """
    with tempfile.TemporaryDirectory(prefix="scalevec-") as folder:
        counted = _count_whole(config, Spill(Path(folder, "whole")), progress)
        limit = piece_limit(counted.total, None if config.source in _LARGEST_WHOLE else LARGEST_LIMIT)
        records = counted.records
        if counted.longest > limit:
            records = _digests(config, limit, Spill(Path(folder, "pieces")), progress)
        return _census(config, tokenizer, counted, limit, records)


@dataclass(frozen=True)
class _Counted:
    """Of the documents as they were read: their digests, and the bytes of all and of the longest."""

    records: Spill
    total: int
    longest: int
    empty: int
    skipped: tuple[str, ...]


def _count_whole(config: CorpusConfig, records: Spill, progress: Progress) -> _Counted:
    skipped: list[str] = []
    empty = 0
    count = told_progress(progress, "read")
    for document in read(config, skipped.append):
        digest, size = _digest(document)
        if size:
            records.add(digest, _entry(document.split, size))
        else:
            empty += 1
        count(size)
    total = longest = 0
    for _, entry in records:
        total += _size(entry)
        longest = max(longest, _size(entry))
    if not total:
        where = ", ".join(config.files) or config.source
        raise CorpusError(f"the corpus is empty: no text in {where}")
    return _Counted(records, total, longest, empty, tuple(skipped))


def _digest(document: ReadDocument) -> tuple[bytes, int]:
    sha256, size = hashlib.sha256(), 0
    for block in document.blocks:
        sha256.update(block)
        size += len(block)
    return sha256.digest(), size


def _digests(config: CorpusConfig, limit: int, records: Spill, progress: Progress) -> Spill:
    count = told_progress(progress, "cut into pieces")
    for piece in pieces(config, limit):
        records.add(hashlib.sha256(piece.content).digest(), _entry(piece.split, len(piece.content)))
        count(len(piece.content))
    return records


def pieces(config: CorpusConfig, limit: int) -> Iterator[Document]:
    """The documents of a corpus, cut where they are longer than ``limit``; equal ones may come again."""
    unit = np.dtype(stored_type(config.vocabulary_size)).itemsize if config.tokenizer == "ids" else 1
    for document in read(config, lambda _: None):
        for content in cut(document.blocks, limit, unit):
            yield Document(content, document.split)


def _entry(split: str, size: int) -> bytes:
    return bytes([_ORIGINS.index(split)]) + size.to_bytes(_SIZE_BYTES, "big")


def _size(entry: bytes) -> int:
    return int.from_bytes(entry[1:], "big")


def _census(
    config: CorpusConfig, tokenizer: Mapping[str, Any], counted: _Counted, limit: int, records: Spill
) -> Census:
    counts, sizes = dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, 0)
    name = hashlib.sha256(b'{"documents":[')
    checksum = 0
    for position, (digest, entry) in enumerate(records):
        origin = _ORIGINS[entry[0]]
        counts[origin] += 1
        sizes[origin] += _size(entry)
        checksum ^= int.from_bytes(rank(digest))
        held_out = "" if origin == "train" else f" {origin}"
        name.update(f'{"," if position else ""}"{digest.hex()}{held_out}"'.encode())
    sample = config.sample_bytes if config.sample_bytes < sum(sizes.values()) else 0
    sampled = {**tokenizer, "sample": sample} if sample else tokenizer
    rest = {"format_version": FORMAT_VERSION, "tokenizer": sampled}
    name.update(b"]," + json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()[1:])
    return Census(name.hexdigest(), limit, counts, sizes, counted.empty, counted.skipped, sample, checksum)


def origin_byte(split: str) -> bytes:
    """What stands before the content of a document, so that the smallest is the one that is kept."""
    return bytes([_ORIGINS.index(split)])


def origin_of(payload: bytes) -> str:
    """The split whose files held the document of ``payload``."""
    return _ORIGINS[payload[0]]


def told_progress(progress: Progress, did: str, total: int = 0) -> Callable[[int], None]:
    """Return a function that counts a document of so many bytes, and says now and then how many there were.

    ``total``: the bytes of all, where they are known.
    """
    of_all = f" of {total / 1e6:,.0f}" if total else ""
    documents = size = 0
    next_at = time.monotonic() + SECONDS_BETWEEN

    def count(n_bytes: int) -> None:
        nonlocal documents, size, next_at
        documents += 1
        size += n_bytes
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + SECONDS_BETWEEN
            progress(f"{did}: {documents:,} documents, {size / 1e6:,.0f}{of_all} MB so far")

    return count
