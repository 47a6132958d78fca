"""Which documents a corpus of text has, in which split each is, and where they wait to be tokenized.

They are told apart and split by content alone: neither file names nor their order matter, and equal content
gives equal documents, splits and order. Every chunk of the input has a file of its own in the folder of a
preparation, with its documents one after another; memory holds a row of numbers for each. Documents that are
too long are cut there, without a copy; then they are tokenized in their order.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from scalevec.model.data import FORMAT_VERSION, SPLITS, CorpusConfig, CorpusError, held_out
from scalevec.model.data.sources import CorpusFile, documents, input_chunks, require_unchanged
from scalevec.model.data.system import Meter, Progress, Workers

LONG_BYTES = 10**9
"""From here on reading takes so long that it is said beforehand: a large file has one process."""
SMALLEST_LIMIT = 512
FEWEST_PIECES = 512
LARGEST_LIMIT = 1 << 20
"""Bytes of the longest piece, except of ``text`` and ``python-stdlib``, whose rule was there before."""
_LARGEST_WHOLE = ("python-stdlib", "text")
_SPLIT_SALT = b"scalevec split 1"
_KEY_BYTES = 32

FILLED = ("test", "validation", "train")
"""The order in which splits take documents: what is held out is never trained on."""
ROW = np.dtype(
    [("digest", f"S{_KEY_BYTES}"), ("split", "u1"), ("size", "<i8"), ("chunk", "<u4"), ("offset", "<i8")]
)
"""All that memory holds of a document: the SHA-256 of its content, its split (by its number in ``FILLED``),
its bytes, and where its content waits: from ``offset`` on in the file of an input chunk."""

Row = tuple[bytes, int, int, int, int]
Rows = np.ndarray[tuple[int], np.dtype[Any]]


def piece_limit(total: int, source: str) -> int:
    """Bytes of the longest piece: 1/512 of all distinct text (``total`` bytes), but 512 at least.

    A corpus of one file can then be split as well, and no document is so large that it unbalances the splits.
    """
    limit = max(SMALLEST_LIMIT, total // FEWEST_PIECES)
    return limit if source in _LARGEST_WHOLE else min(limit, LARGEST_LIMIT)


def cut(file: BinaryIO, size: int, limit: int, unit: int = 1) -> Iterator[bytes]:
    """The next ``size`` bytes of ``file`` in consecutive pieces of at most ``limit`` (8 or more) bytes.

    Text ends at a line where it can, else between two characters. Token ids (``unit`` bytes each, if more
    than one) end between two ids.
    """
    position = file.tell()
    while size:
        file.seek(position)
        content = file.read(min(limit + 1, size))
        if len(content) < min(limit + 1, size):
            raise _damaged(Path(file.name))
        end = len(content)
        if end > limit and unit > 1:
            end = limit // unit * unit
        elif end > limit:
            end = content.rfind(b"\n", 0, limit) + 1 or limit
            while content[end] & 0xC0 == 0x80:  # inside a UTF-8 character
                end -= 1
        yield content[:end]
        position, size = position + end, size - end


def dedup(rows: Rows) -> Rows:
    """Each document once, in the order of the digests; of equal ones that which is first in ``FILLED``."""
    rows = rows[np.lexsort((rows["split"], rows["digest"]))]
    is_first = np.ones(len(rows), bool)
    is_first[1:] = rows["digest"][1:] != rows["digest"][:-1]
    return rows[is_first]


def by_split(rows: Rows) -> dict[str, Rows]:
    """The rows of each split."""
    return {name: rows[rows["split"] == FILLED.index(name)] for name in SPLITS}


def corpus_fingerprint(rows: Rows, tokenizer: Mapping[str, Any]) -> str:
    """SHA-256 (64 hex digits) of format, documents, the splits whose files held them, and the tokenizer."""
    sha256 = hashlib.sha256(b'{"documents":[')
    suffixes = [f" {name}" if name != "train" else "" for name in FILLED]
    comma = ""
    for key, split in zip(_keys(rows["digest"]), rows["split"].tolist(), strict=True):
        sha256.update(f'{comma}"{key.hex()}{suffixes[split]}"'.encode())
        comma = ","
    rest = {"format_version": FORMAT_VERSION, "tokenizer": tokenizer}
    sha256.update(b"]," + json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()[1:])
    return sha256.hexdigest()


def _keys(column: Rows) -> Iterator[bytes]:
    """The 32 bytes of each key; a number of NumPy would leave out zeros at the end."""
    content = column.tobytes()
    return (content[start : start + _KEY_BYTES] for start in range(0, len(content), _KEY_BYTES))


def rank(digest: bytes) -> bytes:
    """What a document is ranked by: a salted hash of the SHA-256 of its content (32 bytes)."""
    return hashlib.sha256(_SPLIT_SALT + digest).digest()


def ranked(rows: Rows, drawn: Sequence[str], quota: float) -> Rows:
    """The documents in the order in which they are stored, that of their ranks, and in their final splits.

    rows: distinct documents in the splits whose files held them. drawn: the splits that are filled from those
    of training, test before validation, each with ``quota`` bytes.
    """
    ranks = np.fromiter((rank(key) for key in _keys(rows["digest"])), f"S{_KEY_BYTES}", len(rows))
    order = np.argsort(ranks, kind="stable")
    rows, ranks = rows[order], ranks[order]
    is_drawn_from = rows["split"] == FILLED.index("train")
    candidates = zip(_keys(ranks[is_drawn_from]), rows["size"][is_drawn_from].tolist(), strict=True)
    ends = last_ranks(candidates, drawn, int(is_drawn_from.sum()), quota)
    for name, last in reversed(ends.items()):  # the first split takes its own back from those after it
        rows["split"][is_drawn_from & (ranks <= np.bytes_(last))] = FILLED.index(name)
    return rows


def last_ranks(
    documents: Iterable[tuple[bytes, int]], drawn: Sequence[str], count: int, quota: float
) -> dict[str, bytes]:
    """The last document of each held-out split that has no files of its own, by its rank.

    ``drawn`` are these splits, test before validation. ``documents`` (``count`` of them) are those that are
    not in another split's files: rank and bytes, in the order of their rank. The first go to test until it
    has ``quota`` bytes, the next to validation likewise, and the rest is for training. Each split gets one
    at least.
    """
    ends: dict[str, bytes] = {}
    waiting = list(drawn)
    filled = 0
    for position, (key, size) in enumerate(documents if waiting else (), start=1):
        filled += size
        if filled >= quota or position >= count - len(waiting):
            ends[waiting.pop(0)] = key
            filled = 0
            if not waiting:
                break
    return ends


def split_up(config: CorpusConfig, rows: Rows) -> dict[str, Rows]:
    """The distinct documents of each split, in the order in which they are stored.

    rows: in the splits whose files held them. Raises :class:`CorpusError` unless each split can have one.
    """
    given, drawn = by_split(rows), config.drawn_splits
    needed = [*drawn, "train"]
    if len(given["train"]) < len(needed):
        names = ["training" if name == "train" else name for name in sorted(needed, key=SPLITS.index)]
        raise CorpusError(
            f"the corpus is too small: {len(given['train'])} distinct documents of up to {SMALLEST_LIMIT} "
            f"bytes; {' and '.join(', '.join(names).rsplit(', ', 1))} need one each"
        )
    for name in SPLITS:
        if name not in needed and not len(given[name]):
            raise CorpusError(f"the files of the {name} split hold no text of their own")
    quota = held_out(int(given["train"]["size"].sum()), config.bytes_per_token)
    return by_split(ranked(rows, drawn, quota))


@dataclass(frozen=True)
class Texts:
    """Documents of a corpus that wait on the disk.

    rows: each in the split whose files held it. empty: documents without content. skipped: files that were
    left out.
    """

    rows: Rows
    empty: int
    skipped: tuple[str, ...]


def read_texts(config: CorpusConfig, folder: Path, workers: Workers, progress: Progress) -> Texts:
    """Read all documents of ``config`` into ``folder``, and cut those that are too long.

    Raises :class:`CorpusError` for text that is missing, unreadable, not UTF-8 or empty.
    """
    chunks = input_chunks(config)
    sizes = [sum(file.stamp[0] for file in chunk) for chunk in chunks]
    if sum(sizes) > LONG_BYTES:
        progress(f"reading {sum(sizes) / 1e6:,.0f} MB in {sum(map(len, chunks)):,} files")
    meter = Meter(progress, "read", sum(sizes))
    tasks = ((config, chunk, number, folder) for number, chunk in enumerate(chunks))
    read: list[Texts] = []
    for size, texts in zip(sizes, workers.map(_read, tasks), strict=True):
        meter.count(size, len(texts.rows))
        read.append(texts)
    rows = dedup(np.concatenate([np.zeros(0, ROW), *(texts.rows for texts in read)]))
    total = int(rows["size"].sum())
    if not total:
        raise CorpusError(
            f"the corpus is empty: no text in {', '.join(config.files) or config.source}; name other files"
        )
    limit = piece_limit(total, config.source)
    unit = np.dtype(config.stored_type).itemsize if config.tokenizer == "ids" else 1
    is_long = rows["size"] > limit
    pieces = np.fromiter(_cut(folder, rows[is_long], limit, unit), ROW)
    rows = dedup(np.concatenate([rows[~is_long], pieces]))
    skipped = tuple(name for texts in read for name in texts.skipped)
    return Texts(rows, sum(texts.empty for texts in read), skipped)


def _read(task: tuple[CorpusConfig, list[CorpusFile], int, Path]) -> Texts:
    """Write the documents of a chunk, one after another, into its file.

    Raises :class:`CorpusError` for files that cannot be used, or that change meanwhile.
    """
    config, chunk, number, folder = task
    skipped: list[str] = []
    empty: list[Path] = []

    def written() -> Iterator[Row]:
        with _content_path(folder, number).open("xb") as file:
            for source in chunk:
                for document in documents(config, source.path, skipped.append):
                    offset, sha256 = file.tell(), hashlib.sha256()
                    for block in document:
                        file.write(block)
                        sha256.update(block)
                    if size := file.tell() - offset:
                        yield sha256.digest(), FILLED.index(source.split), size, number, offset
                    else:
                        empty.append(source.path)
                require_unchanged(source)

    rows = np.fromiter(written(), ROW)  # a list of tuples would take five times as much
    return Texts(rows, len(empty), tuple(skipped))


def _content_path(folder: Path, chunk: int) -> Path:
    return folder / f"{chunk:06d}.content"


def _cut(folder: Path, rows: Rows, limit: int, unit: int) -> Iterator[Row]:
    """The rows of the pieces of these documents; ``unit`` bytes are never parted."""
    for row in rows:
        _, split, size, chunk, offset = row.tolist()
        with _content_path(folder, chunk).open("rb") as file:
            file.seek(offset)
            for content in cut(file, size, limit, unit):
                yield hashlib.sha256(content).digest(), split, len(content), chunk, offset
                offset += len(content)


def _damaged(path: Path) -> CorpusError:
    return CorpusError(f"{path} is not what was read of the corpus: check the disk, and prepare it again")


def contents(folder: Path, rows: Rows) -> list[bytes]:
    """The content of some documents. Raises :class:`CorpusError` where it is not what was read."""
    contents = [b""] * len(rows)
    order = np.lexsort((rows["offset"], rows["chunk"]))
    for chunk in np.unique(rows["chunk"]).tolist():
        with _content_path(folder, chunk).open("rb") as file:
            for position in order[rows["chunk"][order] == chunk].tolist():
                file.seek(int(rows["offset"][position]))
                content = file.read(int(rows["size"][position]))
                # NumPy gives digests back without the zeros at their end.
                if hashlib.sha256(content).digest().rstrip(b"\0") != rows["digest"][position]:
                    raise _damaged(Path(file.name))
                contents[position] = content
    return contents
