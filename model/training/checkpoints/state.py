"""Checkpoints: one safetensors file each, written atomically, checked by digest, loaded without code.

A file holds the tensors of model and optimizer, and in its header the step, the plain values that a
resume needs and a digest over all of it. Nothing in it is ever executed.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from scalevec.model.training.checkpoints.folder import (
    checkpoint_path,
    drop_old,
    newest_first,
    set_aside,
    temporary_path,
)
from scalevec.model.training.checkpoints.optimizer_state import LAYOUT, pack_state, unpack_state
from scalevec.model.training.durable_files import sync
from scalevec.model.transformer import Transformer

OPTIMIZER = "optimizer."
"""What the names of an optimizer's tensors begin with."""
OPTIMIZER_LAYOUT = f"{OPTIMIZER}{LAYOUT}"

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """The state after ``step`` optimizer steps; ``facts`` are plain JSON values."""

    step: int
    tensors: Tensors
    facts: Mapping[str, Any]


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
    # safetensors refuses tensors that are not contiguous.
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    facts = json.dumps({"step": checkpoint.step, **checkpoint.facts}, sort_keys=True)
    path = checkpoint_path(folder, checkpoint.step)
    _write_atomically(path, tensors, {"facts": facts, "digest": _digest(tensors, facts)})
    return path


def load_newest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint of ``folder`` that is whole; others are set aside, and ``say`` is told."""
    for path in newest_first(folder):
        try:
            return read_checkpoint(path)
        except (SafetensorError, ValueError, KeyError, OSError) as problem:
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
    tensors: Tensors,
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    share: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda tensor, _: tensor,
) -> None:
    """Load what :func:`pack` kept into ``model`` and ``optimizer``; ``ValueError`` if it does not fit.

    ``share`` makes of a whole tensor what this process holds of it, given the parameter it belongs to.
    """
    targets = pack(model, None)
    kept = {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}
    if targets.keys() != kept.keys() or any(targets[name].shape != kept[name].shape for name in kept):
        raise ValueError("the checkpoint was made for another model")
    for name, tensor in kept.items():
        # In place: the optimizer, and its views of stacks, hold these very tensors.
        targets[name].copy_(share(tensor, targets[name]))
    of_optimizer = {name: tensor for name, tensor in tensors.items() if name.startswith(OPTIMIZER)}
    unpack_state({name.removeprefix(OPTIMIZER): tensor for name, tensor in of_optimizer.items()}, optimizer)
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                state[name] = share(value, parameter)


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in ``path``; one of safetensors' errors, ``ValueError`` or ``KeyError`` if damaged."""
    with safe_open(path, framework="pt") as file:
        header = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    if _digest(tensors, header["facts"]) != header["digest"]:
        raise ValueError("its content does not match its digest")
    facts = json.loads(header["facts"])
    return Checkpoint(facts.pop("step"), tensors, facts)


def _digest(tensors: Tensors, facts: str) -> str:
    digest = hashlib.blake2b(facts.encode(), digest_size=32)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        # As bytes: numpy has no bfloat16.
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _write_atomically(path: Path, tensors: Tensors, header: dict[str, str]) -> None:
    temporary = temporary_path(path)
    try:
        # safetensors makes files for their owner alone, whatever the umask.
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode & 0o777
        save_file(tensors, temporary, metadata=header)
        temporary.chmod(mode)
        # Content before name: after a loss of power the name must not stand over missing content.
        sync(temporary)
        temporary.replace(path)
    except SafetensorError as problem:
        raise _as_os_error(problem, path) from problem
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def _as_os_error(problem: SafetensorError, path: Path) -> OSError:
    """The operating system's error that safetensors reports as text only, with its number."""
    number = re.search(r"os error (\d+)", str(problem))
    if number is None:
        return OSError(f"{path}: {problem}")
    return OSError(int(number[1]), os.strerror(int(number[1])), str(path))
