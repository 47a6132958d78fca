"""From texts to shards: documents wait in files on the disk, memory holds a row of numbers for each.

Every chunk of the input has a file of its own in the folder of the preparation, with its documents one after
another. Documents that are too long are cut there, without a copy; then they are tokenized in their order.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from scalevec.model.data.corpus import SplitFacts
from scalevec.model.data.documents import FILLED, ROW, Rows, cut, dedup, piece_limit
from scalevec.model.data.durable_files import write_synced
from scalevec.model.data.formats import BLOCK, Blocks
from scalevec.model.data.pool import Meter, Progress, Workers
from scalevec.model.data.sources import InputChunk, documents, file_stamp, input_chunks
from scalevec.model.data.specification import SPLITS, CorpusConfig, CorpusError, stored_type
from scalevec.model.data.tokenize import TOKENIZERS, DocumentTokenizer, Tokens, ready_tokenizer

TOKENIZER = "tokenizer.json"
DOCUMENTS_AT_ONCE = 256
BYTES_AT_ONCE = 1 << 20
"""Of documents that are tokenized together."""


@dataclass(frozen=True)
class Texts:
    """The distinct documents of a corpus, as they wait in ``folder``.

    rows: in the order of their digests, each in the split whose files held it. empty: documents without
    content. skipped: files that were left out.
    """

    folder: Path
    rows: Rows
    empty: int
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    """What a chunk of the input held; its documents of any length are in its file."""

    rows: Rows
    empty: int = 0
    skipped: tuple[str, ...] = ()


def read_texts(config: CorpusConfig, folder: Path, workers: Workers, progress: Progress) -> Texts:
    """Read all documents of ``config`` into ``folder``, and cut those that are too long.

    Raises :class:`CorpusError` for text that is missing, unreadable, not UTF-8 or empty.
    """
    chunks = input_chunks(config)
    meter = Meter(progress, "read", sum(chunk.size for chunk in chunks))
    found: list[_Found] = []
    for chunk, of_chunk in zip(
        chunks, workers.map(_read, [(config, chunk, folder) for chunk in chunks]), strict=True
    ):
        found.append(of_chunk)
        meter.count(chunk.size, len(of_chunk.rows))
    rows = dedup(np.concatenate([np.zeros(0, ROW), *(of_chunk.rows for of_chunk in found)]))
    total = int(rows["size"].sum())
    if not total:
        raise CorpusError(
            f"the corpus is empty: no text in {', '.join(config.files) or config.source}; name other files"
        )
    limit = piece_limit(total, config.source)
    unit = np.dtype(stored_type(config.vocabulary_size)).itemsize if config.tokenizer == "ids" else 1
    is_long = rows["size"] > limit
    tasks = [(folder, long_rows, limit, unit) for long_rows in _by_chunk(rows[is_long])]
    rows = dedup(np.concatenate([rows[~is_long], *workers.map(_cut, tasks)]))
    skipped = tuple(name for of_chunk in found for name in of_chunk.skipped)
    return Texts(folder, rows, sum(of_chunk.empty for of_chunk in found), skipped)


def _by_chunk(rows: Rows) -> list[Rows]:
    """The rows of each chunk, in the order in which their content stands in its file."""
    rows = rows[np.lexsort((rows["offset"], rows["chunk"]))]
    return np.split(rows, np.flatnonzero(np.diff(rows["chunk"])) + 1) if len(rows) else []


def _read(task: tuple[CorpusConfig, InputChunk, Path]) -> _Found:
    """Write the documents of a chunk, one after another, into its file.

    Raises :class:`CorpusError` for files that cannot be used, or that change meanwhile.
    """
    config, chunk, folder = task
    rows: list[tuple[bytes, int, int, int, int]] = []
    skipped: list[str] = []
    empty = offset = 0
    with _content_path(folder, chunk.number).open("xb") as file:
        for extent, stamp in zip(chunk.extents, chunk.stamps, strict=True):
            split = FILLED.index(extent.split)
            for document in documents(config, extent, skipped.append):
                digest, size = _written(file, document)
                if size:
                    rows.append((digest, split, size, chunk.number, offset))
                empty += not size
                offset += size
            if file_stamp(extent.path) != stamp:
                raise CorpusError(f"{extent.path} changed while it was read; prepare the corpus again")
    return _Found(np.array(rows, ROW), empty, tuple(skipped))


def _content_path(folder: Path, chunk: int) -> Path:
    return folder / f"{chunk:06d}.content"


def _written(file: BinaryIO, blocks: Blocks) -> tuple[bytes, int]:
    """The SHA-256 of a document and its bytes, once it is in ``file``."""
    sha256, size = hashlib.sha256(), 0
    for block in blocks:
        file.write(block)
        sha256.update(block)
        size += len(block)
    return sha256.digest(), size


def _cut(task: tuple[Path, Rows, int, int]) -> Rows:
    """The rows of the pieces of documents of one chunk; ``unit`` bytes are never parted."""
    folder, rows, limit, unit = task
    pieces: list[tuple[bytes, int, int, int, int]] = []
    with _content_path(folder, int(rows["chunk"][0])).open("rb") as file:
        for _, split, size, chunk, offset in rows.tolist():
            file.seek(offset)
            for content in cut(_blocks(file, size), limit, unit):
                pieces.append((hashlib.sha256(content).digest(), split, len(content), chunk, offset))
                offset += len(content)
    return np.array(pieces, ROW)


def _blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The next ``size`` bytes of ``file``."""
    while size:
        if not (block := file.read(min(BLOCK, size))):
            raise _damaged(Path(file.name))
        size -= len(block)
        yield block


