"""Where the documents of a corpus come from: each source reads its files one after the other."""

import os
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from model.training.corpus_config import CorpusConfig, stored_type
from model.training.corpus_files import Blocks, CorpusError, matching, text_blocks, text_fault
from model.training.corpus_records import jsonl, parquet
from model.training.corpus_shards import shards

__all__ = ["SOURCES", "CorpusError", "Read", "read", "stdlib_files"]

EXCLUDED_DIRECTORIES = frozenset(
    ["test", "tests", "idle_test", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__"]
)
GENERATED_PREFIXES = ("_sysconfigdata", "sitecustomize", "usercustomize", "config-")
"""What the build or the machine wrote: without it, equal Python versions give equal corpora."""


@dataclass(frozen=True)
class Read:
    """One document as it was read: its bytes, and the split whose files held it (train: not held out)."""

    blocks: Blocks
    split: str = "train"


Skip = Callable[[str], None]
Reader = Callable[[CorpusConfig, Sequence[str], Skip], Iterator[Blocks]]
"""The documents in the files that patterns name; what is left out is skipped by its name."""


def read(config: CorpusConfig, skip: Skip) -> Iterator[Read]:
    """Every document of a corpus, those of all its splits.

    Raises :class:`CorpusError` for files that are missing, unreadable, or not what the source needs.
    """
    given = {"train": config.files, "validation": config.validation_files, "test": config.test_files}
    for split, patterns in given.items():
        if split == "train" or patterns:
            for blocks in SOURCES[config.source](config, patterns, skip):
                yield Read(blocks, split)


def python_stdlib(_config: CorpusConfig, _patterns: Sequence[str], skip: Skip) -> Iterator[Blocks]:
    """The running interpreter's standard library, without tests, idlelib, lib2to3 and installed packages.

    Files that are not UTF-8 text are skipped.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in stdlib_files(root):
        content = path.read_bytes()
        if text_fault(content):
            skip(path.relative_to(root).as_posix())
        else:
            yield (content,)


def stdlib_files(root: Path) -> list[Path]:
    """The .py files under ``root`` that belong to the corpus, sorted by their relative path."""
    found: list[Path] = []
    for folder, directories, names in os.walk(root):
        directories[:] = [name for name in directories if _is_library(name)]
        found += [Path(folder, name) for name in names if name.endswith(".py") and _is_library(name)]
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def _is_library(name: str) -> bool:
    return name not in EXCLUDED_DIRECTORIES and not name.startswith(GENERATED_PREFIXES)


def _text(_config: CorpusConfig, patterns: Sequence[str], _skip: Skip) -> Iterator[Blocks]:
    """One document a file."""
    return (text_blocks(path) for path in matching(patterns))


def _each(reader: Callable[[CorpusConfig, Path], Iterator[Blocks]]) -> Reader:
    """A source that reads its files one by one."""

    def read_all(config: CorpusConfig, patterns: Sequence[str], _skip: Skip) -> Iterator[Blocks]:
        for path in matching(patterns):
            yield from reader(config, path)

    return read_all


class _Records(Protocol):
    def __call__(self, path: Path, field: str, *, nul_separates: bool) -> Iterator[Blocks]: ...


def _of_records(reader: _Records) -> Callable[[CorpusConfig, Path], Iterator[Blocks]]:
    return lambda config, path: reader(path, config.field, nul_separates=config.tokenizer == "bytes")


def _shards(config: CorpusConfig, path: Path) -> Iterator[Blocks]:
    size = config.vocabulary_size
    return shards(path, config.dtype, size, config.separator_id, stored_type(size))


SOURCES: Mapping[str, Reader] = {
    "python-stdlib": python_stdlib,
    "text": _text,
    "jsonl": _each(_of_records(jsonl)),
    "parquet": _each(_of_records(parquet)),
    "shards": _each(_shards),
}
"""Every source whose documents are read, by name; a synthetic corpus has none."""
