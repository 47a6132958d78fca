"""Where the documents of a corpus come from: each source reads its files one after the other."""

import os
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scalevec.model.data.sources.files import (
    Blocks,
    CorpusError,
    NotTextError,
    matching,
    text_blocks,
)
from scalevec.model.data.sources.packages import package_files
from scalevec.model.data.sources.records import jsonl, parquet
from scalevec.model.data.sources.shards import shards
from scalevec.model.data.specification import CorpusConfig, stored_type

__all__ = [
    "PACKAGES",
    "READERS",
    "STDLIB",
    "CorpusError",
    "Extent",
    "ReadDocument",
    "documents",
    "extents",
    "files_found",
    "read",
    "stdlib_files",
]

STDLIB, PACKAGES = "python-stdlib", "python-packages"

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


@dataclass(frozen=True)
class Extent:
    """A file of a split; of JSON lines those that begin from byte ``start`` on and before ``stop``."""

    path: Path
    split: str = "train"
    start: int = 0
    stop: int | None = None


Skip = Callable[[str], None]
Reader = Callable[[CorpusConfig, Extent], Iterator[Blocks]]
"""The documents in one file."""


def extents(config: CorpusConfig) -> Iterator[Extent]:
    """Every file of a corpus, those of all its splits.

    Raises :class:`CorpusError` for files that are missing.
    """
    if config.source == STDLIB:
        yield from (Extent(path) for path in stdlib_files(_stdlib()))
    given = {"train": config.files, "validation": config.validation_files, "test": config.test_files}
    for split, patterns in given.items():
        yield from (Extent(path, split) for path in files_found(config, patterns))


def files_found(config: CorpusConfig, names: Sequence[str]) -> list[Path]:
    """The files that ``names`` stand for, sorted: paths and patterns, or installed distributions.

    Raises :class:`CorpusError` for a name of nothing.
    """
    return package_files(names, _is_library) if config.source == PACKAGES else matching(names)


def read(config: CorpusConfig, skip: Skip) -> Iterator[ReadDocument]:
    """Every document of a corpus, those of all its splits.

    Raises :class:`CorpusError` for files that are missing, unreadable, or not what the source needs.
    """
    for extent in extents(config):
        yield from documents(config, extent, skip)


def documents(config: CorpusConfig, extent: Extent, skip: Skip) -> Iterator[ReadDocument]:
    """The documents of ``extent``; ``skip`` is told of a source file of Python that is not UTF-8 text.

    Raises :class:`CorpusError` for a file that is unreadable, or not what the source needs.
    """
    if config.source not in (STDLIB, PACKAGES):
        yield from (ReadDocument(blocks, extent.split) for blocks in READERS[config.source](config, extent))
        return
    try:
        yield ReadDocument(list(text_blocks(extent.path)))
    except NotTextError:
        skip(_name_in_library(extent.path))


def _name_in_library(path: Path) -> str:
    """The name of a source file below the folder of installed packages, or of the standard library."""
    folders = [Path(folder) for folder in map(sysconfig.get_paths().get, ("purelib", "platlib")) if folder]
    folder = next((folder for folder in (*folders, _stdlib()) if path.is_relative_to(folder)), path.parent)
    return path.relative_to(folder).as_posix()


def _stdlib() -> Path:
    """The running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def stdlib_files(root: Path) -> list[Path]:
    """The .py files under ``root`` that belong to the corpus, sorted by their relative path.

    Without tests, idlelib, lib2to3 and installed packages.
    """
    paths: list[Path] = []
    for folder, directories, names in os.walk(root):
        directories[:] = [name for name in directories if _is_library(name)]
        paths += [Path(folder, name) for name in names if name.endswith(".py") and _is_library(name)]
    return sorted(paths, key=lambda path: path.relative_to(root).as_posix())


def _is_library(name: str) -> bool:
    return name not in EXCLUDED_DIRECTORIES and not name.startswith(GENERATED_PREFIXES)


def _text(_config: CorpusConfig, extent: Extent) -> Iterator[Blocks]:
    """The whole file is one document."""
    yield text_blocks(extent.path)


def _jsonl(config: CorpusConfig, extent: Extent) -> Iterator[Blocks]:
    separates = config.tokenizer == "bytes"
    return jsonl(extent.path, config.field, nul_separates=separates, start=extent.start, stop=extent.stop)


def _parquet(config: CorpusConfig, extent: Extent) -> Iterator[Blocks]:
    return parquet(extent.path, config.field, nul_separates=config.tokenizer == "bytes")


def _shards(config: CorpusConfig, extent: Extent) -> Iterator[Blocks]:
    size = config.vocabulary_size
    return shards(extent.path, config.dtype, size, config.separator_id, stored_type(size))


READERS: Mapping[str, Reader] = {"text": _text, "jsonl": _jsonl, "parquet": _parquet, "shards": _shards}
"""Every source of files that are named, by name; others are the standard library and installed packages."""
