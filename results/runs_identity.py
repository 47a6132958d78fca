"""A runs folder knows itself: an id, and the number of the folder that it was given to.

A folder keeps its number (its inode) when it is renamed, or moved within its file system. A copy has another
one, so that its id is another too and what the original's jobs and workers left in it is told from its own.
"""

import hashlib
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalevec.results.files import AlreadyWrittenError, write_atomic, write_once

RUNS_ID = ".scalevec-id"
_HOLDS_RUN_DIRECTORIES = ("trials", "sweeps")


def runs_id(runs_dir: Path, *, make: bool = False) -> str | None:
    """The id of a runs folder; None where it has none, or cannot be read.

    ``make`` gives it one where it may be written. That of a copy follows from the original's id and the
    copy's number: all who look at it find the same one, whether or not anybody could write it down.
    """
    path = runs_dir / RUNS_ID
    if make and runs_dir.is_dir():
        with suppress(OSError):
            _keep(path)
    try:
        return _id_and_number(path)[0]
    except OSError:
        return None


def _id_and_number(path: Path) -> tuple[str | None, str]:
    """The id of the folder of ``path`` as it is now, and what the file says of its number.

    Raises ``OSError`` where the file is not there, or cannot be read now.
    """
    try:
        words = path.read_text(encoding="ascii").split()
    except UnicodeDecodeError:
        return None, ""
    number = str(path.parent.stat().st_ino)
    name, kept = (*words, "", "")[:2]
    if not name:
        return None, ""
    if kept in ("", number):  # earlier versions kept none
        return name, kept
    return hashlib.sha256(f"{name} {number}".encode()).hexdigest()[:32], kept


def _keep(path: Path) -> None:
    """Write the id with the folder's number, unless both are there. Raises ``OSError``.

    An id that cannot be read stays: under another one, all that runs here would be taken for a copy's.
    """
    number = str(path.parent.stat().st_ino)
    try:
        name, kept = _id_and_number(path)
    except FileNotFoundError:
        with suppress(AlreadyWrittenError):
            write_once(path, f"{secrets.token_hex(16)} {number}\n".encode())
        return
    if kept != number:
        write_atomic(path, f"{name or secrets.token_hex(16)} {number}\n".encode())


def id_of_runs_around(run_directory: Path, *, make: bool = False) -> str | None:
    """The id of the runs folder that a run directory, or one beside a sweep's files, lies in.

    None where the directory lies elsewhere.
    """
    above = run_directory.absolute().parents
    if len(above) < 3 or above[1].name not in _HOLDS_RUN_DIRECTORIES:
        return None
    return runs_id(above[2], make=make)


def is_of_runs_around(record: Mapping[str, Any], run_directory: Path) -> bool:
    """Whether a claim or a job was made in the runs folder around ``run_directory``, not in one it copies.

    Records of earlier versions do not say.
    """
    made_in, here = record.get("runs"), id_of_runs_around(run_directory)
    return made_in is None or here is None or made_in == here
