"""What stays of a completed trial's checkpoints, whoever trained it."""

import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalevec.model.train import prune_finished
from scalevec.orchestrator.private import OTHERS_WRITE, name_of_user
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.source_files import names_files_below


def prune_trained(directory: RunDirectory, result: Mapping[str, Any]) -> None:
    """Remove the checkpoints that are not to be kept, as the attempt with this ``result`` was to do itself.

    Of a foreign trainer's, which the result's ``checkpoint`` names, ``weights`` keeps the newest. Raises
    ``CorruptRecordError`` where their folder is a link, or nobody's trainer names them so.
    """
    directory.require_no_links()
    prune_finished(directory.checkpoints_path, result)
    pattern, keep = result.get("checkpoint"), result.get("keep")
    if pattern and not names_files_below(pattern):  # by whoever may write in the runs folder
        raise CorruptRecordError(directory.result_path, f"has the checkpoint {pattern!r:.80}")
    if pattern and keep != "all":
        newest_first = sorted(checkpoints_in(directory.out_path, pattern), key=_written_at, reverse=True)
        for path in newest_first[0 if keep == "none" else 1 :]:
            _remove(path)


def checkpoints_in(folder: Path, pattern: str) -> Iterator[Path]:
    """The files and folders below ``folder`` that ``pattern`` names."""
    whole = folder.resolve()
    return (path for path in folder.glob(pattern) if path.resolve().is_relative_to(whole) and path != folder)


def newest_checkpoint(folder: Path, pattern: str) -> tuple[Path | None, int]:
    """The newest of them, and when it was written, in ns since 1970; none, and 0, where there is none."""
    path = max(checkpoints_in(folder, pattern), key=_written_at, default=None)
    return path, _written_at(path) if path else 0


def others_in(folder: Path, agreed: Collection[str] = ()) -> str | None:
    """Who else has written, or may write, a file below ``folder``: a user's name, or ``the group``.

    Those whom a person has ``agreed`` to are passed by. A trainer that loads such a file may run code of
    theirs: many a checkpoint is a pickle.
    """
    for path in (folder, *folder.rglob("*")) if folder.is_dir() else ():
        with suppress(FileNotFoundError):  # one that its trainer replaces
            state = path.lstat()
            writer = None
            if state.st_uid not in (os.geteuid(), 0):
                writer = name_of_user(state.st_uid)
            elif stat.S_ISREG(state.st_mode) and state.st_mode & OTHERS_WRITE:
                writer = "the group"
            if writer not in (None, *agreed):
                return writer
    return None


def umask_of_trainers() -> int:
    """The umask under which nobody else may write what an own trainer keeps for its next attempt."""
    before = os.umask(OTHERS_WRITE)
    os.umask(before)
    return before | OTHERS_WRITE


def _written_at(path: Path) -> int:
    with suppress(FileNotFoundError):  # one that its trainer replaces
        return path.lstat().st_mtime_ns
    return 0


def _remove(path: Path) -> None:
    """Remove a file, a folder with all in it, or a link, not what that leads to."""
    with suppress(FileNotFoundError, PermissionError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
