"""Checkpoints: written atomically and behind the training, checked by digest, loaded without code.

A checkpoint is one safetensors file with the tensors of model and optimizer, and in its header the step, the
plain values that a resume needs and a digest over all of it. Whatever the number of processes that train, and
whether they shard the model, it is the same file: rank 0 writes it, any world goes on from it.
"""

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from scalevec.model.data.system import require_regular, sync
from scalevec.model.decoder import Transformer
from scalevec.model.train import checkpoint_path, newest_first, prune, set_aside
from scalevec.model.train.optimizer_state import Share, Tensors, entire, pack_state, unpack_state

DAMAGE = (SafetensorError, ValueError, KeyError, FileNotFoundError, IsADirectoryError)
"""What reading a checkpoint may raise where it is damaged or gone.

Any other ``OSError`` (no descriptor or memory left, a file server's bad moment) says nothing of the file.
"""
COST_SHARE = 0.02
"""Of the time of training that its checkpoints may take."""
WORTH_COUNTING_S = 1.0
"""A smaller cost never makes the interval longer."""
CPU_SLOWDOWN = 2.0
"""Seconds that a training on the CPU loses for each second of processor time of a write behind it: 0.8 to 1.8
were seen with 119M and 254M parameters on two cores, idle and shared by eight others."""


@dataclass(frozen=True)
class Checkpoint:
    """The state after ``step`` optimizer steps; ``facts`` are plain JSON values.

    ``is_copy`` says that the tensors are nobody else's: the training does not go on with them.
    """

    step: int
    tensors: Mapping[str, torch.Tensor]
    facts: Mapping[str, Any]
    is_copy: bool = False


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write ``checkpoint`` as the newest of ``folder`` and drop all but the newest two.

    Raises ``OSError`` where the disk refuses; then the folder is as it was.
    """
    path = write_checkpoint(folder, checkpoint)
    prune(folder)
    return path


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write ``checkpoint`` beside those of ``folder``, whole. Raises as :func:`save_checkpoint`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = checkpoint_path(folder, checkpoint.step)
    facts = json.dumps({"step": checkpoint.step, **checkpoint.facts}, sort_keys=True)
    # safetensors refuses tensors that are not contiguous.
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    # No two writers, on whatever machines, share one.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        save_tensors(temporary, kept, {"facts": facts, "digest": _digest(kept, facts)})
        # Content before name: after a loss of power the name must not stand over missing content.
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(folder)
    return path


def save_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a new safetensors file with the umask's mode. Raises ``OSError`` that names it.

    safetensors itself makes files for their owner alone, whatever the umask.
    """
    path.touch(exist_ok=False)
    mode = path.stat().st_mode & 0o777
    try:
        save_file(dict(tensors), path, metadata=metadata)
    except SafetensorError as problem:
        raise _as_os_error(problem, path) from problem
    path.chmod(mode)


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in ``path``, checked.

    Raises one of :data:`DAMAGE` if it is damaged, ``OSError`` where it cannot be read now.
    """
    with _opened(path) as file:
        header = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    if header["digest"] != _digest(tensors, header["facts"]):
        raise ValueError("its content does not match its digest")
    facts = json.loads(header["facts"])
    return Checkpoint(facts.pop("step"), tensors, facts, is_copy=True)


def load_newest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint of ``folder`` that is whole; others are set aside, and ``say`` is told.

    Raises ``OSError`` where a file cannot be read now.
    """
    for path in newest_first(folder):
        try:
            return read_checkpoint(path)
        except DAMAGE as problem:
            say(f"checkpoint {path.name} is damaged ({problem}); trying the one before")
            set_aside(path)
    return None


def _opened(path: Path) -> Any:
    require_regular(path)
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:  # safetensors says so whatever kept a file from being opened
        path.open("rb").close()
        return safe_open(path, framework="pt")


