"""Checkpoints of a trunk: the state before a cooldown and every row of metrics up to it, for other trials.

Each is a checkpoint as a trial's own, written whole and once. They only save time: whoever finds one missing,
damaged or trained in another way goes on from an older one or from the start, and ends with the same bits.
"""

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from scalevec.model.train.checkpoint import (
    DAMAGE,
    Checkpoint,
    checkpoint_steps,
    newest_first,
    read_checkpoint,
    step_of,
    write_checkpoint,
)

_ROWS = "metrics"
"""The name under which a file holds the rows of metrics, as the bytes of their JSON."""

_DELETED = (errno.ENOENT, errno.ESTALE)
"""What a system says, and a file server, where a folder was deleted under a writer."""

_OF_THE_MACHINE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What keeps a process from reading any file."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class TrunkState:
    """A checkpoint of a trunk and the ``rows`` of metrics of all its steps."""

    checkpoint: Checkpoint
    rows: Rows


def is_kept(folder: Path, step: int) -> bool:
    """Whether ``folder`` has a state after ``step``."""
    return step in checkpoint_steps(folder)


def save_trunk(folder: Path, checkpoint: Checkpoint, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Keep ``checkpoint`` with ``rows`` in ``folder``, where :func:`is_kept` denies that it is there already.

    False where it is not kept because the folder is deleted meanwhile: it only saves time. No lock: of two
    that write the same step at once, either will do. Raises ``OSError`` where the disk refuses.
    """
    text = torch.frombuffer(bytearray(json.dumps(rows).encode()), dtype=torch.uint8)
    try:
        write_checkpoint(folder, replace(checkpoint, tensors={**checkpoint.tensors, _ROWS: text}))
    except OSError as problem:
        if problem.errno not in _DELETED:
            raise
        return False
    return True


def load_trunk(
    folder: Path, steps: range, unfit: Callable[[TrunkState], str], say: Callable[[str], None]
) -> TrunkState | None:
    """The newest state of ``folder`` at one of ``steps`` of which ``unfit`` says nothing.

    ``say`` is told of each one that is passed over; a damaged one is set aside. Raises ``OSError`` as
    ``checkpoint.load_newest`` does.
    """
    for path in (path for path in newest_first(folder) if step_of(path) in steps):
        try:
            state = _with_rows(read_checkpoint(path))
        except FileNotFoundError:  # nobody needed it any more
            continue
        except DAMAGE as problem:
            say(f"trunk {folder.name[:12]}: {path.name} is damaged ({problem}); it is set aside")
            with suppress(OSError):  # it is passed over all the same
                path.rename(path.with_name(f"{path.name}.corrupt"))
            continue
        except OSError as problem:
            if problem.errno in _OF_THE_MACHINE:
                raise
            say(f"trunk {folder.name[:12]}: {path.name} is not used ({problem})")
            continue
        if reason := unfit(state):
            say(f"trunk {folder.name[:12]}: the state after step {step_of(path)} is not used, {reason}")
            continue
        return state
    return None


def _with_rows(checkpoint: Checkpoint) -> TrunkState:
    rows = json.loads(checkpoint.tensors[_ROWS].numpy().tobytes())
    tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if name != _ROWS}
    return TrunkState(replace(checkpoint, tensors=tensors), rows)
