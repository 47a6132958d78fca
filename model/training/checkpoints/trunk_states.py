"""Checkpoints of a trunk: the state before a cooldown and every row of metrics up to it, for other trials.

Each is one safetensors file, written whole and once. They only save time: whoever finds one missing, damaged
or trained in another way goes on from an older one or from the start, and ends with the same bits.
"""

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from scalevec.model.training.checkpoints.folder import checkpoint_path, checkpoint_steps
from scalevec.model.training.checkpoints.state import Checkpoint, read_checkpoint, write_checkpoint

_ROWS = "metrics"
"""The name under which a file holds the rows of metrics, as the bytes of their JSON."""

_DELETED = (errno.ENOENT, errno.ESTALE)
"""What a system says, and a file server, where a folder was deleted under a writer."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class TrunkState:
    """A checkpoint of a trunk and the ``rows`` of metrics of all its steps."""

    checkpoint: Checkpoint
    rows: Rows


def save_trunk(folder: Path, checkpoint: Checkpoint, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Keep ``checkpoint`` with ``rows`` in ``folder``; False where it is not kept.

    That is where one of its step is there already, or where the folder is deleted meanwhile: it only saves
    time. Raises ``OSError`` where the disk refuses.
    """
    path = checkpoint_path(folder, checkpoint.step)
    # No lock: of two that write the same step at once, either file will do.
    if path.exists():
        return False
    text = json.dumps(rows).encode()
    tensors = {**checkpoint.tensors, _ROWS: torch.frombuffer(bytearray(text), dtype=torch.uint8)}
    try:
        write_checkpoint(folder, Checkpoint(checkpoint.step, tensors, checkpoint.facts))
    except OSError as problem:
        if problem.errno not in _DELETED:
            raise
        return False
    return True


def load_trunk(
    folder: Path, steps: range, unfit: Callable[[TrunkState], str], say: Callable[[str], None]
) -> TrunkState | None:
    """The newest state of ``folder`` at one of ``steps`` of which ``unfit`` says nothing.

    ``say`` is told of each one that is passed over; a damaged one is set aside.
    """
    for step in (step for step in reversed(checkpoint_steps(folder)) if step in steps):
        path = checkpoint_path(folder, step)
        try:
            state = _read(path)
        except FileNotFoundError:  # nobody needed it any more
            continue
        except (SafetensorError, ValueError, KeyError, OSError) as problem:
            say(f"trunk {folder.name[:12]}: {path.name} is damaged ({problem}); it is set aside")
            with suppress(OSError):  # it is passed over all the same
                path.rename(path.with_name(f"{path.name}.corrupt"))
            continue
        if reason := unfit(state):
            say(f"trunk {folder.name[:12]}: the state after step {step} is not used, {reason}")
            continue
        return state
    return None


def _read(path: Path) -> TrunkState:
    checkpoint = read_checkpoint(path)
    text = checkpoint.tensors[_ROWS].numpy().tobytes()
    tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if name != _ROWS}
    return TrunkState(Checkpoint(checkpoint.step, tensors, checkpoint.facts), json.loads(text))
