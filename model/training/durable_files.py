"""Files and directories that are there complete, and still there after a power cut, or not at all."""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def partial_directories(final: Path) -> list[Path]:
    """Directories in which ``final`` is being made, or was when its maker was killed."""
    return sorted(final.parent.glob(f".{final.name}.*.partial"))


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


def sync(path: Path) -> None:
    """Wait until the disk has the content of a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
