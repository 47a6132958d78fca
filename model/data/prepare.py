"""Corpora: tokens written once under their fingerprint, read-only afterwards.

Text is split by content and tokenized; each document is followed by one separator token (byte 0, or
``<|endoftext|>`` for BPE). Preparing one takes memory for a row of numbers for each document, and room on the
disk for all text beside the tokens. It is done in one go: what was stopped is done again, and only a whole
corpus has the name of one.
"""

import importlib.metadata
import json
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalevec.model.data import FORMAT_VERSION, SPLITS, CorpusConfig, system
from scalevec.model.data.corpus import Corpus, CorpusManifest, Draft, SplitFacts, open_corpus, verify
from scalevec.model.data.in_place import place_files
from scalevec.model.data.sources import files_key, named_stamps, remembered
from scalevec.model.data.system import Progress, Workers
from scalevec.model.data.texts import corpus_fingerprint, read_texts, split_up
from scalevec.model.data.tokenize import TOKENIZERS, TokenizerPlan, write_shards
from scalevec.model.fields import to_dict

SMALL_BYTES = 32 << 20
"""Of files: a smaller corpus is prepared by this process alone; others would take longer to start."""


def fingerprint(
    config: CorpusConfig,
    progress: Progress = lambda _: None,
    corpora_dir: Path | None = None,
    jobs: int | None = None,
) -> str:
    """SHA-256 over format, tokenizer and content (64 hex digits); reads all text, tokenizes nothing.

    Files that have not changed since their corpus was prepared under ``corpora_dir`` are not read.
    ``jobs``: processes that read, all cores without it.
    Raises :class:`CorpusError` for text that is missing, unreadable, not UTF-8 or empty.
    """
    config, plan = _planned(config)
    if corpora_dir is not None and (known := remembered(corpora_dir, files_key(config, plan.identity))):
        return known
    with tempfile.TemporaryDirectory(prefix="scalevec-") as work, _workers(config, jobs) as workers:
        return _draft(config, plan, Path(work), workers, progress).fingerprint


def prepare(config: CorpusConfig, corpora_dir: Path, progress: Progress, jobs: int | None = None) -> Corpus:
    """Return the corpus of ``config``, tokenized under ``corpora_dir`` unless it is there already.

    It appears under its fingerprint complete or not at all; concurrent callers agree on one.

    Args:
        config: The texts, the tokenizer, the vocabulary and the held-out splits.
        corpora_dir: The folder of corpora; each is in a folder named after its fingerprint.
        progress: Called with each line for people.
        jobs: Processes that prepare a corpus that is not small; all cores without it.

    Returns:
        The prepared corpus, its shards mapped read-only.

    Raises:
        CorpusError: Text that cannot be used: missing, unreadable, not UTF-8, or too little; or a prepared
            corpus whose shards have changed.
        OSError: The corpus cannot be written, a tokenizer is out of reach, or a process was killed.
    """
    config, plan = _planned(config)
    key = files_key(config, plan.identity)
    name = remembered(corpora_dir, key)
    if name is None:
        with _work_folder(corpora_dir, progress) as work, _workers(config, jobs) as workers:
            draft = _draft(config, plan, work, workers, progress)
            name = draft.fingerprint
            if not (corpora_dir / name).exists():
                # Whoever is first gives the folder its name; the other's is removed, as they are the same.
                with system.complete_directory(corpora_dir / name, work) as folder:
                    _write(folder, config, draft, key, progress)
                return open_corpus(corpora_dir, name)
    corpus = open_corpus(corpora_dir, name)
    verify(corpus, progress)
    return corpus


def _planned(config: CorpusConfig) -> tuple[CorpusConfig, TokenizerPlan]:
    """``config`` with its vocabulary filled in, and its tokenizer."""
    plan = TOKENIZERS[config.tokenizer](config)
    return replace(config, vocabulary_size=plan.identity["vocabulary_size"]), plan


def _workers(config: CorpusConfig, jobs: int | None) -> Workers:
    size = sum(size for of_split in named_stamps(config) for _, size, _ in of_split)
    return Workers(0 if size < SMALL_BYTES else jobs or system.usable_cpus())


@contextmanager
def _work_folder(corpora_dir: Path, progress: Progress) -> Iterator[Path]:
    """A folder of this preparation alone, removed in the end: two of the same corpus do not meet there."""
    for other in sorted(corpora_dir.glob(".*.preparing")):
        progress(f"{other} is of a corpus in the making, or was interrupted and can be removed")
    corpora_dir.mkdir(parents=True, exist_ok=True)
    try:
        with (
            system.room_in(corpora_dir),
            tempfile.TemporaryDirectory(prefix=".", suffix=".preparing", dir=corpora_dir) as folder,
        ):
            yield Path(folder)
    finally:
        with suppress(OSError):
            corpora_dir.rmdir()  # where there is no corpus in it


def _draft(
    config: CorpusConfig, plan: TokenizerPlan, work: Path, workers: Workers, progress: Progress
) -> Draft:
    if config.in_place:
        return place_files(config, workers, progress)
    texts = read_texts(config, work, workers, progress)
    size = int(texts.rows["size"].sum())
    sample = config.sample_bytes if config.sample_bytes < size else 0
    separator = plan.identity.get("separator", 0)
    name = corpus_fingerprint(texts.rows, {**plan.identity, **({"sample": sample} if sample else {})})

    def write(directory: Path) -> dict[str, SplitFacts]:
        splits = split_up(config, texts.rows)
        progress(f"corpus {name[:12]}: {len(texts.rows):,} documents, {size / 1e6:.1f} MB")
        for skipped in texts.skipped:
            progress(f"skipped {skipped}: not UTF-8 text")
        if texts.empty:
            progress(f"skipped {texts.empty:,} empty documents")
        # Files are named no more: every task carries this to a process.
        encoding = replace(config, files=(), sample_bytes=sample, separator_id=separator)
        return write_shards(directory, encoding, plan.given, work, splits, workers, progress)

    facts = {"skipped": texts.skipped, "empty": texts.empty, "sample_bytes": sample, "separator": separator}
    return Draft(name, config.stored_type, write, facts)


def _write(folder: Path, config: CorpusConfig, draft: Draft, key: str, progress: Progress) -> None:
    splits = draft.write(folder)
    for name in SPLITS:
        progress(f"{name}: {splits[name].tokens:,} tokens")
    facts: dict[str, Any] = {"skipped": (), **draft.facts, **splits}
    manifest = CorpusManifest(
        format_version=FORMAT_VERSION,
        fingerprint=draft.fingerprint,
        config=config,
        dtype=draft.dtype,
        python_version=platform.python_version(),
        tokenizers_version=importlib.metadata.version("tokenizers"),
        files_key=key,
        **facts,
    )
    system.write_synced(folder / "corpus.json", (json.dumps(to_dict(manifest), indent=2) + "\n").encode())
