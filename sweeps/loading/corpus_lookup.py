"""The files that a sweep's corpus names, which are looked up beside the sweep file."""

import glob
from collections.abc import Iterator
from pathlib import Path as FilePath

from scalevec.sweeps.errors import Path, refused, shown
from scalevec.sweeps.sections.schema import Sweep

LISTS = ("files", "validation", "test")


def corpus_files(sweep: Sweep, name: str = "files") -> list[FilePath]:
    """The files that the corpus lists under ``name``, sorted, each once."""
    paths: set[FilePath] = set()
    for pattern in getattr(sweep.corpus, name) or ():
        paths.update(_matching(sweep, pattern))
    return sorted(paths)


def _matching(sweep: Sweep, pattern: str) -> list[FilePath]:
    folder = sweep.source.folder
    if _is_file(folder / pattern):
        return [folder / pattern]
    names = glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 (Path's refuses absolute patterns)
    return [folder / name for name in names if _is_file(folder / name)]


def _is_file(path: FilePath) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that may not be read
        return False


def missing_files(sweep: Sweep) -> Iterator[tuple[Path, str]]:
    """What names no file, with where it stands."""
    for name in LISTS:
        for position, pattern in enumerate(getattr(sweep.corpus, name) or ()):
            yield from _missing(sweep, pattern, ("corpus", name, position))
    tokenizer = sweep.corpus.tokenizer.file
    if tokenizer is not None:
        yield from _missing(sweep, tokenizer, ("corpus", "tokenizer", "file"))


def _missing(sweep: Sweep, pattern: str, path: Path) -> Iterator[tuple[Path, str]]:
    if "\0" in pattern:
        yield path, refused(pattern, "a name of a file")
    elif not _matching(sweep, pattern):
        folder = sweep.source.folder
        yield path, f"{shown(pattern)}: no such file (looked in {folder}, the sweep file's folder)"
