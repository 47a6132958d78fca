"""How files below a runs folder are opened: never through a link, and regular files alone.

Who may write into a shared runs folder could otherwise have another person's commands read, change or delete
what lies elsewhere, or wait for ever at a FIFO. The runs folder itself may be reached through links, and so
may a file that lies in none.
"""

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_RUNS = re.compile(
    r"(?s)(?:(.*?/|)(?=(?:trials|trunks)/[0-9a-f]{2}/[0-9a-f]{64}(?:/|$)|trainers/[0-9a-f]{32}\.json$)"
    r"|(.*/|)(?=sweeps/[^/]+(?:/(?!\.scalevec-id$)|$)))"
)
"""Matches RUNS_DIR in the path of something in it; not in that of its id: it may be called sweeps/runs."""
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFREG: "a file",
}
_NOT_WHAT_IS_EXPECTED = (errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A FIFO, too, is opened at once, to be refused.
_FILE = os.O_NONBLOCK | os.O_CLOEXEC


class CorruptRecordError(ValueError):
    """A file that is there but cannot be what was written: names the file and what is wrong."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


@contextmanager
def folder_of(path: Path, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The open folder that ``path`` is in, and its name there; ``make`` makes the folders that are absent.

    Raises ``CorruptRecordError`` for a link, or what else is no folder, between the runs folder and ``path``.
    """
    folder, name, _ = _folder_of(path, make=make)
    try:
        yield folder, name
    finally:
        os.close(folder)


def _folder_of(path: Path, *, make: bool = False) -> tuple[int, str, int]:
    """As :func:`folder_of`, with the flag under which the name may be opened."""
    text = os.fspath(path)
    if match := _RUNS.match(text):
        way, names, below = match[1] or match[2] or ".", text[match.end() :].split("/"), os.O_NOFOLLOW
    else:
        way, names, below = os.fspath(path.parent), [path.name], 0
    if make:
        Path(way).mkdir(parents=True, exist_ok=True)
    folder = _open_at(None, way, _FOLDER, way)
    for name in names[:-1]:
        way = os.path.join(way, name)  # noqa: PTH118 (a Path costs more than opening)
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder)
            inner = _open_at(folder, name, _FOLDER | below, way)
        finally:
            os.close(folder)
        folder = inner
    return folder, names[-1], below


def _open_at(folder: int | None, name: str, flags: int, path: str | Path) -> int:
    """Open ``name``, which is ``path``. Raises ``CorruptRecordError``, or an ``OSError`` that names it."""
    try:
        return os.open(name, flags, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_WHAT_IS_EXPECTED:
            with suppress(FileNotFoundError):
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                raise CorruptRecordError(
                    Path(path), _what_is_there(mode, "a folder" if flags & os.O_DIRECTORY else "a file")
                ) from None
        raise OSError(error.errno, error.strerror, str(path)) from None


def _what_is_there(mode: int, expected: str = "a file") -> str:
    return f"is {_KINDS.get(stat.S_IFMT(mode), 'a device')}, where {expected} is expected"


def open_file(path: Path, flags: int = os.O_RDONLY, most: int | None = None) -> int:
    """Open a regular file of at most ``most`` bytes; the descriptor.

    Raises ``CorruptRecordError`` for anything else, and for a link in a runs folder; ``OSError``.
    """
    folder, name, below = _folder_of(path)
    try:
        descriptor = _open_at(folder, name, flags | below | _FILE, path)
    finally:
        os.close(folder)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise CorruptRecordError(path, _what_is_there(status.st_mode))
    if most is not None and status.st_size > most:
        os.close(descriptor)
        raise CorruptRecordError(path, f"has {status.st_size:,} bytes; {most:,} are read at most")
    return descriptor


def open_to_read(path: Path, most: int | None = None) -> BinaryIO:
    """The file ``path``, opened as :func:`open_file` does."""
    return os.fdopen(open_file(path, most=most), "rb")


def open_log(path: Path) -> BinaryIO:
    """The log ``path``, to append to, made if it is absent; opened as :func:`open_file` does."""
    return os.fdopen(open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def end_of_log(path: Path, most: int) -> str:
    """The last ``most`` bytes of a log as text; empty where there is none, or no file in its place."""
    with suppress(OSError, CorruptRecordError), open_to_read(path) as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - most))
        return stream.read(most).decode(errors="replace")
    return ""


def names_in(folder: Path) -> list[str]:
    """The names in ``folder``, sorted; none where it does not exist, is no folder, or is a link."""
    try:
        with folder_of(folder) as (outer, name):
            inner = _open_at(outer, name or ".", _FOLDER | os.O_NOFOLLOW, folder)
    except (FileNotFoundError, CorruptRecordError):
        return []
    try:
        with os.scandir(inner) as entries:
            return sorted(entry.name for entry in entries)
    finally:
        os.close(inner)


def make_folder(path: Path) -> None:
    """Make the folder ``path`` with all around it, through no link in a runs folder."""
    with folder_of(path / "any name", make=True):
        pass


def remove_folder(path: Path) -> None:
    """Remove the folder ``path`` as far as that is possible, through no link in a runs folder."""
    with suppress(FileNotFoundError), folder_of(path) as (folder, name):
        # It opens what it is given: a FIFO would wait for ever.
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)


def require_no_link(path: Path) -> None:
    """Raise ``CorruptRecordError`` where ``path`` is neither a file nor a folder, or lies behind a link."""
    with suppress(FileNotFoundError), folder_of(path) as (folder, name):
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise CorruptRecordError(path, _what_is_there(mode, "a file or folder"))
