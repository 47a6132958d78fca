"""Training: the loop and what it stands on. Here: the checkpoints of a trial as files, by name, unread.

To import it loads no torch: who plans or schedules looks at these names alone.
"""

import os
import re
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


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Each checkpoint of ``folder``, whole or not, with its step by its name, ascending."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (glob raises where another process deletes the folder)
    except FileNotFoundError:
        return []
    return sorted((int(match[1]), folder / match[0]) for match in map(_CHECKPOINT.fullmatch, names) if match)


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints of ``folder``, whole or not."""
    return [path for _, path in reversed(checkpoints(folder))]


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps of the checkpoints of ``folder`` by their names, unread, ascending."""
    return [step for step, _ in checkpoints(folder)]


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint of ``folder``; 0 where there is none."""
    return max(checkpoint_steps(folder), default=0)


def set_aside(path: Path) -> None:
    """Take a checkpoint that cannot be used out of the order, where it would pass for the newest."""
    with suppress(FileNotFoundError):
        path.replace(path.with_name(path.name + _ASIDE))


def prune(folder: Path, n: int = KEPT) -> None:
    """Drop all but the newest ``n`` checkpoints, and leftovers."""
    _drop(newest_first(folder)[n:])
    drop_leftovers(folder)


def prune_finished(folder: Path, result: Mapping[str, Any]) -> None:
    """Prune as the attempt with this ``result`` was to do, which may have been killed before it came to that.

    Nothing happens where the result does not say what is kept. Who may not delete the files leaves them.
    """
    if keep := result.get("keep"):
        with suppress(PermissionError):
            prune(folder, 0 if keep == "none" else 1)


def drop_leftovers(folder: Path) -> None:
    """Drop what writers that were killed had begun, and what was set aside.

    Only for who owns the trial, or where it has its result: a living writer would lose its file.
    """
    _drop(folder.glob(".step-*.tmp"))
    _drop(folder.glob(f"step-*{_ASIDE}"))


def _drop(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
