"""The files that a sweep's corpus names, which are looked up beside the sweep file."""

from collections.abc import Iterator
from pathlib import Path as FilePath

from scalevec.sweeps.errors import Path, shown
from scalevec.sweeps.sections.schema import Sweep
from scalevec.sweeps.trainers.source_files import files_of

LISTS = ("files", "validation", "test")


def corpus_files(sweep: Sweep, name: str = "files") -> list[FilePath]:
    """The files that the corpus lists under ``name``, sorted, each once."""
    folder, patterns = sweep.source.folder, getattr(sweep.corpus, name) or ()
    return sorted({folder / file for pattern in patterns for file in files_of(folder, pattern)})


def missing_files(sweep: Sweep) -> Iterator[tuple[Path, str]]:
    """What names no file, with where it stands."""
    for name in LISTS:
        for position, pattern in enumerate(getattr(sweep.corpus, name) or ()):
            yield from _missing(sweep, pattern, ("corpus", name, position))
    tokenizer = sweep.corpus.tokenizer.file
    if tokenizer is not None:
        yield from _missing(sweep, tokenizer, ("corpus", "tokenizer", "file"))


def _missing(sweep: Sweep, pattern: str, path: Path) -> Iterator[tuple[Path, str]]:
    folder = sweep.source.folder
    if not files_of(folder, pattern):
        yield path, f"{shown(pattern)}: no such file (looked in {folder}, the sweep file's folder)"
