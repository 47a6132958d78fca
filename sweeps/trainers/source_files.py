"""The files of a trainer that lie beside the sweep file, and what they hold."""

import glob
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from scalevec.sweeps.trainers.any_trial import SourceFile, file_digest

SCRIPTS = (".py", ".sh")
"""Endings of words of a command that name a file which has to be there."""


def files_of_words(folder: Path, words: Iterable[str]) -> Iterator[str]:
    """Yield the arguments that are files below ``folder``, alone or as the value of an option."""
    for word in words:
        for name in dict.fromkeys((word, word.partition("=")[2])):
            if name and not Path(name).is_absolute() and _is_file(folder / name):
                yield name


def scripts_of_words(folder: Path, words: Iterable[str]) -> Iterator[str]:
    """Yield the scripts below ``folder`` that ``words`` may be, whatever their placeholders stand for."""
    for word in words:
        if word.endswith(SCRIPTS):
            yield from matching(folder, re.sub(r"\{[^{}]*\}", "*", word.rpartition("=")[2]))


def matching(folder: Path, pattern: str) -> list[str]:
    """As :func:`files_of`; a folder stands for all Python in it."""
    is_folder = not _is_file(folder / pattern) and (folder / pattern).is_dir()
    return files_of(folder, f"{pattern.rstrip('/')}/**/*.py" if is_folder else pattern)


def files_of(folder: Path, pattern: str) -> list[str]:
    """The files that ``pattern``, the name of one or a glob, names as seen from ``folder``, sorted."""
    if _is_file(folder / pattern):
        return [pattern]
    names = glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 (Path's refuses absolute patterns)
    return sorted(name for name in names if _is_file(folder / name))


def source_files(folder: Path, names: Iterable[str]) -> tuple[SourceFile, ...]:
    """The files ``names`` below ``folder`` with their digests, sorted, each once. Raises ``OSError``."""
    return tuple(SourceFile(name, _digest(folder / name)) for name in sorted(set(names)))


def _digest(path: Path) -> str:
    state = path.stat()
    return _digest_of(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4096)  # more than the files of one trainer
def _digest_of(path: Path, _changed: int, _size: int) -> str:
    return file_digest(path)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or none
        return False
