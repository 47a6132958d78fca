"""Corpora: tokens written once under their fingerprint, read-only afterwards.

Text is split by content and tokenized; each document is followed by one separator token (byte 0, or
``<|endoftext|>`` for BPE). Preparing one takes memory for a row of numbers for each document, and room on the
disk for all text beside the tokens. It is done in one go: what was stopped is done again, and only a whole
corpus has the name of one.

A synthetic corpus has a known entropy rate: the loss of a model has a floor that is known exactly. A token is
drawn from the row of the token before it: ``branching`` successors of its own with weights that are the same
in every row. With a ``lag`` the token that stands ``lag`` places back is added to it, modulo the vocabulary,
so that a model has to look back that far. Given all tokens before it, a token then has one of ``branching``
values with those weights, whatever came before: the entropy rate is the weights' own entropy.
"""

import importlib.metadata
import json
import math
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

# Loaded here, not by np.random when tokens are drawn: Ctrl-C while its compiled modules load may be lost.
from numpy.random import PCG64, SeedSequence

from scalevec.model.data import FORMAT_VERSION, SPLITS, CorpusConfig, TokenProcess, held_out
from scalevec.model.data.corpus import Corpus, CorpusManifest, Draft, SplitFacts, open_corpus, verify
from scalevec.model.data.in_place import place_files
from scalevec.model.data.sources import files_key, named_stamps, remembered
from scalevec.model.data.system import Meter, Progress, Workers, complete_directory, usable_cpus, write_synced
from scalevec.model.data.texts import corpus_fingerprint, read_texts, split_up
from scalevec.model.data.tokenize import TOKENIZERS, Block, TokenizerPlan, write_shard, write_shards
from scalevec.model.fields import to_dict
from scalevec.model.identity import digest

SMALL_BYTES = 32 << 20
"""Of files: a smaller corpus is prepared by this process alone; others would take longer to start."""


SLOT_BITS = 12
SLOTS = 1 << SLOT_BITS
"""Every weight is a whole number of so many equal shares, so that the floor is exact."""
FEWEST_HELD_OUT = 10_000
"""Tokens of the validation and of the test split, at least."""
TOKENS_AT_ONCE = 1 << 18
"""Tokens that are drawn at once."""
_TABLE_KEY = len(SPLITS)
"""Of the draw of the successors; those before it are of the splits."""
_SYNTHETIC_VERSION = 2

Ids = np.ndarray[tuple[int], np.dtype[np.unsignedinteger[Any]]]
Ranks = np.ndarray[tuple[int], np.dtype[np.int64]]


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
    name = remembered(corpora_dir, key)
    if name is None:
        with _work_folder(corpora_dir, progress) as work, _workers(config, jobs) as workers:
            draft = _draft(config, plan, work, workers, progress)
            name = draft.fingerprint
            if not (corpora_dir / name).exists():
                # Whoever is first gives the folder its name; the other's is removed, as they are the same.
                with complete_directory(corpora_dir / name, work) as folder:
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
    finally:
        with suppress(OSError):
            corpora_dir.rmdir()  # where there is no corpus in it


def _draft(
    config: CorpusConfig, plan: TokenizerPlan, work: Path, workers: Workers, progress: Progress
) -> Draft:
    if config.process is not None:
        return _synthetic_draft(config.process, config.stored_type, progress)
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


def _synthetic_draft(process: TokenProcess, dtype: str, progress: Progress) -> Draft:
    name = digest({"synthetic_version": _SYNTHETIC_VERSION, "process": to_dict(process)})
    rate, meter = entropy_rate(process), Meter(progress, "drew blocks")

    def drawn(split: str) -> Iterator[Block]:
        for block in drawn_blocks(process, split):
            meter.count(block.nbytes)
            yield block, 0, 0

    def write(directory: Path) -> dict[str, SplitFacts]:
        progress(f"corpus {name[:12]}: {process.tokens:,} tokens drawn at {rate:.6f} nats/token")
        written = {split: write_shard(directory / f"{split}.bin", dtype, drawn(split)) for split in SPLITS}
        return {
            split: replace(facts, ideal_loss=ideal_loss(process, split)) for split, facts in written.items()
        }

    return Draft(name, dtype, write, {"entropy_rate": rate})


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
    write_synced(folder / "corpus.json", (json.dumps(to_dict(manifest), indent=2) + "\n").encode())


