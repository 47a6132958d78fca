"""Checkpoints: written atomically, checked by digest, loaded without code.

A checkpoint is one safetensors file with the tensors of model and optimizer, and in its header the step, the
plain values that a resume needs and a digest over all of it. Processes that share the state out among them
write a folder of such files instead (see ``joint_state``). Nothing in either is ever executed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from scalevec.model.decoder import Transformer
from scalevec.model.train.checkpoints.folder import checkpoint_path, drop_old, newest_first, set_aside
from scalevec.model.train.checkpoints.joint_state import (
    Kept,
    Part,
    ShardedCheckpoint,
    kept_in_file,
    whole,
)
from scalevec.model.train.checkpoints.optimizer_state import LAYOUT, pack_state, unpack_state
from scalevec.model.train.checkpoints.tensor_file import (
    DAMAGE,
    Tensors,
    check_file,
    read_file,
    write_whole_or_not,
)

OPTIMIZER = "optimizer."
"""What the names of an optimizer's tensors begin with."""
OPTIMIZER_LAYOUT = f"{OPTIMIZER}{LAYOUT}"


@dataclass(frozen=True)
class Checkpoint:
    """The state after ``step`` optimizer steps; ``facts`` are plain JSON values.

    parts: of which rows those of the ``tensors`` are that this process has not whole.
    source: where it was read.
    """

    step: int
    tensors: Mapping[str, Kept]
    facts: Mapping[str, Any]
    parts: Mapping[str, Part] = field(default_factory=dict)
    source: Path | None = None

    @property
    def facts_text(self) -> str:
        """The step and the facts as they are kept."""
        return json.dumps({"step": self.step, **self.facts}, sort_keys=True)


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write ``checkpoint`` as the newest of ``folder`` and drop all but the newest two.

    Raises ``OSError`` where the disk refuses; then the folder is as it was.
    """
    path = write_checkpoint(folder, checkpoint)
    drop_old(folder)
    return path


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write ``checkpoint`` beside those of ``folder``. Raises as :func:`save_checkpoint`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = checkpoint_path(folder, checkpoint.step)
    tensors = {name: whole(kept) for name, kept in checkpoint.tensors.items()}
    write_whole_or_not(path, tensors, checkpoint.facts_text)
    return path


def load_newest(
    folder: Path, say: Callable[[str], None], read: "Callable[[Path], Checkpoint] | None" = None
) -> Checkpoint | None:
    """The newest checkpoint of ``folder`` that is whole; others are set aside, and ``say`` is told.

    ``read`` is :func:`read_checkpoint` or :func:`open_checkpoint`. Raises ``OSError`` where a file cannot be
    read now.
    """
    for path in newest_first(folder):
        try:
            return (read or read_checkpoint)(path)
        except DAMAGE as problem:
            say(f"checkpoint {path.name} is damaged ({problem}); trying the one before")
            set_aside(path)
    return None


def pack(model: Transformer, optimizer: torch.optim.Optimizer | None) -> Tensors:
    """The tensors of ``model`` and ``optimizer`` by name; a tensor with two names is kept once."""
    tensors: Tensors = {}
    seen: set[int] = set()
    # keep_vars gives the parameters themselves; without it each name gets a new tensor object.
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[f"model.{name}"] = tensor
    if optimizer is not None:
        tensors |= {f"{OPTIMIZER}{name}": tensor for name, tensor in pack_state(optimizer).items()}
    return tensors


@torch.no_grad()
def unpack(
    tensors: Mapping[str, Kept],
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    share: Callable[[Kept, torch.Tensor], torch.Tensor] = lambda kept, _: whole(kept),
) -> None:
    """Load what :func:`pack` kept into ``model`` and ``optimizer``; ``ValueError`` if it does not fit.

    ``share`` makes of what is kept what this process holds of it, given the parameter it belongs to.
    """
    targets = pack(model, None)
    kept = {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}
    if targets.keys() != kept.keys() or any(targets[name].shape != kept[name].shape for name in kept):
        raise ValueError("the checkpoint was made for another model")
    for name, tensor in kept.items():
        # In place: the optimizer, and its views of stacks, hold these very tensors.
        targets[name].copy_(share(tensor, targets[name]))
    of_optimizer = {name: tensor for name, tensor in tensors.items() if name.startswith(OPTIMIZER)}
    states = {name.removeprefix(OPTIMIZER): tensor for name, tensor in of_optimizer.items()}
    unpack_state(states, optimizer, share)


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in ``path``, checked; of one of shards the tensors are read where they are asked for.

    Raises one of ``tensor_file.DAMAGE`` if it is damaged, ``OSError`` where it cannot be read now.
    """
    if path.is_dir():
        return open_checkpoint(path)
    tensors, facts = read_file(path)
    return _with_facts(tensors, facts, path)


def open_checkpoint(path: Path, *, check: bool = True) -> Checkpoint:
    """The checkpoint in ``path``, whose tensors are read where they are asked for, and as far as that.

    With ``check`` all of it is read once, a tensor at a time. Raises as :func:`read_checkpoint`.
    """
    if not path.is_dir():
        facts = check_file(path) if check else None
        tensors, kept_facts = kept_in_file(path)
        return _with_facts(tensors, facts or kept_facts, path)
    sharded = ShardedCheckpoint.opened(path)
    if check:
        sharded.check()
    return _with_facts(sharded.tensors, sharded.facts, path)


def _with_facts(tensors: Mapping[str, Kept], text: str, source: Path) -> Checkpoint:
    facts = json.loads(text)
    return Checkpoint(facts.pop("step"), tensors, facts, source=source)
