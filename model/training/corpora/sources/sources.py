"""Where the documents of a corpus come from: each source reads its files one after the other."""

import os
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scalevec.model.training.corpora.sources.files import (
    Blocks,
    CorpusError,
    NotTextError,
    matching,
    text_blocks,
)
from scalevec.model.training.corpora.sources.records import jsonl, parquet
from scalevec.model.training.corpora.sources.shards import shards
from scalevec.model.training.corpora.specification import CorpusConfig, stored_type

__all__ = ["READERS", "CorpusError", "ReadDocument", "read", "stdlib_files"]

EXCLUDED_DIRECTORIES = frozenset(
    ["test", "tests", "idle_test", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__"]
)
GENERATED_PREFIXES = ("_sysconfigdata", "sitecustomize", "usercustomize", "config-")
"""What the build or the machine wrote: without it, equal Python versions give equal corpora."""


@dataclass(frozen=True)
class ReadDocument:
    """One document as it was read: its bytes, and the split whose files held it (train: not held out)."""

    blocks: Blocks
    split: str = "train"


Skip = Callable[[str], None]
Reader = Callable[[CorpusConfig, Path], Iterator[Blocks]]
"""The documents in one file."""


def read(config: CorpusConfig, skip: Skip) -> Iterator[ReadDocument]:
    """Every document of a corpus, those of all its splits.

    Raises :class:`CorpusError` for files that are missing, unreadable, or not what the source needs.
    """
    given = {"train": config.files, "validation": config.validation_files, "test": config.test_files}
    for split, patterns in given.items():
        if split == "train" or patterns:
            for blocks in _documents(config, patterns, skip):
                yield ReadDocument(blocks, split)


def _documents(config: CorpusConfig, patterns: Sequence[str], skip: Skip) -> Iterator[Blocks]:
    if config.source == "python-stdlib":
        yield from python_stdlib(skip)
    else:
        for path in matching(patterns):
            yield from READERS[config.source](config, path)


def python_stdlib(skip: Skip) -> Iterator[Blocks]:
    """The running interpreter's standard library, without tests, idlelib, lib2to3 and installed packages.

    Files that are not UTF-8 text are skipped.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in stdlib_files(root):
        try:
            yield list(text_blocks(path))
        except NotTextError:
            skip(path.relative_to(root).as_posix())


def stdlib_files(root: Path) -> list[Path]:
    """The .py files under ``root`` that belong to the corpus, sorted by their relative path."""
    paths: list[Path] = []
    for folder, directories, names in os.walk(root):
        directories[:] = [name for name in directories if _is_library(name)]
        paths += [Path(folder, name) for name in names if name.endswith(".py") and _is_library(name)]
    return sorted(paths, key=lambda path: path.relative_to(root).as_posix())


def _is_library(name: str) -> bool:
    return name not in EXCLUDED_DIRECTORIES and not name.startswith(GENERATED_PREFIXES)


def _text(_config: CorpusConfig, path: Path) -> Iterator[Blocks]:
    """The whole file is one document."""
    yield text_blocks(path)


def _jsonl(config: CorpusConfig, path: Path) -> Iterator[Blocks]:
    return jsonl(path, config.field, nul_separates=config.tokenizer == "bytes")


def _parquet(config: CorpusConfig, path: Path) -> Iterator[Blocks]:
    return parquet(path, config.field, nul_separates=config.tokenizer == "bytes")


def _shards(config: CorpusConfig, path: Path) -> Iterator[Blocks]:
    size = config.vocabulary_size
    return shards(path, config.dtype, size, config.separator_id, stored_type(size))


READERS: Mapping[str, Reader] = {"text": _text, "jsonl": _jsonl, "parquet": _parquet, "shards": _shards}
"""Every source that reads files, by name; the others are the standard library and synthetic corpora."""
