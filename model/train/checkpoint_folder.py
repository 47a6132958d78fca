"""The files of a folder of checkpoints: their names, their order, and which of them stay; none is read."""

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

KEPT = 2
"""How many checkpoints stay: the newest, and the one before in case the newest is damaged."""

_CHECKPOINT = re.compile(r"step-(\d{9,})\.safetensors")
_ASIDE = ".aside"


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint after ``step`` is kept."""
    # Of fixed width, so that names sort as numbers do.
    return folder / f"step-{step:09d}.safetensors"


def temporary_path(path: Path) -> Path:
    """Where the checkpoint ``path`` is written first: no two writers, on whatever machines, share one."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints of ``folder``, whole or not."""
    return [path for _, path in reversed(_entries(folder))]


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps of the checkpoints of ``folder`` by their names, unread, ascending."""
    return [step for step, _ in _entries(folder)]


def _entries(folder: Path) -> list[tuple[int, Path]]:
    """Each checkpoint with its step, in order."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (glob raises where another process deletes the folder)
    except FileNotFoundError:
        return []
    return sorted((int(match[1]), folder / match[0]) for match in map(_CHECKPOINT.fullmatch, names) if match)


def step_of(path: Path) -> int:
    """The step of the checkpoint ``path``."""
    match = _CHECKPOINT.fullmatch(path.name)
    assert match is not None, path
    return int(match[1])


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint of ``folder``; 0 where there is none."""
    return max(checkpoint_steps(folder), default=0)


def set_aside(path: Path) -> None:
    """Take a checkpoint that cannot be used out of the order, where it would pass for the newest."""
    with suppress(FileNotFoundError):
        path.replace(path.with_name(path.name + _ASIDE))


def set_aside_after(folder: Path, step: int) -> list[str]:
    """Set the checkpoints after ``step`` aside; their names, the newest first."""
    paths = [path for other, path in reversed(_entries(folder)) if other > step]
    for path in paths:
        set_aside(path)
    return [path.name for path in paths]


def drop_old(folder: Path) -> None:
    """Leave the newest two checkpoints, and nothing beside them."""
    _drop(newest_first(folder)[KEPT:])
    drop_leftovers(folder)


def prune(folder: Path, keep: str) -> None:
    """What stays of a completed trial's checkpoints: nothing for ``none``, else the last one."""
    _drop(newest_first(folder)[0 if keep == "none" else 1 :])
    drop_leftovers(folder)


def prune_finished(folder: Path, result: Mapping[str, Any]) -> None:
    """Prune as the attempt with this ``result`` was to do, which may have been killed before it came to that.

    Nothing happens where the result does not say what is kept. Who may not delete the files leaves them.
    """
    if keep := result.get("keep"):
        with suppress(PermissionError):
            prune(folder, keep)


def drop_leftovers(folder: Path) -> None:
    """Drop what writers that were killed had begun, and what was set aside.

    Only for who owns the trial, or where it has its result: a living writer would lose its file.
    """
    _drop(folder.glob(".step-*.tmp"))
    _drop(folder.glob(f"step-*{_ASIDE}"))


def _drop(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