def weights(process: TokenProcess) -> list[int]:
    """How many of the ``SLOTS`` equal shares each successor has: the k-th about 1/k as many as the first."""
    total = sum(1 / rank for rank in range(1, process.branching + 1))
    shares = [max(1, int(SLOTS / (rank * total))) for rank in range(1, process.branching + 1)]
    shares[0] += SLOTS - sum(shares)
    return shares


def entropy_rate(process: TokenProcess) -> float:
    """Nats/token, in closed form: ``-sum(w ln w)`` over the weights of a row.

    The expected loss of no model is lower; a model that sees ``lag`` tokens back (one, without a lag) and
    knows the rows has exactly this loss.
    """
    return -math.fsum(share / SLOTS * math.log(share / SLOTS) for share in weights(process))


def successors(process: TokenProcess) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The successors of each token, [vocabulary, branching], the likeliest first."""
    words = PCG64(SeedSequence(process.seed, spawn_key=(_TABLE_KEY,)))
    # Row by row: all keys of a vocabulary of 65,536 would take 34 GB.
    return np.stack(
        [_lowest(words.random_raw(process.vocabulary), process.branching) for _ in range(process.vocabulary)]
    )


def _lowest(keys: np.ndarray[tuple[int], np.dtype[np.uint64]], n: int) -> Ranks:
    """The places of the ``n`` lowest keys, the lowest first, the first of equal ones."""
    low = np.flatnonzero(keys <= np.partition(keys, n - 1)[n - 1])
    return low[np.argsort(keys[low], kind="stable")][:n]


def drawn_blocks(process: TokenProcess, split: str) -> Iterator[Ids]:
    """The tokens of ``split`` in blocks; each split is a draw of its own from the same process."""
    rows = successors(process).tolist()
    history = [0] * max(1, process.lag)
    position = token = 0
    for ranks in _ranks(process, split):
        tokens = []
        for rank in ranks.tolist():
            token = rows[token][rank]
            if process.lag:
                token = history[position] = (token + history[position]) % process.vocabulary
                position = (position + 1) % process.lag
            tokens.append(token)
        yield np.array(tokens, dtype=np.uint16)


def ideal_loss(process: TokenProcess, split: str) -> float:
    """Mean nats/token of ``split`` under the process itself, its first token left out as in evaluation.

    It differs from the entropy rate by the sampling error of the split.
    """
    counts = np.zeros(process.branching, dtype=np.int64)
    for number, ranks in enumerate(_ranks(process, split)):
        counts += np.bincount(ranks[1 if number == 0 else 0 :], minlength=process.branching)
    nats = [-math.log(share / SLOTS) for share in weights(process)]
    total = math.fsum(count * of_one for count, of_one in zip(counts.tolist(), nats, strict=True))
    return total / int(counts.sum())


def _ranks(process: TokenProcess, split: str) -> Iterator[Ranks]:
    """Which successor each token is of the one before it, in blocks.

    Uses raw PCG64 words, which NumPy promises never to change (NEP 19).
    """
    rank_of_slot = np.repeat(np.arange(process.branching), weights(process))
    words = PCG64(SeedSequence(process.seed, spawn_key=(SPLITS.index(split),)))
    is_held_out = split != "train"
    left = max(FEWEST_HELD_OUT, int(held_out(process.tokens))) if is_held_out else process.tokens
    while left:
        drawn = min(TOKENS_AT_ONCE, left)
        left -= drawn
        yield rank_of_slot[words.random_raw(drawn) >> np.uint64(64 - SLOT_BITS)]