def _digest(tensors: Mapping[str, torch.Tensor], facts: str) -> str:
    digest = hashlib.blake2b(facts.encode(), digest_size=32)
    for name, content in sorted(tensors.items()):
        digest.update(f"{name} {content.dtype} {tuple(content.shape)}".encode())
        # As bytes: numpy has no bfloat16.
        digest.update(content.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _as_os_error(problem: SafetensorError, path: Path) -> OSError:
    """The operating system's error that safetensors reports as text only, with its number."""
    number = re.search(r"os error (\d+)", str(problem))
    if number is None:
        return OSError(f"{path}: {problem}")
    return OSError(int(number[1]), os.strerror(int(number[1])), str(path))


def pack(model: Transformer, optimizer: torch.optim.Optimizer | None) -> Tensors:
    """The tensors of ``model`` and ``optimizer`` by name; a tensor with two names is kept once."""
    tensors: Tensors = {}
    seen: set[int] = set()
    # keep_vars gives the parameters themselves; without it each name gets a new tensor object.
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[f"model.{name}"] = tensor
    return tensors | (pack_state(optimizer) if optimizer is not None else {})


@torch.no_grad()
def unpack(
    tensors: Mapping[str, torch.Tensor],
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    share: Share = entire,
) -> None:
    """Load what :func:`pack` kept into ``model`` and ``optimizer``; ``ValueError`` if it does not fit.

    ``share`` makes of what is kept what this process holds of it, given the parameter it belongs to. Each of
    ``tensors`` is asked for once, in the same order at all processes.
    """
    targets = pack(model, None)
    if targets.keys() != {name for name in tensors if name.startswith("model.")}:
        raise ValueError("the checkpoint was made for another model")
    for name, target in targets.items():
        kept = tensors[name]
        if kept.shape != target.shape:
            raise ValueError(f"the checkpoint was made for another model: {name} is {tuple(kept.shape)}")
        # In place: the optimizer, and its views of stacks, hold these very tensors.
        target.copy_(share(kept, target))
    unpack_state(tensors, optimizer, share)


class BackgroundWriter:
    """Writes the checkpoints of a run behind it, one at a time; a context, which ends when all is written.

    A write that failed is raised as its ``OSError`` where the next one begins, or at the end.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self.last_s = 0.0
        """For which the last checkpoint held the training up: copying, and waiting for the write before."""
        self.write_cpu_s = 0.0
        """Processor time of the last write that is over, where the training is on the CPU too."""

    def write(self, checkpoint: Checkpoint) -> None:
        """Copy ``checkpoint`` and write the copy; waits where one is being written."""
        started = time.monotonic()
        self.wait()
        competes = all(tensor.device.type == "cpu" for tensor in checkpoint.tensors.values())
        if not checkpoint.is_copy:
            checkpoint = replace(checkpoint, tensors=_to_host(checkpoint.tensors))
        self._writing = self._thread.submit(self._run, checkpoint, competes)
        self.last_s = time.monotonic() - started

    def _run(self, checkpoint: Checkpoint, competes: bool) -> None:
        started = time.thread_time()
        save_checkpoint(self.folder, checkpoint)
        self.write_cpu_s = time.thread_time() - started if competes else 0.0

    def wait(self) -> None:
        """Return when the last checkpoint is on the disk. Raises what its write raised."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def interval(self, asked: float) -> float:
        """Seconds between two checkpoints: as ``asked``, or as many as keep their cost within 2 %."""
        cost = self.last_s + CPU_SLOWDOWN * self.write_cpu_s
        return asked if cost < WORTH_COUNTING_S else max(asked, cost / COST_SHARE)

    def __enter__(self) -> "BackgroundWriter":
        return self

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        self._thread.shutdown()
        if problem is None:  # else that is what the run ended with, whatever the write did
            self.wait()


def _to_host(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Copies in this machine's memory, of what ``tensors`` are now: the training goes on with them.

    Those of a GPU go into pinned memory, which it writes several times as fast, and are waited for once;
    torch keeps that memory for the next checkpoint.
    """
    copies = {
        name: torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda, requires_grad=False)
        for name, tensor in tensors.items()
    }
    for name, tensor in tensors.items():
        copies[name].copy_(tensor.detach(), non_blocking=True)
    for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
    return copies
