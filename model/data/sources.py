"""Where the documents of a corpus come from: its files, found by name, and what each source reads in them."""

import glob
import importlib.metadata
import json
import os
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalevec.model.data import FORMAT_VERSION, CorpusConfig, CorpusError, formats
from scalevec.model.data.system import read_regular
from scalevec.model.fields import to_dict
from scalevec.model.identity import digest

STDLIB, PACKAGES = "python-stdlib", "python-packages"
EXCLUDED_DIRECTORIES = frozenset(
    ["test", "tests", "idle_test", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__"]
)
GENERATED_PREFIXES = ("_sysconfigdata", "sitecustomize", "usercustomize", "config-")
"""What the build or the machine wrote: without it, equal Python versions give equal corpora."""
CHUNK_BYTES = 32 << 20
"""Of files that one process reads in one go, about; a larger file is a chunk of its own."""
YOUNG_NS = 2_000_000_000
"""A file that was written so shortly ago may change again without its time telling."""

Stamp = tuple[int, int]
"""Size and time of change (ns) of a file."""


@dataclass(frozen=True)
class CorpusFile:
    """A file of a split; ``stamp`` tells whether it has changed since.

    dtype: of its ids, where these are used in place. index: what says where documents end then, if a file
    does.
    """

    path: Path
    split: str
    stamp: Stamp
    dtype: str = ""
    index: Path | None = None


def corpus_files(config: CorpusConfig) -> list[CorpusFile]:
    """Every file of a corpus, those of all its splits.

    Raises :class:`CorpusError` for files that are missing.
    """
    by_split = named_files(config)
    if config.source == STDLIB:
        by_split["train"] = stdlib_files(_stdlib())
    return [CorpusFile(path, split, file_stamp(path)) for split, paths in by_split.items() for path in paths]


def named_files(config: CorpusConfig) -> dict[str, list[Path]]:
    """The files of each split that ``config`` names, sorted, each once: by patterns, or distributions."""
    find = _package_files if config.source == PACKAGES else _matches
    named = {"train": config.files, "validation": config.validation_files, "test": config.test_files}
    try:
        return {
            split: sorted({path for name in names for path in find(name)}) for split, names in named.items()
        }
    except OSError as error:
        raise formats.unreadable(error.filename, error) from error


def _matches(pattern: str) -> list[Path]:
    """The files that a path or a pattern names; ``**`` crosses directories."""
    expanded = os.path.expanduser(pattern)  # noqa: PTH111 (Path.expanduser raises for an unknown user)
    if Path(expanded).is_file():  # a name may hold the characters [ ] * ? itself
        return [Path(expanded)]
    if Path(expanded).is_dir():
        raise CorpusError(f"corpus file {pattern!r} is a directory; name its files, like {pattern}/**/*.txt")
    names = glob.glob(expanded, recursive=True)  # noqa: PTH207 (absolute patterns)
    matches = [path for path in map(Path, names) if path.is_file()]
    if not matches:
        raise CorpusError(
            f"corpus file {pattern!r} does not exist; give a path or a pattern like data/**/*.txt"
        )
    return matches


def _package_files(package: str) -> list[Path]:
    """The .py files of the distribution ``package``, ``NAME`` or ``NAME==VERSION``, by its own list of files.

    A version without a local part, as 2.13.0, is that of every build of it, as 2.13.0+cpu.
    """
    name, _, version = package.partition("==")
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        remedy = f"pip install {package!r}, or leave it out"
        raise CorpusError(f"corpus package {package!r} is not installed; {remedy}") from None
    installed = distribution.version
    if version and version not in (installed, installed.partition("+")[0]):
        raise CorpusError(
            f"corpus package {package!r}: version {installed} is installed, which has other text; "
            f"pip install {package!r}, or name the version that shall be read"
        )
    paths = [
        Path(str(distribution.locate_file(file)))
        for file in distribution.files or ()
        if file.suffix == ".py" and ".." not in file.parts and all(map(_is_library, file.parts))
    ]
    if absent := next((path for path in paths if not path.is_file()), None):
        raise CorpusError(f"corpus package {package!r}: its file {str(absent)!r} is gone; install it again")
    if not paths:
        raise CorpusError(f"corpus package {package!r} has no Python sources; name another or leave it out")
    return paths


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


def documents(config: CorpusConfig, path: Path, skip: Callable[[str], None]) -> Iterator[formats.Blocks]:
    """The documents in a file; ``skip`` is told of a source file of Python that is not UTF-8 text.

    Raises :class:`CorpusError` for a file that is unreadable, or not what the source needs.
    """
    if config.source not in (STDLIB, PACKAGES):
        yield from READERS[config.source](config, path)
        return
    try:
        yield list(formats.text_blocks(path))
    except formats.NotTextError:
        skip(_name_in_library(path))


def _name_in_library(path: Path) -> str:
    """The name of a source file below the folder of installed packages, or of the standard library."""
    folders = [Path(folder) for folder in map(sysconfig.get_paths().get, ("purelib", "platlib")) if folder]
    folder = next((folder for folder in (*folders, _stdlib()) if path.is_relative_to(folder)), path.parent)
    return path.relative_to(folder).as_posix()


READERS: Mapping[str, Callable[[CorpusConfig, Path], Iterator[formats.Blocks]]] = {
    "text": lambda _, path: iter([formats.text_blocks(path)]),  # the whole file is one document
    "jsonl": formats.jsonl,
    "parquet": formats.parquet,
    "shards": formats.shards,
}
"""Every source of files that are named, by name; others are the standard library and installed packages."""


def input_chunks(config: CorpusConfig) -> list[list[CorpusFile]]:
    """All files of a corpus, by what is read in one go. Raises :class:`CorpusError` for missing files."""
    chunks: list[list[CorpusFile]] = []
    size = 0
    for file in corpus_files(config):
        size += file.stamp[0]
        if not chunks or size > CHUNK_BYTES:
            chunks.append([])
            size = file.stamp[0]
        chunks[-1].append(file)
    return chunks


def file_stamp(path: Path) -> Stamp:
    """What tells that a file has changed. Raises :class:`CorpusError` where it cannot be read."""
    try:
        status = path.stat()
    except OSError as error:
        raise formats.unreadable(path, error) from error
    return status.st_size, status.st_mtime_ns


def require_unchanged(file: CorpusFile) -> None:
    """Raise :class:`CorpusError` where a file is not what it was before it was read."""
    if file_stamp(file.path) != file.stamp:
        raise CorpusError(f"{file.path} changed while it was read; prepare the corpus again")


def named_stamps(config: CorpusConfig) -> list[list[tuple[str, int, int]]]:
    """Name, size and time of change of each file that ``config`` names, by its split."""
    by_split = list(named_files(config).values())
    if config.source == "megatron":  # the data of an index is beside it
        for paths in by_split:
            paths += [path.with_suffix(".bin") for path in paths if path.with_suffix(".bin").is_file()]
    return [[(str(path), *file_stamp(path)) for path in paths] for paths in by_split]


def files_key(config: CorpusConfig, tokenizer: Mapping[str, Any]) -> str:
    """A hash of what is read and how: names, sizes, times of all files, tokenizer, configuration, version.

    Of distributions their versions stand for the files, so that a corpus prepared elsewhere is known where
    others are installed. Empty where no files are named, or where one is too young for its time to tell a
    later change.
    """
    named = (config.files, config.validation_files, config.test_files)
    if config.source == PACKAGES and all("==" in name for names in named for name in names):
        stamps = [[(name, 0, 0) for name in names] for names in named]
    else:
        stamps = named_stamps(config)
    times = [time_ns for of_split in stamps for _, _, time_ns in of_split]
    if not times or max(times) > time.time_ns() - YOUNG_NS:
        return ""
    identity = {"config": to_dict(config, identity=True), "tokenizer": dict(tokenizer)}
    return digest({"format_version": FORMAT_VERSION, "files": stamps, **identity})


def remembered(corpora_dir: Path, key: str) -> str | None:
    """The fingerprint of the corpus under ``corpora_dir`` that was made from the files of ``key``."""
    for path in sorted(corpora_dir.glob("*/corpus.json")) if key else ():
        try:
            facts = json.loads(read_regular(path))
        except (OSError, ValueError, RecursionError):  # whoever opens that corpus will say so
            continue
        if isinstance(facts, dict) and facts.get("files_key") == key:
            return path.parent.name
    return None
