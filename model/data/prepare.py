"""Corpora: text split by content, tokenized and written once under its fingerprint, read-only afterwards.

Each document is followed by one separator token (byte 0, or ``<|endoftext|>`` for BPE). Preparing one takes
memory for a row of numbers for each document, and room on the disk for all text beside the tokens. It is done
in one go: what was stopped is done again, and only a whole corpus has the name of one.
"""

import importlib.metadata
import json
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from scalevec.model.data import synthetic
from scalevec.model.data.corpus import Corpus, CorpusManifest, SplitFacts, open_corpus, verify
from scalevec.model.data.documents import by_split, corpus_fingerprint, ranked, require_enough
from scalevec.model.data.durable_files import complete_directory, write_synced
from scalevec.model.data.in_place import place_files, write_placement
from scalevec.model.data.limits_here import usable_cpus
from scalevec.model.data.pool import Meter, Progress, Workers
from scalevec.model.data.sources import files_key, named_files, remembered
from scalevec.model.data.specification import (
    FORMAT_VERSION,
    SPLITS,
    CorpusConfig,
    CorpusError,
    TokenProcess,
    bytes_per_token,
    drawn_splits,
    held_out,
    stored_type,
)
from scalevec.model.data.texts import (
    Encoding,
    ShardWriter,
    read_texts,
    train_tokenizer,
    write_shards,
)
from scalevec.model.data.tokenize import TOKENIZER, TOKENIZERS, SubwordTokenizer, TokenizerPlan
from scalevec.model.fields import to_dict

__all__ = ["Corpus", "CorpusConfig", "CorpusError", "fingerprint", "open_corpus", "prepare", "verify"]

SMALL_BYTES = 32 << 20
"""Of files: a smaller corpus is prepared by this process alone; others would take longer to start."""


@dataclass(frozen=True)
class _Draft:
    """A corpus that is known by its fingerprint, and not written yet.

    write: puts the files of all splits into a folder, and says what they hold. facts: more of the manifest.
    """

    fingerprint: str
    dtype: str
    write: Callable[[Path], dict[str, SplitFacts]]
    facts: Mapping[str, Any] = field(default_factory=dict)


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
    known = remembered(corpora_dir, files_key(config, plan.identity)) if corpora_dir is not None else None
    if known is not None:
        return known
    with tempfile.TemporaryDirectory(prefix="scalevec-") as work, _workers(config, jobs) as workers:
        return _draft(config, plan, Path(work), workers, progress).fingerprint


