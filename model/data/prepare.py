"""Corpora: text split by content, tokenized and written once under its fingerprint, read-only afterwards.

Each document is followed by one separator token (byte 0, or ``<|endoftext|>`` for BPE). Preparing one takes
memory for some of the text at a time in each process, and room on the disk for all of it beside the tokens.
What is finished of a large corpus is kept, whatever ends the preparation, until the corpus is there.
"""

import importlib.metadata
import json
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalevec.model.data import synthetic
from scalevec.model.data.census import Census, ReadTexts, take_census
from scalevec.model.data.documents import require_enough
from scalevec.model.data.durable_files import complete_directory, partial_directories, write_synced
from scalevec.model.data.intact import require_intact
from scalevec.model.data.preparation.in_place import FilePlacement, placement_of, write_placement
from scalevec.model.data.preparation.meter import Progress
from scalevec.model.data.preparation.parts import PartFacts, Parts
from scalevec.model.data.preparation.processes import Workers
from scalevec.model.data.preparation.work_folder import work_folder
from scalevec.model.data.prepared import (
    Corpus,
    CorpusManifest,
    SplitFacts,
    open_corpus,
    require_batch,
)
from scalevec.model.data.sources.files import CorpusError
from scalevec.model.data.sources.read_cache import files_key, files_of, remembered
from scalevec.model.data.sources.sources import STDLIB
from scalevec.model.data.specification import (
    FORMAT_VERSION,
    CorpusConfig,
    drawn_splits,
    stored_type,
)
from scalevec.model.data.synthetic import TokenProcess
from scalevec.model.data.tokenizers import TOKENIZERS, TokenizerPlan
from scalevec.model.data.writing import (
    make_documents,
    write_documents,
    write_synthetic,
)
from scalevec.model.fields import to_dict
from scalevec.model.identity import digest
from scalevec.model.limits_here import usable_cpus

__all__ = [
    "Corpus",
    "CorpusConfig",
    "CorpusError",
    "CorpusManifest",
    "SplitFacts",
    "TokenProcess",
    "fingerprint",
    "open_corpus",
    "prepare",
    "require_batch",
    "require_intact",
]

SMALL_BYTES = 32 << 20
"""Of files: a smaller corpus is prepared by this process alone."""


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
    if config.process is not None:
        return synthetic.fingerprint(config.process)
    if config.in_place:
        known = remembered(corpora_dir, files_key(config, {})) if corpora_dir is not None else None
        return known or _placement(config, None, progress, jobs).fingerprint
    request = _request(config)
    known = remembered(corpora_dir, request.key) if corpora_dir is not None else None
    if known is not None:
        return known
    with _temporary_folder() as folder, _workers(jobs, alone=request.is_small) as workers:
        return _census(request, folder, workers, progress, keeps_text=False).fingerprint


@dataclass(frozen=True)
class _CorpusRequest:
    """A configuration with its vocabulary filled in, its tokenizer, and what its files look like.

    is_small: other processes would take longer to start than they save.
    """

    config: CorpusConfig
    plan: TokenizerPlan
    key: str
    is_small: bool


def _request(config: CorpusConfig) -> _CorpusRequest:
    plan = TOKENIZERS[config.tokenizer](config)
    config = replace(config, vocabulary_size=plan.vocabulary_size)
    return _CorpusRequest(config, plan, files_key(config, plan.identity), _is_small(config))


def _is_small(config: CorpusConfig) -> bool:
    """Whether one process is enough."""
    if config.source == STDLIB:
        return True
    given = (config.files, config.validation_files, config.test_files)
    return sum(path.stat().st_size for some in given for path in files_of(config, some)) < SMALL_BYTES


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
    if config.process is not None:
        return _prepare_synthetic(config, config.process, corpora_dir, progress)
    if config.in_place:
        return _prepare_in_place(config, corpora_dir, progress, jobs)
    request = _request(config)
    if (known := remembered(corpora_dir, request.key)) is not None:
        return _opened(corpora_dir, known, progress)
    with (
        _work_folder(request, corpora_dir, progress) as work,
        _workers(jobs, alone=request.is_small) as workers,
    ):
        census = _census(request, work, workers, progress, keeps_text=True)
        final = corpora_dir / census.fingerprint
        if final.exists():
            return _opened(corpora_dir, final.name, progress)
        require_enough(census.counts, drawn_splits(config))
        _say_what_was_read(census, progress)
        parts = make_documents(work, request.config, request.plan, census, workers, progress)
        within = (
            None if request.is_small else work
        )  # where the next one removes it, should this one be killed
        _make(final, progress, lambda partial: _write(partial, request, census, *parts, progress), within)
    return open_corpus(corpora_dir, final.name)


def _prepare_in_place(
    config: CorpusConfig, corpora_dir: Path, progress: Progress, jobs: int | None
) -> Corpus:
    key = files_key(config, {})
    if (known := remembered(corpora_dir, key)) is not None:
        return _opened(corpora_dir, known, progress)
    placement = _placement(config, corpora_dir, progress, jobs)
    final = corpora_dir / placement.fingerprint
    if final.exists():
        return _opened(corpora_dir, final.name, progress)

    def write(partial: Path) -> None:
        shards = write_placement(partial, placement, progress)
        _write_manifest(
            partial,
            placement.fingerprint,
            config,
            placement.dtype,
            shards,
            separator=config.separator_id,
            files_key=key,
            in_place=placement.files,
        )

    _make(final, progress, write)
    return open_corpus(corpora_dir, final.name)


