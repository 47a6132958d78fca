"""From texts to shards: documents wait in files on the disk, memory holds a row of numbers for each.

Every chunk of the input has a file of its own in the folder of the preparation, with its documents one after
another. Documents that are too long are cut there, without a copy; then they are tokenized in their order.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from scalevec.model.data.corpus import SplitFacts
from scalevec.model.data.documents import FILLED, ROW, Row, Rows, cut, dedup, piece_limit
from scalevec.model.data.durable_files import write_synced
from scalevec.model.data.formats import BLOCK, Blocks
from scalevec.model.data.pool import Meter, Progress, Workers
from scalevec.model.data.sources import CorpusFile, documents, file_stamp, input_chunks
from scalevec.model.data.specification import SPLITS, CorpusConfig, CorpusError, stored_type
from scalevec.model.data.tokenize import TOKENIZER, DocumentTokenizer, Tokens, ready_tokenizer, train_bpe

LONG_BYTES = 10**9
"""From here on reading takes so long that it is said beforehand: a large file has one process."""
DOCUMENTS_AT_ONCE = 256
BYTES_AT_ONCE = 1 << 20
"""Of documents that are tokenized together."""


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
    chunk_texts: list[Texts] = []
    for texts in workers.map(_read, ((config, chunk, n, folder) for n, chunk in enumerate(chunks))):
        meter.count(sizes[len(chunk_texts)], len(texts.rows))
        chunk_texts.append(texts)
    rows = dedup(np.concatenate([np.zeros(0, ROW), *(texts.rows for texts in chunk_texts)]))
    total = int(rows["size"].sum())
    if not total:
        raise CorpusError(
            f"the corpus is empty: no text in {', '.join(config.files) or config.source}; name other files"
        )
    limit = piece_limit(total, config.source)
    unit = np.dtype(stored_type(config.vocabulary_size)).itemsize if config.tokenizer == "ids" else 1
    is_long = rows["size"] > limit
    pieces = np.fromiter(_cut(folder, rows[is_long], limit, unit), ROW)
    rows = dedup(np.concatenate([rows[~is_long], pieces]))
    skipped = tuple(name for texts in chunk_texts for name in texts.skipped)
    return Texts(rows, sum(texts.empty for texts in chunk_texts), skipped)


def _read(task: tuple[CorpusConfig, list[CorpusFile], int, Path]) -> Texts:
    """Write the documents of a chunk, one after another, into its file.

    Raises :class:`CorpusError` for files that cannot be used, or that change meanwhile.
    """
    config, chunk, number, folder = task
    skipped: list[str] = []
    empty: list[Path] = []

    def written() -> Iterator[Row]:
        offset = 0
        with _content_path(folder, number).open("xb") as file:
            for source in chunk:
                for document in documents(config, source.path, skipped.append):
                    digest, size = _written(file, document)
                    if size:
                        yield digest, FILLED.index(source.split), size, number, offset
                    else:
                        empty.append(source.path)
                    offset += size
                if file_stamp(source.path) != source.stamp:
                    raise CorpusError(f"{source.path} changed while it was read; prepare the corpus again")

    rows = np.fromiter(written(), ROW)  # a list of tuples would take five times as much
    return Texts(rows, len(empty), tuple(skipped))


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


def _cut(folder: Path, rows: Rows, limit: int, unit: int) -> Iterator[Row]:
    """The rows of the pieces of these documents; ``unit`` bytes are never parted."""
    for row in rows:
        _, split, size, chunk, offset = row.tolist()
        with _content_path(folder, chunk).open("rb") as file:
            file.seek(offset)
            for content in cut(_blocks(file, size), limit, unit):
                yield hashlib.sha256(content).digest(), split, len(content), chunk, offset
                offset += len(content)


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
    """How the documents in ``folder`` become tokens of type ``dtype``, by the tokenizer that waits there too.

    separator: the id of the token behind each document.
    """

    config: CorpusConfig
    folder: Path
    dtype: str
    separator: int


def train_tokenizer(encoding: Encoding, rows: Rows, sample_bytes: int, workers: Workers) -> None:
    """Write tokenizer.json, learnt from the first ``sample_bytes`` of the documents of training (0: all).

    The documents come in the order of a hash of their content: the first are a random sample.
    """
    if sample_bytes:
        rows = rows[: int(np.searchsorted(np.cumsum(rows["size"]), sample_bytes)) + 1]
    list(workers.map(_train, [(encoding, rows)]))


def _train(task: tuple[Encoding, Rows]) -> None:
    encoding, rows = task
    texts = (text for batch in _batches(rows) for text in _contents(encoding.folder, batch))
    # A process of the pool keeps the library to one thread, but has no company in this task.
    limited = os.environ.pop("TOKENIZERS_PARALLELISM", None)
    try:
        tokenizer = train_bpe(texts, encoding.config.vocabulary_size)
    finally:
        if limited is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = limited
    write_synced(encoding.folder / TOKENIZER, tokenizer.serialized())


def write_shards(
    directory: Path, encoding: Encoding, rows: Rows, workers: Workers, progress: Progress
) -> dict[str, SplitFacts]:
    """Tokenize all documents, in the order of ``rows``, into the shards of all splits; what these hold."""
    meter = Meter(progress, "tokenized", int(rows["size"].sum()))
    is_text = encoding.config.tokenizer != "ids"
    with ExitStack() as stack:
        files = {name: directory / f"{name}.bin" for name in SPLITS}
        writers = {
            name: stack.enter_context(ShardWriter(file, encoding.dtype)) for name, file in files.items()
        }
        for parts in workers.map(_encode, ((encoding, batch) for batch in _batches(rows))):
            for name, tokens, n_documents, n_bytes in parts:
                writers[name].write(tokens)
                writers[name].count(n_bytes if is_text else 0, n_documents)
                meter.count(n_bytes, n_documents)
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
    return ready_tokenizer(encoding.config, encoding.folder / TOKENIZER, encoding.separator)


def _encode(task: tuple[Encoding, Rows]) -> list[tuple[str, Tokens, int, int]]:
    """Of each split in a batch its tokens, and from how many documents and bytes they come."""
    encoding, rows = task
    tokenizer = _tokenizer(encoding)
    ids = [
        np.append(tokens, tokenizer.separator).astype(encoding.dtype)
        for tokens in tokenizer.encode(_contents(encoding.folder, rows))
    ]
    encoded = []
    for number, name in enumerate(FILLED):
        of_split = np.flatnonzero(rows["split"] == number).tolist()
        if of_split:
            tokens = np.concatenate([ids[position] for position in of_split])
            encoded.append((name, tokens, len(of_split), int(rows["size"][of_split].sum())))
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