def prepare(config: CorpusConfig, corpora_dir: Path, progress: Progress, jobs: int | None = None) -> Corpus:
    """Return the corpus of ``config``, tokenized under ``corpora_dir`` unless it is there already.

    It appears under its fingerprint complete or not at all; concurrent callers agree on one.

    Args:
        config: The texts (or the synthetic process), the tokenizer, the vocabulary and the held-out splits.
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
    if (known := remembered(corpora_dir, key)) is not None:
        return _verified(corpora_dir, known, progress)
    with _work_folder(corpora_dir, progress) as work, _workers(config, jobs) as workers:
        draft = _draft(config, plan, work, workers, progress)
        final = corpora_dir / draft.fingerprint
        if final.exists():
            return _verified(corpora_dir, draft.fingerprint, progress)
        # Whoever is first gives the folder its name; the other one's is removed, as they are the same.
        with complete_directory(final, work) as folder:
            splits = draft.write(folder)
            for name in SPLITS:
                progress(f"{name}: {splits[name].tokens:,} tokens")
            _write_manifest(folder, config, draft, splits, key)
    return open_corpus(corpora_dir, draft.fingerprint)


def _planned(config: CorpusConfig) -> tuple[CorpusConfig, TokenizerPlan]:
    """``config`` with its vocabulary filled in, and its tokenizer."""
    plan = TOKENIZERS[config.tokenizer](config)
    return replace(config, vocabulary_size=plan.vocabulary_size), plan


def _workers(config: CorpusConfig, jobs: int | None) -> Workers:
    size = sum(path.stat().st_size for paths in named_files(config) for path in paths)
    return Workers(0 if size < SMALL_BYTES else jobs or usable_cpus())


@contextmanager
def _work_folder(corpora_dir: Path, progress: Progress) -> Iterator[Path]:
    """A folder of this preparation alone, removed in the end: two of the same corpus do not meet there."""
    for other in sorted(corpora_dir.glob(".*.preparing")):
        progress(f"{other} is of a corpus in the making, or was interrupted and can be removed")
    corpora_dir.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".", suffix=".preparing", dir=corpora_dir) as folder:
            yield Path(folder)
    except BaseException:
        with suppress(OSError):
            corpora_dir.rmdir()  # where there is no corpus yet
        raise


def _verified(corpora_dir: Path, name: str, progress: Progress) -> Corpus:
    """A corpus that was there before."""
    corpus = open_corpus(corpora_dir, name)
    verify(corpus, progress)
    return corpus


def _draft(
    config: CorpusConfig, plan: TokenizerPlan, work: Path, workers: Workers, progress: Progress
) -> _Draft:
    if config.process is not None:
        return _synthetic_draft(config.process, progress)
    if config.in_place:
        return _in_place_draft(config, workers, progress)
    return _text_draft(config, plan, work, workers, progress)


def _text_draft(
    config: CorpusConfig, plan: TokenizerPlan, work: Path, workers: Workers, progress: Progress
) -> _Draft:
    texts = read_texts(config, work, workers, progress)
    sizes = {name: int(rows["size"].sum()) for name, rows in by_split(texts.rows).items()}
    sample = config.sample_bytes if config.sample_bytes < sum(sizes.values()) else 0
    name = corpus_fingerprint(texts.rows, {**plan.identity, **({"sample": sample} if sample else {})})
    encoding = Encoding(
        # Files are named no more: every task carries this to a process.
        replace(config, files=(), validation_files=(), test_files=()),
        work,
        stored_type(config.vocabulary_size),
        plan.separator,
    )

    def write(directory: Path) -> dict[str, SplitFacts]:
        counts = {split: len(rows) for split, rows in by_split(texts.rows).items()}
        require_enough(counts, drawn_splits(config))
        progress(
            f"corpus {name[:12]}: {sum(counts.values()):,} documents, {sum(sizes.values()) / 1e6:.1f} MB"
        )
        for skipped in texts.skipped:
            progress(f"skipped {skipped}: not UTF-8 text")
        if texts.empty:
            progress(f"skipped {texts.empty:,} empty documents")
        rows = ranked(texts.rows, drawn_splits(config), held_out(sizes["train"], bytes_per_token(config)))
        kept = work / TOKENIZER
        if plan.tokenizer is None:
            sampled = f" on the first {sample / 1e6:,.0f} MB" if sample else ""
            progress(f"training a tokenizer of {config.vocabulary_size:,} tokens{sampled}")
            train_tokenizer(encoding, by_split(rows)["train"], sample, workers)
        elif isinstance(plan.tokenizer, SubwordTokenizer):
            write_synced(kept, plan.tokenizer.serialized())
        if kept.exists():
            write_synced(directory / TOKENIZER, kept.read_bytes())
        return write_shards(directory, encoding, rows, workers, progress)

    facts = {
        "skipped": texts.skipped,
        "empty": texts.empty,
        "sample_bytes": sample,
        "separator": plan.separator,
    }
    return _Draft(name, encoding.dtype, write, facts)


def _in_place_draft(config: CorpusConfig, workers: Workers, progress: Progress) -> _Draft:
    placement = place_files(config, workers, progress)
    facts = {"separator": config.separator_id, "in_place": placement.files}
    write = partial(write_placement, placement)
    return _Draft(placement.fingerprint, placement.dtype, write, facts)


def _synthetic_draft(process: TokenProcess, progress: Progress) -> _Draft:
    name, rate = synthetic.fingerprint(process), synthetic.entropy_rate(process)
    dtype = stored_type(process.vocabulary)

    def write(directory: Path) -> dict[str, SplitFacts]:
        progress(f"corpus {name[:12]}: {process.tokens:,} tokens drawn at {rate:.6f} nats/token")
        meter = Meter(progress, "drew blocks")
        facts = {}
        for split in SPLITS:
            with ShardWriter(directory / f"{split}.bin", dtype) as shard:
                for block in synthetic.blocks(process, split):
                    shard.write(block)
                    meter.count(block.nbytes)
                facts[split] = shard.finish(synthetic.ideal_loss(process, split))
        return facts

    return _Draft(name, dtype, write, {"entropy_rate": rate})


def _write_manifest(
    directory: Path, config: CorpusConfig, draft: _Draft, splits: Mapping[str, SplitFacts], key: str
) -> None:
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
    write_synced(directory / "corpus.json", (json.dumps(to_dict(manifest), indent=2) + "\n").encode())
