"""Where the text of a corpus comes from: each source reads its files and returns them as UTF-8 bytes."""

import glob
import os
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

EXCLUDED_DIRECTORIES = frozenset(
    ["test", "tests", "idle_test", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__"]
)
GENERATED_PREFIXES = ("_sysconfigdata", "sitecustomize", "usercustomize", "config-")
"""What the build or the machine wrote: without it, equal Python versions give equal corpora."""


class CorpusError(ValueError):
    """A corpus cannot be read, made or used; says which file or field, and what to do."""


@dataclass(frozen=True)
class SourceText:
    """The files of a source: their bytes, all valid UTF-8, and the names of those that were left out."""

    texts: tuple[bytes, ...]
    skipped: tuple[str, ...] = ()


def python_stdlib(_files: tuple[str, ...]) -> SourceText:
    """The running interpreter's standard library, without tests, idlelib, lib2to3 and installed packages.

    Files that are not UTF-8 text are skipped and named.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    texts: list[bytes] = []
    skipped: list[str] = []
    for path in stdlib_files(root):
        content = path.read_bytes()
        if text_fault(content):
            skipped.append(path.relative_to(root).as_posix())
        else:
            texts.append(content)
    return SourceText(tuple(texts), tuple(skipped))


def stdlib_files(root: Path) -> list[Path]:
    """The .py files under ``root`` that belong to the corpus, sorted by their relative path."""
    found: list[Path] = []
    for folder, directories, names in os.walk(root):
        directories[:] = [name for name in directories if _is_library(name)]
        found += [Path(folder, name) for name in names if name.endswith(".py") and _is_library(name)]
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def _is_library(name: str) -> bool:
    return name not in EXCLUDED_DIRECTORIES and not name.startswith(GENERATED_PREFIXES)


def text(files: tuple[str, ...]) -> SourceText:
    """The files that the patterns name; ``**`` crosses directories.

    Raises :class:`CorpusError` for a pattern that matches no file, a file that cannot be read and one
    that is not UTF-8 text.
    """
    try:
        paths = sorted({path for pattern in files for path in _matches(pattern)})
        return SourceText(tuple(_read_text(path) for path in paths))
    except OSError as error:
        raise CorpusError(f"corpus file {str(error.filename)!r} cannot be read: {error.strerror}") from error


def _matches(pattern: str) -> list[Path]:
    expanded = os.path.expanduser(pattern)  # noqa: PTH111 (Path.expanduser raises for an unknown user)
    if Path(expanded).is_file():  # a name may hold the characters [ ] * ? itself
        return [Path(expanded)]
    if Path(expanded).is_dir():
        raise CorpusError(f"corpus file {pattern!r} is a directory; name its files, like {pattern}/**/*.txt")
    paths = [Path(name) for name in glob.glob(expanded, recursive=True)]  # noqa: PTH207 (absolute patterns)
    matches = [path for path in paths if path.is_file()]
    if not matches:
        raise CorpusError(
            f"corpus file {pattern!r} does not exist; give a path or a pattern like data/**/*.txt"
        )
    return matches


def _read_text(path: Path) -> bytes:
    content = path.read_bytes()
    if fault := text_fault(content):
        raise CorpusError(f"corpus file {str(path)!r} is not UTF-8 text: {fault}; convert it or leave it out")
    return content


def text_fault(content: bytes) -> str | None:
    """Why ``content`` is not UTF-8 text without NUL (the separator of byte corpora); None if it is."""
    if (position := content.find(b"\0")) >= 0:
        return f"a NUL byte at byte {position}"
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"{error.reason} at byte {error.start}"
    return None


SOURCES: Mapping[str, Callable[[tuple[str, ...]], SourceText]] = {
    "python-stdlib": python_stdlib,
    "text": text,
}
"""Every source by name: a function of the configured ``files``."""
