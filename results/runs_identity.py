"""Which runs folder a record was made in, and whether that is the folder in which it lies now.

A runs folder has a random id (``.scalevec-id``), written once and never changed; a copy carries the same one.
Claims and jobs therefore keep where they were made: id, number (inode), path and device of the folder. They
are of this folder where id and inode agree, and path or device as well:

- A folder that is renamed, or moved within its file system, keeps inode and device.
- Another machine, or a later mount, numbers the device otherwise; inode and path stay. So a device is kept
  with the boot of the machine that saw it, and tells nothing elsewhere.
- A copy has another inode, or by chance the same one with another path on another device.

Of any other record nobody can tell: the folder is a copy, or was mounted again or restored. Its jobs are
neither adopted nor ended, and its processes are not looked for by number. Only a copy of a whole volume that
is mounted in place of the original passes for it.
"""

import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from scalevec.results.files import CorruptRecordError, read_bytes_if_any, write_once

RUNS_ID = ".scalevec-id"
_HOLDS_RUN_DIRECTORIES = ("trials", "sweeps")
_ID = re.compile(rb"[0-9a-f]{32}\n")


def runs_id(runs_dir: Path, *, make: bool = False) -> str | None:
    """The id of a runs folder, which its copies share; None where it has none, or cannot be read.

    ``make`` gives it one where it may be written.
    """
    path = runs_dir / RUNS_ID
    if make and runs_dir.is_dir() and not os.path.lexists(path):
        with suppress(OSError):  # another process was first, or we may not write here
            write_once(path, f"{secrets.token_hex(16)}\n".encode())
    try:
        content = read_bytes_if_any(path) or b""
    except (OSError, CorruptRecordError):
        return None
    return content.decode().strip() if _ID.fullmatch(content) else None


def runs_around(run_directory: Path, *, make: bool = False) -> dict[str, Any] | None:
    """The place of the runs folder that a run directory, or one beside a sweep's files, lies in.

    None where the directory lies elsewhere.
    """
    above = run_directory.absolute().parents
    if len(above) < 3 or above[1].name not in _HOLDS_RUN_DIRECTORIES:
        return None
    path = above[2].resolve()
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return {
        "id": runs_id(path, make=make),
        "inode": status.st_ino,
        "path": str(path),
        "device": f"{boot_id()} {status.st_dev}",
    }


def is_of(record: Mapping[str, Any], here: Mapping[str, Any] | None) -> bool:
    """Whether a claim or a job was made in the runs folder ``here``, as :func:`runs_around` describes it."""
    made_in = record.get("runs")
    if here is None or not isinstance(made_in, dict):
        return made_in == here
    agree = {name for name, value in here.items() if made_in.get(name) == value}
    return {"id", "inode"} <= agree and not agree.isdisjoint({"path", "device"})


@cache
def boot_id() -> str | None:
    """What tells this boot of this machine from all others, where the system says it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
