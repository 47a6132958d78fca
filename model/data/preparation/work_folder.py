"""Where a corpus is prepared: a folder that outlives the process, so that the next one goes on from there."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scalevec.model.data.preparation.meter import Progress

_LOCK = "lock"
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


@contextmanager
def work_folder(corpora_dir: Path, key: str, progress: Progress) -> Iterator[Path]:
    """The folder of the preparation named ``key`` (hexadecimal); it is removed at the end, not on an error.

    While another process has it, this one works in a folder of its own, which is removed in any case.
    """
    folder = corpora_dir / f".{key[:16]}.preparing"
    _name_others(corpora_dir, folder, progress)
    with _locked(folder) as is_ours:
        if not is_ours:
            with tempfile.TemporaryDirectory(prefix=".", suffix=".preparing", dir=corpora_dir) as private:
                yield Path(private)
            return
        _remove_unfinished(folder)
        try:
            yield folder
        except BaseException:
            _say_what_is_kept(folder, progress)
            raise
        shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Whether this process has the folder to itself, which is made. A lock ends with its process."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o666)
        except FileNotFoundError:  # removed by whoever had it
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_there(folder / _LOCK, descriptor):
                os.close(descriptor)
                continue
            is_ours = True
        except BlockingIOError:
            is_ours = False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise
            is_ours = True
        break
    try:
        yield is_ours
    finally:
        os.close(descriptor)


def _is_there(path: Path, descriptor: int) -> bool:
    """Whether the open file still is the one at ``path``."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False


def _remove_unfinished(folder: Path) -> None:
    for partial in folder.glob("**/.*.partial"):
        shutil.rmtree(partial, ignore_errors=True)


def _name_others(corpora_dir: Path, folder: Path, progress: Progress) -> None:
    for other in sorted(corpora_dir.glob(".*.preparing")):
        if other != folder:
            progress(f"{other} is of a corpus in the making, or was interrupted and can be removed")


def _say_what_is_kept(folder: Path, progress: Progress) -> None:
    _remove_unfinished(folder)
    size = sum(path.stat().st_size for path in folder.glob("**/*") if path.is_file())
    if not size:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder.parent.rmdir()  # where there is no corpus yet
        return
    progress(
        f"{size / 1e6:,.0f} MB of finished work are kept in {folder}: the same command goes on from there; "
        "remove the folder if you do not want that corpus"
    )