def _placement(
    config: CorpusConfig, corpora_dir: Path | None, progress: Progress, jobs: int | None
) -> FilePlacement:
    """What is found in the files is kept under ``corpora_dir`` until all of them are read."""
    small = _is_small(config)
    kept = (
        _temporary_folder()
        if small or corpora_dir is None
        else work_folder(corpora_dir, digest({"in_place": to_dict(config)}), progress)
    )
    with kept as folder, _workers(jobs, alone=small) as workers:
        return placement_of(config, workers, progress, folder)


def _work_folder(
    request: _CorpusRequest, corpora_dir: Path, progress: Progress
) -> AbstractContextManager[Path]:
    """Where the corpus is prepared; a small one is prepared again rather than kept unfinished."""
    if request.is_small:
        return _temporary_folder()
    preparation = {
        "config": to_dict(request.config),
        "tokenizer": dict(request.plan.identity),
        "format_version": FORMAT_VERSION,
        "tokenizers": _tokenizers_version(),
    }
    return work_folder(corpora_dir, digest(preparation), progress)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="scalevec-") as folder:
        yield Path(folder)


def _workers(jobs: int | None, *, alone: bool) -> Workers:
    return Workers(0 if alone else jobs or usable_cpus())


def _census(
    request: _CorpusRequest, folder: Path, workers: Workers, progress: Progress, *, keeps_text: bool
) -> Census:
    texts = ReadTexts(request.config, folder, workers, progress, keeps_text)
    return take_census(texts, request.plan.identity)


def _opened(corpora_dir: Path, name: str, progress: Progress) -> Corpus:
    """A corpus that was there before, what it holds checked."""
    corpus = open_corpus(corpora_dir, name)
    require_intact(corpus, progress)
    return corpus


def _say_what_was_read(census: Census, progress: Progress) -> None:
    count, total = sum(census.counts.values()), sum(census.sizes.values())
    progress(f"corpus {census.fingerprint[:12]}: {count:,} documents, {total / 1e6:.1f} MB")
    for name in census.skipped:
        progress(f"skipped {name}: not UTF-8 text")
    if census.empty:
        progress(f"skipped {census.empty:,} empty documents")


def _make(final: Path, progress: Progress, write: Callable[[Path], None], within: Path | None = None) -> None:
    for leftover in partial_directories(final):
        progress(f"{leftover} is in the making, or was interrupted and can be removed")
    with complete_directory(final, within) as partial:
        write(partial)


def _write(
    directory: Path,
    request: _CorpusRequest,
    census: Census,
    parts: Parts,
    finished: Sequence[PartFacts],
    progress: Progress,
) -> None:
    _write_manifest(
        directory,
        census.fingerprint,
        request.config,
        parts.dtype,
        write_documents(directory, parts, finished, progress),
        skipped=census.skipped,
        empty=census.empty,
        sample_bytes=census.sample_bytes,
        separator=parts.separator,
        files_key=request.key,
    )


def _write_manifest(
    directory: Path,
    fingerprint: str,
    config: CorpusConfig,
    dtype: str,
    shards: Mapping[str, SplitFacts],
    *,
    skipped: tuple[str, ...] = (),
    **facts: Any,
) -> None:
    manifest = CorpusManifest(
        format_version=FORMAT_VERSION,
        fingerprint=fingerprint,
        config=config,
        dtype=dtype,
        skipped=skipped,
        python_version=platform.python_version(),
        tokenizers_version=_tokenizers_version(),
        train=shards["train"],
        validation=shards["validation"],
        test=shards["test"],
        **facts,
    )
    write_synced(directory / "corpus.json", (json.dumps(to_dict(manifest), indent=2) + "\n").encode())


def _tokenizers_version() -> str:
    return importlib.metadata.version("tokenizers")


def _prepare_synthetic(
    config: CorpusConfig, process: TokenProcess, corpora_dir: Path, progress: Progress
) -> Corpus:
    final = corpora_dir / synthetic.fingerprint(process)
    if final.exists():
        return _opened(corpora_dir, final.name, progress)
    rate = synthetic.entropy_rate(process)
    progress(f"corpus {final.name[:12]}: {process.tokens:,} tokens drawn at {rate:.6f} nats/token")
    _make(final, progress, lambda partial: _write_synthetic(partial, config, process, progress))
    return open_corpus(corpora_dir, final.name)


def _write_synthetic(
    directory: Path, config: CorpusConfig, process: TokenProcess, progress: Progress
) -> None:
    dtype = stored_type(process.vocabulary)
    shards = write_synthetic(directory, process, dtype, progress)
    rate = synthetic.entropy_rate(process)
    _write_manifest(directory, synthetic.fingerprint(process), config, dtype, shards, entropy_rate=rate)