def _damaged(path: Path) -> CorpusError:
    return CorpusError(f"{path} is not what was read of the corpus: check the disk, and prepare it again")


@dataclass(frozen=True)
class Encoding:
    """How the documents in ``folder`` are tokenized; their tokens are of type ``dtype``.

    separator: the id of the token behind each document.
    """

    config: CorpusConfig
    folder: Path
    dtype: str
    separator: int

    @property
    def tokenizer_path(self) -> Path:
        """tokenizer.json; there is none for bytes and ids."""
        return self.folder / TOKENIZER


@dataclass(frozen=True)
class _Encoded:
    """The tokens of some documents of one split, and what they were made from."""

    split: str
    tokens: Tokens
    documents: int
    bytes: int


def make_tokenizer(encoding: Encoding, rows: Rows, sample_bytes: int, workers: Workers) -> None:
    """Write tokenizer.json, learnt from the first ``sample_bytes`` of the documents of training (0: all).

    The documents come in the order of a hash of their content: the first are a random sample.
    """
    if sample_bytes:
        ends = np.cumsum(rows["size"])
        rows = rows[: int(np.searchsorted(ends, sample_bytes)) + 1]
    list(workers.map(_train, [(encoding, rows)]))


def _train(task: tuple[Encoding, Rows]) -> None:
    encoding, rows = task
    texts = (text for batch in _batches(rows) for text in _contents(encoding.folder, batch))
    # A process of the pool keeps the library to one thread, but has no company in this task.
    limited = os.environ.pop("TOKENIZERS_PARALLELISM", None)
    try:
        tokenizer = TOKENIZERS[encoding.config.tokenizer](encoding.config).make(texts)
    finally:
        if limited is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = limited
    serialized = tokenizer.serialized()
    if serialized is not None:
        write_synced(encoding.tokenizer_path, serialized.encode())


def write_shards(
    directory: Path, encoding: Encoding, rows: Rows, workers: Workers, progress: Progress
) -> dict[str, SplitFacts]:
    """Tokenize all documents, in the order of ``rows``, into the shards of all splits; what these hold."""
    meter = Meter(progress, "tokenized", int(rows["size"].sum()))
    bare = replace(encoding, config=replace(encoding.config, files=(), validation_files=(), test_files=()))
    is_text = encoding.config.tokenizer != "ids"
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(ShardWriter(directory / f"{name}.bin", encoding.dtype))
            for name in SPLITS
        }
        for encoded in workers.map(_encode, ((bare, batch) for batch in _batches(rows))):
            for part in encoded:
                writers[part.split].write(part.tokens)
                writers[part.split].count(part.bytes if is_text else 0, part.documents)
                meter.count(part.bytes, part.documents)
        return {name: writer.finish() for name, writer in writers.items()}


def _batches(rows: Rows) -> Iterator[Rows]:
    """Documents that are tokenized together: few, and none more after so many bytes."""
    start = 0
    while start < len(rows):
        ends = np.cumsum(rows["size"][start : start + DOCUMENTS_AT_ONCE])
        stop = start + min(int(np.searchsorted(ends, BYTES_AT_ONCE)) + 1, len(ends))
        yield rows[start:stop]
        start = stop


def _contents(folder: Path, rows: Rows) -> list[bytes]:
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


@lru_cache(maxsize=1)
def _tokenizer(encoding: Encoding) -> DocumentTokenizer:
    return ready_tokenizer(encoding.config, encoding.tokenizer_path, encoding.separator)


def _encode(task: tuple[Encoding, Rows]) -> list[_Encoded]:
    encoding, rows = task
    tokenizer = _tokenizer(encoding)
    ids = list(tokenizer.encode(_contents(encoding.folder, rows)))
    encoded = []
    for name, split in ((name, FILLED.index(name)) for name in SPLITS):
        places = np.flatnonzero(rows["split"] == split).tolist()
        if places:
            parts = [part for place in places for part in (ids[place], [tokenizer.separator])]
            size = int(rows["size"][places].sum())
            encoded.append(_Encoded(name, np.concatenate(parts).astype(encoding.dtype), len(places), size))
    return encoded


class ShardWriter:
    """A new shard of token ids of the type ``dtype``."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._file: BinaryIO = path.open("xb")
        self._dtype = dtype
        self._sha256 = hashlib.sha256()
        self._tokens = self._bytes = self._documents = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def write(self, ids: Tokens) -> None:
        """Append ``ids``."""
        block = ids.astype(self._dtype, copy=False)
        self._file.write(block.data)
        self._sha256.update(block.data)
        self._tokens += len(block)

    def count(self, n_bytes: int, n_documents: int) -> None:
        """Count so many documents, together of so many bytes of text, as written."""
        self._documents += n_documents
        self._bytes += n_bytes

    def finish(self, ideal_loss: float | None = None) -> SplitFacts:
        """Wait until the disk has the shard; what it holds."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return SplitFacts(self._tokens, self._bytes, self._documents, self._sha256.hexdigest(), ideal_loss)
