"""One safetensors file of a checkpoint: tensors, and in its header plain facts and a digest over it all."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from scalevec.model.data.durable_files import require_regular, sync
from scalevec.model.train.checkpoints.folder import temporary_path

Tensors = dict[str, torch.Tensor]
DAMAGE = (SafetensorError, ValueError, KeyError, FileNotFoundError, IsADirectoryError)
"""What reading a checkpoint may raise where it is damaged, or a file of it missing.

Any other ``OSError`` (no descriptor or memory left, a file server's bad moment) says nothing of the file.
"""


def write_whole_or_not(path: Path, tensors: Mapping[str, torch.Tensor], facts: str) -> None:
    """Write ``path`` such that it is there whole, or as it was. Raises ``OSError`` where the disk refuses."""
    temporary = temporary_path(path)
    try:
        write_file(temporary, tensors, facts)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def write_file(path: Path, tensors: Mapping[str, torch.Tensor], facts: str) -> str:
    """Write a new file and wait until the disk has it; returns its digest. Raises ``OSError``."""
    # safetensors refuses tensors that are not contiguous.
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    digest = digest_of(kept, kept.__getitem__, facts)
    try:
        save_tensors(path, kept, {"facts": facts, "digest": digest})
        # Content before name: after a loss of power the name must not stand over missing content.
        sync(path)
    except SafetensorError as problem:
        raise _as_os_error(problem, path) from problem
    return digest


def save_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a new safetensors file with the umask's mode. Raises ``SafetensorError`` or ``OSError``.

    safetensors itself makes files for their owner alone, whatever the umask.
    """
    path.touch(exist_ok=False)
    mode = path.stat().st_mode & 0o777
    save_file(dict(tensors), path, metadata=metadata)
    path.chmod(mode)


def opened(path: Path) -> Any:
    """The file ``path``, of which nothing but the header is read yet.

    Raises one of :data:`DAMAGE`, or ``OSError`` where it cannot be read now.
    """
    require_regular(path)
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:  # safetensors says so whatever kept a file from being opened
        path.open("rb").close()
        return safe_open(path, framework="pt")


def read_file(path: Path) -> tuple[Tensors, str]:
    """The tensors and the facts of a whole file. Raises as :func:`opened`."""
    with opened(path) as file:
        header = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    _require(header["digest"], digest_of(tensors, tensors.__getitem__, header["facts"]))
    return tensors, header["facts"]


def check_file(path: Path, digest: str | None = None) -> str:
    """Read all of a file, one tensor at a time; returns its facts. Raises as :func:`opened`.

    ``digest`` is what its digest has to be, where that is kept elsewhere too.
    """
    with opened(path) as file:
        header = file.metadata() or {}
        actual = digest_of(file.keys(), file.get_tensor, header["facts"])
    _require(header["digest"], actual)
    _require(digest or actual, actual)
    return str(header["facts"])


def digest_of(names: Iterable[str], tensor: Callable[[str], torch.Tensor], facts: str) -> str:
    """The digest of facts and of the tensors of these names, one at a time."""
    digest = hashlib.blake2b(facts.encode(), digest_size=32)
    for name in sorted(names):
        content = tensor(name)
        digest.update(f"{name} {content.dtype} {tuple(content.shape)}".encode())
        # As bytes: numpy has no bfloat16.
        digest.update(content.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _require(digest: str, actual: str) -> None:
    if actual != digest:
        raise ValueError("its content does not match its digest")


def _as_os_error(problem: SafetensorError, path: Path) -> OSError:
    """The operating system's error that safetensors reports as text only, with its number."""
    number = re.search(r"os error (\d+)", str(problem))
    if number is None:
        return OSError(f"{path}: {problem}")
    return OSError(int(number[1]), os.strerror(int(number[1])), str(path))
