"""Checkpoints that processes write together: a folder of safetensors files, and an index of them in JSON.

Each process writes what it holds. Once all have, the first one writes the index, which names the files with
their digests and says of each tensor which file has which of its rows; then the folder gets its name, so a
checkpoint is there whole or not at all. Any number of processes reads it, each the rows that it needs.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scalevec.model.data.durable_files import read_regular, sync, write_synced
from scalevec.model.limits_here import usable_cpus
from scalevec.model.train.checkpoints.folder import set_aside
from scalevec.model.train.checkpoints.tensor_file import check_file, opened, write_file

INDEX = "index.json"


@dataclass(frozen=True)
class Part:
    """The rows of a tensor that a process holds, from ``start`` on; ``shape`` is that of the whole."""

    start: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """The rows ``start`` to before ``stop`` of a tensor, which are in an opened ``file``."""

    file: Any
    start: int
    stop: int


@dataclass(frozen=True)
class KeptTensor:
    """A tensor in the files of a checkpoint, of which nothing is read until it is asked for."""

    name: str
    shape: torch.Size
    pieces: tuple[Piece, ...]

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """The rows ``start`` to before ``stop`` [stop - start, ...]; no others are read."""
        if start >= stop:
            first = self.pieces[0]
            return self.rows(first.start, first.start + 1)[:0]
        parts = [
            piece.file.get_slice(self.name)[max(start - piece.start, 0) : min(stop, piece.stop) - piece.start]
            for piece in self.pieces
            if start < piece.stop and piece.start < stop
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def whole(self) -> torch.Tensor:
        """All of it."""
        if len(self.pieces) == 1:
            tensor: torch.Tensor = self.pieces[0].file.get_tensor(self.name)
            return tensor
        return self.rows(0, self.shape[0])


Kept = torch.Tensor | KeptTensor


def whole(kept: Kept) -> torch.Tensor:
    """The tensor, read where it is in a file."""
    return kept.whole() if isinstance(kept, KeptTensor) else kept


def kept_in_file(path: Path) -> tuple[dict[str, KeptTensor], str]:
    """The tensors of one file, unread, and its facts. Raises one of ``tensor_file.DAMAGE``."""
    file = opened(path)
    tensors = {}
    for name in file.keys():  # noqa: SIM118 (not a mapping)
        shape = torch.Size(file.get_slice(name).get_shape())
        tensors[name] = KeptTensor(name, shape, (Piece(file, 0, _n_rows(shape)),))
    return tensors, (file.metadata() or {})["facts"]


def _n_rows(shape: Sequence[int]) -> int:
    """A number counts as one row."""
    return shape[0] if shape else 1


@dataclass(frozen=True)
class ShardedCheckpoint:
    """A folder of shards whose index was read."""

    folder: Path
    index: Mapping[str, Any]

    @classmethod
    def opened(cls, folder: Path) -> "ShardedCheckpoint":
        """Read the index. Raises ``OSError``, or ``ValueError`` where it is damaged."""
        kept = json.loads(read_regular(folder / INDEX))
        if not isinstance(kept, dict) or kept.pop("digest", None) != _digest(kept):
            raise ValueError(f"the content of {INDEX} does not match its digest")
        if strange := [name for name in kept["files"] if Path(name).name != name]:
            raise ValueError(f"{INDEX} names {strange[0]}, which is not in its folder")
        return cls(folder, kept)

    @property
    def facts(self) -> str:
        """The plain values, as text."""
        return str(self.index["facts"])

    @property
    def tensors(self) -> dict[str, KeptTensor]:
        """All tensors by name, unread. Raises one of ``tensor_file.DAMAGE``."""
        files = {name: opened(self.folder / name) for name in self.index["files"]}
        return {name: _kept(name, described, files) for name, described in self.index["tensors"].items()}

    def check(self) -> None:
        """Read all files, a tensor at a time each. Raises one of ``tensor_file.DAMAGE``."""
        files = self.index["files"]
        with ThreadPoolExecutor(min(len(files), usable_cpus())) as threads:
            list(threads.map(lambda name: check_file(self.folder / name, files[name]), files))


def _kept(name: str, described: Mapping[str, Any], files: Mapping[str, Any]) -> KeptTensor:
    rows = sorted((tuple(span), file) for file, span in described["rows"].items())
    pieces = tuple(Piece(files[file], start, stop) for (start, stop), file in rows)
    shape, reached = torch.Size(described["shape"]), 0
    for piece in pieces:
        if piece.start != reached:
            raise ValueError(f"row {reached} of {name} is in no file")
        reached = piece.stop
    if reached != _n_rows(shape):
        raise ValueError(f"row {reached} of {name} is in no file")
    return KeptTensor(name, shape, pieces)


@dataclass(frozen=True)
class Shard:
    """What one process wrote: its file, and of each tensor the shape of the whole and the rows in it."""

    file: str
    digest: str
    tensors: Mapping[str, tuple[list[int], list[int]]]


def write_shard(
    folder: Path,
    rank: int,
    size: int,
    tensors: Mapping[str, torch.Tensor],
    parts: Mapping[str, Part],
    step: int,
) -> Shard:
    """Write what process ``rank`` of ``size`` holds into ``folder``. Raises ``OSError``."""
    name = f"shard-{rank + 1:05d}-of-{size:05d}.safetensors"
    facts = json.dumps({"step": step, "shard": rank + 1, "of": size})
    digest = write_file(folder / name, tensors, facts)
    described = {}
    for key, tensor in tensors.items():
        part = parts.get(key) or Part(0, tuple(tensor.shape))
        described[key] = (list(part.shape), [part.start, part.start + _n_rows(tensor.shape)])
    return Shard(name, digest, described)


def complete(folder: Path, path: Path, shards: Sequence[Shard], facts: str) -> None:
    """Write the index of ``shards``, and give ``folder`` the name ``path``. Raises ``OSError``."""
    tensors: dict[str, Any] = {}
    for shard in shards:
        for name, (shape, span) in shard.tensors.items():
            described = tensors.setdefault(name, {"shape": shape, "rows": {}})
            described["rows"][shard.file] = span
    files = {shard.file: shard.digest for shard in shards}
    index = {"world_size": len(shards), "facts": facts, "files": files, "tensors": tensors}
    text = json.dumps({**index, "digest": _digest(index)}, indent=1, sort_keys=True)
    write_synced(folder / INDEX, text.encode())
    sync(folder)
    if path.is_dir():
        set_aside(path)  # a folder cannot take the place of one that has something in it
    folder.rename(path)
    sync(path.parent)


def _digest(index: Mapping[str, Any]) -> str:
    text = json.dumps(index, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
