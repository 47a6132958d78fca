"""Corpora: text split by content, tokenized and written once under its fingerprint, read-only afterwards.

Each document is followed by one separator token (byte 0, or ``<|endoftext|>`` for BPE). Preparing one takes
memory for some of the text at a time, and room on the disk for all of it beside the tokens.
"""

import importlib.metadata
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from model.fields import to_dict
from model.training import synthetic
from model.training.corpus_census import FORMAT_VERSION, Census, Progress, take_census
from model.training.corpus_config import CorpusConfig, stored_type
from model.training.corpus_documents import require_enough
from model.training.corpus_facts import Corpus, CorpusFacts, SplitFacts, open_corpus, require_batch
from model.training.corpus_files import CorpusError
from model.training.corpus_memory import files_key, remembered
from model.training.corpus_writing import drawn_splits, write_documents, write_synthetic
from model.training.durable_files import complete_directory, partial_directories, write_synced
from model.training.synthetic import Process
from model.training.tokenization import TOKENIZERS, TokenizerPlan

__all__ = [
    "Corpus",
    "CorpusConfig",
    "CorpusError",
    "CorpusFacts",
    "Process",
    "SplitFacts",
    "fingerprint",
    "open_corpus",
    "prepare",
    "require_batch",
]


def fingerprint(
    config: CorpusConfig, progress: Progress = lambda _: None, corpora_dir: Path | None = None
) -> str:
    """SHA-256 over format, tokenizer and content (64 hex digits); reads all text, tokenizes nothing.

    Files that have not changed since their corpus was prepared under ``corpora_dir`` are not read.
    Raises :class:`CorpusError` for text that is missing, unreadable, not UTF-8 or empty.
    """
    if config.process is not None:
        return synthetic.fingerprint(config.process)
    request = _request(config)
    known = remembered(corpora_dir, request.key) if corpora_dir is not None else None
    return known or take_census(request.config, request.plan.identity, progress).fingerprint


@dataclass(frozen=True)
class _Request:
    """A configuration with its vocabulary filled in, its tokenizer, and what its files look like."""

    config: CorpusConfig
    plan: TokenizerPlan
    key: str


def _request(config: CorpusConfig) -> _Request:
    plan = TOKENIZERS[config.tokenizer](config)
    config = replace(config, vocabulary_size=plan.vocabulary_size)
    return _Request(config, plan, files_key(config, plan.identity))


def prepare(config: CorpusConfig, corpora_dir: Path, progress: Progress) -> Corpus:
    """The corpus of ``config`` under ``corpora_dir``; made there unless it exists.

    It appears under its fingerprint complete or not at all; concurrent callers agree on one.
    Raises :class:`CorpusError` for text that cannot be used, OSError where it cannot be written or where a
    tokenizer is out of reach.
    """
    if config.process is not None:
        return _prepare_synthetic(config, config.process, corpora_dir, progress)
    request = _request(config)
    if (known := remembered(corpora_dir, request.key)) is not None:
        return open_corpus(corpora_dir, known)
    census = take_census(request.config, request.plan.identity, progress)
    final = corpora_dir / census.fingerprint
    if not final.exists():
        require_enough(census.counts, drawn_splits(config))
        _say_what_was_read(census, progress)
        _make(final, progress, lambda partial: _write(partial, request, census, progress))
    return open_corpus(corpora_dir, final.name)


def _say_what_was_read(census: Census, progress: Progress) -> None:
    count, total = sum(census.counts.values()), sum(census.sizes.values())
    progress(f"corpus {census.fingerprint[:12]}: {count:,} documents, {total / 1e6:.1f} MB")
    for name in census.skipped:
        progress(f"skipped {name}: not UTF-8 text")
    if census.empty:
        progress(f"skipped {census.empty:,} empty documents")


def _make(final: Path, progress: Progress, write: Callable[[Path], None]) -> None:
    for leftover in partial_directories(final):
        progress(f"{leftover} is in the making, or was interrupted and can be removed")
    with complete_directory(final) as partial:
        write(partial)


def _write(directory: Path, request: _Request, census: Census, progress: Progress) -> None:
    config = request.config
    dtype = stored_type(config.vocabulary_size)
    shards, separator = write_documents(directory, config, request.plan, census, dtype, progress)
    facts = CorpusFacts(
        format_version=FORMAT_VERSION,
        fingerprint=census.fingerprint,
        config=config,
        dtype=dtype,
        skipped=census.skipped,
        python_version=platform.python_version(),
        tokenizers_version=importlib.metadata.version("tokenizers"),
        empty=census.empty,
        sample_bytes=census.sample_bytes,
        separator=separator,
        files_key=request.key,
        train=shards["train"],
        validation=shards["validation"],
        test=shards["test"],
    )
    _write_facts(directory, facts)


def _write_facts(directory: Path, facts: CorpusFacts) -> None:
    write_synced(directory / "corpus.json", (json.dumps(to_dict(facts), indent=2) + "\n").encode())


def _prepare_synthetic(
    config: CorpusConfig, process: Process, corpora_dir: Path, progress: Progress
) -> Corpus:
    final = corpora_dir / synthetic.fingerprint(process)
    if not final.exists():
        rate = synthetic.entropy_rate(process)
        progress(f"corpus {final.name[:12]}: {process.tokens:,} tokens drawn at {rate:.6f} nats a token")
        _make(final, progress, lambda partial: _write_synthetic(partial, config, process, progress))
    return open_corpus(corpora_dir, final.name)


def _write_synthetic(directory: Path, config: CorpusConfig, process: Process, progress: Progress) -> None:
    dtype = stored_type(process.vocabulary)
    shards = write_synthetic(directory, process, dtype, progress)
    facts = CorpusFacts(
        format_version=FORMAT_VERSION,
        fingerprint=synthetic.fingerprint(process),
        config=config,
        dtype=dtype,
        skipped=(),
        python_version=platform.python_version(),
        tokenizers_version=importlib.metadata.version("tokenizers"),
        entropy_rate=synthetic.entropy_rate(process),
        train=shards["train"],
        validation=shards["validation"],
        test=shards["test"],
    )
    _write_facts(directory, facts)
