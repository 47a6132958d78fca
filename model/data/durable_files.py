"""Files and directories that are there complete, and still there after a power cut, or not at all."""

import errno
import math
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOST_BYTES = 2**26
"""Of a file of facts."""


@contextmanager
def complete_directory(final: Path, within: Path | None = None, *, exclusive: bool = False) -> Iterator[Path]:
    """A new directory beside ``final`` that takes its name in one step, or is removed on an error.

    With ``within``, of the same file system, it is made there. Where another process has made ``final``
    meanwhile, that one stays: under a name that follows from the content it is the same. Where a person chose
    the name, ``exclusive`` raises ``FileExistsError`` then. Raises OSError if the disk does.
    """
    partial = (within or final.parent) / f".{final.name}.{uuid.uuid4().hex}.partial"
    try:
        partial.mkdir(parents=True)
        yield partial
        sync(partial)
        _rename_unless_there(partial, final, exclusive)
        sync(final.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # after the rename there is nothing to remove


def _rename_unless_there(partial: Path, final: Path, exclusive: bool) -> None:
    try:
        partial.rename(final)
    except OSError:
        if not final.exists():
            raise
        if exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from None


def write_synced(path: Path, *blocks: bytes) -> None:
    """Write a new file of ``blocks`` and wait until the disk has it."""
    with path.open("xb") as file:
        file.writelines(blocks)
        file.flush()
        os.fsync(file.fileno())


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file, through no link.

    Raises ``OSError``, or ``ValueError`` for anything else, as a FIFO, and for more than ``most`` bytes.
    """
    require_regular(path, most)
    return path.read_bytes()


def require_regular(path: Path, most: float = math.inf) -> None:
    """Raise ``ValueError`` where ``path`` is a link, no file, or larger than ``most`` bytes."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path.name} is a link, or no file")
    if status.st_size > most:
        raise ValueError(f"{path.name} has {status.st_size:,} bytes; {most:,} are read at most")


def sync(path: Path) -> None:
    """Wait until the disk has the content of a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
