"""Corpora: text split by content, tokenized and written once under its fingerprint, read-only afterwards.

Each document is followed by one separator token (byte 0, or ``<|endoftext|>`` for BPE).
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from model.fields import ConfigurationError, from_dict, require, require_choice, to_dict
from model.identity import digest
from model.training.corpus_documents import SPLITS, Document, documents_of, split
from model.training.corpus_sources import SOURCES, CorpusError, SourceText
from model.training.durable_files import complete_directory, partial_directories, write_synced
from model.training.tokenization import (
    BYTES_VOCABULARY,
    SMALLEST_BPE_VOCABULARY,
    TOKENIZERS,
    Tokenizer,
)

__all__ = [
    "Corpus",
    "CorpusConfig",
    "CorpusError",
    "CorpusFacts",
    "SplitFacts",
    "fingerprint",
    "open_corpus",
    "prepare",
    "require_batch",
    "shard_dtype",
]

FORMAT_VERSION = 1
"""Raised whenever equal text would give other tokens, splits or order."""

Shard = np.memmap[Any, np.dtype[np.unsignedinteger[Any]]]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class CorpusConfig:
    """Which text, and which tokenizer: ``bytes`` (vocabulary 256) or ``bpe``, trained on the training split.

    files: paths or patterns, for sources that read files; relative ones start at the working directory.
    """

    source: str
    tokenizer: str
    vocabulary_size: int
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_choice("source", self.source, SOURCES)
        require_choice("tokenizer", self.tokenizer, TOKENIZERS)
        size = self.vocabulary_size
        if self.tokenizer == "bytes":
            require(size == BYTES_VOCABULARY, "vocabulary_size", size, "256 for the tokenizer 'bytes'")
        else:
            allowed = SMALLEST_BPE_VOCABULARY <= size <= 2**24
            require(allowed, "vocabulary_size", size, f"{SMALLEST_BPE_VOCABULARY} to 2**24")
        needs_files = self.source != "python-stdlib"
        allowed_files = "one or more files or patterns" if needs_files else "none for 'python-stdlib'"
        require(bool(self.files) == needs_files, "files", list(self.files), allowed_files)


@dataclass(frozen=True)
class SplitFacts:
    """Size of one split; ``bytes`` is its text without separators, ``sha256`` that of its shard."""

    tokens: int
    bytes: int
    documents: int
    sha256: str


@dataclass(frozen=True)
class CorpusFacts:
    """corpus.json: what a prepared corpus is and what made it."""

    format_version: int
    fingerprint: str
    config: CorpusConfig
    dtype: str
    train: SplitFacts
    validation: SplitFacts
    test: SplitFacts
    skipped: tuple[str, ...]
    python_version: str
    tokenizers_version: str


@dataclass(frozen=True)
class Corpus:
    """A prepared corpus on disk."""

    directory: Path
    facts: CorpusFacts

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the tokens are made from (64 hex digits); names the corpus."""
        return self.facts.fingerprint

    @property
    def vocabulary_size(self) -> int:
        """Every token id is below it."""
        return self.facts.config.vocabulary_size

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens of each split."""
        return {name: self.split_facts(name).tokens for name in SPLITS}

    @property
    def bytes_per_token(self) -> float:
        """UTF-8 bytes of text per token of the test split, separators being tokens without bytes."""
        return self.facts.test.bytes / self.facts.test.tokens

    def split_facts(self, name: str) -> SplitFacts:
        """Sizes of the split ``name``."""
        require_choice("split", name, SPLITS)
        facts: SplitFacts = getattr(self.facts, name)
        return facts

    def split(self, name: str) -> Shard:
        """The token ids of ``train``, ``validation`` or ``test``, shape [tokens], mapped read-only."""
        require_choice("split", name, SPLITS)
        return np.memmap(self.directory / f"{name}.bin", dtype=self.facts.dtype, mode="r")


def fingerprint(config: CorpusConfig) -> str:
    """SHA-256 over format, tokenizer and content (64 hex digits); reads all text, tokenizes nothing.

    Raises :class:`CorpusError` for text that is missing, unreadable, not UTF-8 or empty.
    """
    return _fingerprint(config, _documents(config, SOURCES[config.source](config.files)))


def _documents(config: CorpusConfig, text: SourceText) -> list[Document]:
    documents = documents_of(text.texts)
    if not documents:
        where = ", ".join(config.files) or config.source
        raise CorpusError(f"the corpus is empty: no text in {where}")
    return documents


def _fingerprint(config: CorpusConfig, documents: Sequence[Document]) -> str:
    return digest(
        {
            "format_version": FORMAT_VERSION,
            "tokenizer": {"name": config.tokenizer, "vocabulary_size": config.vocabulary_size},
            "documents": sorted(document.digest for document in documents),
        }
    )


def prepare(config: CorpusConfig, corpora_dir: Path, progress: Progress) -> Corpus:
    """The corpus of ``config`` under ``corpora_dir``; made there unless it exists.

    It appears under its fingerprint complete or not at all; concurrent callers agree on one.
    Raises :class:`CorpusError` for text that cannot be used, OSError where it cannot be written.
    """
    text = SOURCES[config.source](config.files)
    documents = _documents(config, text)
    final = corpora_dir / _fingerprint(config, documents)
    if not final.exists():
        progress(f"corpus {final.name[:12]}: {len(documents):,} documents, {_size(documents) / 1e6:.1f} MB")
        for name in text.skipped:
            progress(f"skipped {name}: not UTF-8 text")
        for leftover in partial_directories(final):
            progress(f"{leftover} is in the making, or was interrupted and can be removed")
        with complete_directory(final) as partial:
            _write(partial, config, final.name, split(documents), text.skipped, progress)
    return open_corpus(corpora_dir, final.name)


def _size(documents: Sequence[Document]) -> int:
    return sum(len(document.content) for document in documents)


def _write(
    directory: Path,
    config: CorpusConfig,
    name: str,
    splits: Mapping[str, Sequence[Document]],
    skipped: tuple[str, ...],
    progress: Progress,
) -> None:
    dtype = shard_dtype(config.vocabulary_size)
    tokenizer = _train_tokenizer(config, splits["train"], progress)
    if (serialized := tokenizer.serialized()) is not None:
        write_synced(directory / "tokenizer.json", serialized.encode())
    shards = {}
    for split_name in SPLITS:
        path = directory / f"{split_name}.bin"
        shards[split_name] = _write_shard(path, splits[split_name], tokenizer, dtype)
        progress(f"{split_name}: {shards[split_name].tokens:,} tokens")
    facts = CorpusFacts(
        format_version=FORMAT_VERSION,
        fingerprint=name,
        config=config,
        dtype=dtype,
        skipped=skipped,
        python_version=platform.python_version(),
        tokenizers_version=importlib.metadata.version("tokenizers"),
        **shards,
    )
    write_synced(directory / "corpus.json", (json.dumps(to_dict(facts), indent=2) + "\n").encode())


def shard_dtype(vocabulary_size: int) -> str:
    """The smaller of the unsigned little-endian types ``<u2`` and ``<u4`` that holds every token id."""
    return "<u2" if vocabulary_size <= 2**16 else "<u4"


def _train_tokenizer(config: CorpusConfig, documents: Sequence[Document], progress: Progress) -> Tokenizer:
    if config.tokenizer != "bytes":
        progress(f"training a tokenizer of {config.vocabulary_size:,} tokens")
    return TOKENIZERS[config.tokenizer]([document.content for document in documents], config.vocabulary_size)


def _write_shard(path: Path, documents: Sequence[Document], tokenizer: Tokenizer, dtype: str) -> SplitFacts:
    sha256 = hashlib.sha256()
    tokens = 0
    with path.open("xb") as file:
        for ids in tokenizer.encode([document.content for document in documents]):
            block = np.append(ids, tokenizer.separator).astype(dtype)
            file.write(block.data)
            sha256.update(block.data)
            tokens += len(block)
        file.flush()
        os.fsync(file.fileno())
    return SplitFacts(tokens, _size(documents), len(documents), sha256.hexdigest())


def open_corpus(corpora_dir: Path, fingerprint: str) -> Corpus:
    """The prepared corpus of that fingerprint, its shards checked for their sizes.

    Raises :class:`CorpusError` if it is not there, or not as it was written.
    """
    if not re.fullmatch("[0-9a-f]{64}", fingerprint):
        raise CorpusError(f"corpus is {fingerprint!r}; a fingerprint of 64 hexadecimal digits is needed")
    directory = corpora_dir / fingerprint
    if not directory.is_dir():
        raise CorpusError(f"corpus {fingerprint} is not under {corpora_dir}; prepare it first")
    corpus = Corpus(directory, _read_facts(directory))
    for name in SPLITS:
        _check_shard(corpus, name)
    return corpus


def _read_facts(directory: Path) -> CorpusFacts:
    path = directory / "corpus.json"
    try:
        facts = from_dict(CorpusFacts, json.loads(path.read_bytes()))
    except (OSError, ValueError, ConfigurationError) as error:
        raise CorpusError(f"{path} cannot be read ({error}); {_remedy(directory)}") from error
    if facts.fingerprint != directory.name:
        raise CorpusError(f"{path} describes another corpus, {facts.fingerprint}; {_remedy(directory)}")
    return facts


def _check_shard(corpus: Corpus, name: str) -> None:
    path = corpus.directory / f"{name}.bin"
    expected = corpus.split_facts(name).tokens * np.dtype(corpus.facts.dtype).itemsize
    size = path.stat().st_size if path.is_file() else 0
    if size != expected:
        raise CorpusError(f"{path} has {size:,} bytes instead of {expected:,}; {_remedy(corpus.directory)}")


def _remedy(directory: Path) -> str:
    return f"remove {directory} and prepare the corpus again"


def require_batch(corpus: Corpus, batch_tokens: int, sequence_length: int) -> None:
    """Raise :class:`CorpusError` unless training fills one batch and each held-out split has a target."""
    windows = (corpus.tokens["train"] - 1) // sequence_length
    if windows * sequence_length < batch_tokens:
        raise CorpusError(
            f"the corpus is too small for one batch: batch_tokens is {batch_tokens:,}, but the training "
            f"split holds {windows:,} sequences of {sequence_length:,} tokens; add text or lower batch_tokens"
        )
    for name in ("validation", "test"):
        if corpus.tokens[name] < 2:
            raise CorpusError(f"the corpus is too small: its {name} split has no token to predict; add text")
