"""The shards of a corpus, written document by document; what does not fit into memory waits on the disk."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from scalevec.model.training.corpora import synthetic
from scalevec.model.training.corpora.census import (
    Census,
    Progress,
    origin_byte,
    origin_of,
    pieces,
    told_progress,
)
from scalevec.model.training.corpora.documents import SPLITS, Document, rank, split
from scalevec.model.training.corpora.external_sort import Spill
from scalevec.model.training.corpora.held_out import held_out
from scalevec.model.training.corpora.prepared import SplitFacts
from scalevec.model.training.corpora.sources.files import CorpusError
from scalevec.model.training.corpora.specification import CorpusConfig, bytes_per_token
from scalevec.model.training.corpora.synthetic import TokenProcess
from scalevec.model.training.corpora.tokenizers import DocumentTokenizer, TokenizerPlan, Tokens, sample
from scalevec.model.training.durable_files import write_synced

DOCUMENTS_AT_ONCE = 256
BYTES_AT_ONCE = 1 << 22
"""Of documents that are tokenized together."""


class ShardWriter:
    """A new shard of token ids; ``facts`` are right once :meth:`finish` has synced it."""

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
        block = ids.astype(self._dtype)
        self._file.write(block.data)
        self._sha256.update(block.data)
        self._tokens += len(block)

    def count(self, n_bytes: int) -> None:
        """A document of so many bytes of text has been written."""
        self._documents += 1
        self._bytes += n_bytes

    def finish(self, ideal_loss: float | None = None) -> SplitFacts:
        """Wait until the disk has the shard; what it holds."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return SplitFacts(self._tokens, self._bytes, self._documents, self._sha256.hexdigest(), ideal_loss)


def write_documents(
    directory: Path, config: CorpusConfig, plan: TokenizerPlan, census: Census, dtype: str, progress: Progress
) -> tuple[dict[str, SplitFacts], int]:
    """The tokenizer and the shards of all splits into ``directory``.

    Returns what the shards hold and the id of the separator. Raises :class:`CorpusError` where the text is
    no longer that of ``census``.
    """
    spill = Spill(directory / "spill")
    try:
        _gather(spill, config, census, progress)
        documents = _Documents(spill, config, census)
        if config.tokenizer == "bpe":
            progress(f"training a tokenizer of {config.vocabulary_size:,} tokens{_sampled(census)}")
        tokenizer = plan.make(sample(documents.training(), census.sample_bytes))
        if (serialized := tokenizer.serialized()) is not None:
            write_synced(directory / "tokenizer.json", serialized.encode())
        is_text = config.tokenizer != "ids"
        shards = _write_shards(directory, documents, tokenizer, dtype, progress, is_text=is_text)
    finally:
        spill.remove()
    return shards, tokenizer.separator


def _sampled(census: Census) -> str:
    return f" on the first {census.sample_bytes / 1e6:,.0f} MB" if census.sample_bytes else ""


def _gather(spill: Spill, config: CorpusConfig, census: Census, progress: Progress) -> None:
    """Every document into ``spill``, under its rank."""
    count = told_progress(progress, "sorted", sum(census.sizes.values()))
    for piece in pieces(config, census.limit):
        key = rank(hashlib.sha256(piece.content).digest())
        # The origin goes first: of equal texts in two splits, Spill keeps the smaller payload.
        spill.add(key, origin_byte(piece.split) + piece.content)
        count(len(piece.content))
    checksum = 0
    for key, _ in spill:
        # XOR does not depend on order: the census read the files unsorted.
        checksum ^= int.from_bytes(key)
    if checksum != census.checksum:
        raise CorpusError("the files of the corpus changed while they were read; prepare it again")


class _Documents:
    """The documents of a corpus in the order of their rank, each with its split; may be gone over again."""

    def __init__(self, spill: Spill, config: CorpusConfig, census: Census) -> None:
        self._spill, self._census = spill, census
        self._drawn = drawn_splits(config)
        self._quota = held_out(census.sizes["train"], bytes_per_token(config))
        self.size = sum(census.sizes.values())

    def __iter__(self) -> Iterator[Document]:
        documents = (Document(payload[1:], origin_of(payload)) for _, payload in self._spill)
        return split(documents, self._drawn, self._census.counts["train"], self._quota)

    def training(self) -> Iterator[bytes]:
        """The text of the training split."""
        return (document.content for document in self if document.split == "train")


def drawn_splits(config: CorpusConfig) -> list[str]:
    """The held-out splits that have no files of their own, in the order in which they are filled."""
    given = {"test": config.test_files, "validation": config.validation_files}
    return [name for name, files in given.items() if not files]


def _write_shards(
    directory: Path,
    documents: _Documents,
    tokenizer: DocumentTokenizer,
    dtype: str,
    progress: Progress,
    *,
    is_text: bool,
) -> dict[str, SplitFacts]:
    count = told_progress(progress, "tokenized", documents.size)
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(ShardWriter(directory / f"{name}.bin", dtype)) for name in SPLITS
        }
        for batch in _batches(documents):
            encoded = tokenizer.encode([document.content for document in batch])
            for document, ids in zip(batch, encoded, strict=True):
                writers[document.split].write(np.append(ids, tokenizer.separator))
                writers[document.split].count(len(document.content) if is_text else 0)
                count(len(document.content))
        return _finished(writers, {}, progress)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """``documents`` in lists that are tokenized together."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.content)
        if len(batch) == DOCUMENTS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _finished(
    writers: Mapping[str, ShardWriter], ideal: Mapping[str, float], progress: Progress
) -> dict[str, SplitFacts]:
    split_facts = {}
    for name, writer in writers.items():
        split_facts[name] = writer.finish(ideal.get(name))
        progress(f"{name}: {split_facts[name].tokens:,} tokens")
    return split_facts


def write_synthetic(
    directory: Path, process: TokenProcess, dtype: str, progress: Progress
) -> dict[str, SplitFacts]:
    """The shards of all splits of a synthetic corpus into ``directory``; what they hold."""
    count = told_progress(progress, "drew blocks")
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(ShardWriter(directory / f"{name}.bin", dtype)) for name in SPLITS
        }
        for name, writer in writers.items():
            for block in synthetic.blocks(process, name):
                writer.write(block)
                count(block.nbytes)
        ideal = {name: synthetic.ideal_loss(process, name) for name in SPLITS}
        return _finished(writers, ideal, progress)
