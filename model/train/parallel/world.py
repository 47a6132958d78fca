"""The processes that train one trial together, as the training loop sees them.

A step's batch is the same set of sequences whatever the size of the world: each rank takes its neighbouring
part of them. What follows from the whole batch (its loss, the norm of its gradient, the load of its experts)
is summed over the ranks, so that every rank takes the same step. Rank 0 leads: it alone reads and writes
files, but for the checkpoints of sharded parameters.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scalevec.model.decoder import Transformer
from scalevec.model.train.checkpoints.behind import BackgroundWriter
from scalevec.model.train.checkpoints.joint_state import Kept, Part
from scalevec.model.train.checkpoints.state import Checkpoint, pack, read_checkpoint, unpack
from scalevec.model.train.checkpoints.tensor_file import Tensors
from scalevec.model.train.checkpoints.trunk_states import save_trunk
from scalevec.model.train.optim import Group


class Packed(NamedTuple):
    """What a process has of the state of model and optimizer, and which rows where it is not all."""

    tensors: Tensors
    parts: Mapping[str, Part]


class World:
    """A world of one process, which needs no other: everything is as it is given."""

    rank = 0
    size = 1

    @property
    def leads(self) -> bool:
        """Whether this process keeps what the run has to say."""
        return self.rank == 0

    def part(self, n_sequences: int) -> slice:
        """Which of the sequences of a batch are this rank's."""
        each = n_sequences // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def prepare(self, model: Transformer) -> None:
        """Lay the parameters out over the ranks, before an optimizer is built over them."""

    def laid_out(self, groups: list[Group]) -> list[Group]:
        """The groups of parameters that this rank's optimizer is over."""
        return groups

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Learn of the optimizer, before its first step."""

    def objective(self, share: Tensor) -> Tensor:
        """What to differentiate, given a ``share`` of the whole batch's objective."""
        return share

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Give every rank the sum of the ranks' gradients, once the last micro-batch is done."""

    def sum(self, value: Tensor) -> Tensor:
        """The sum of the ranks' values, a scalar in float64."""
        return value

    def sum_loads(self, loads: Sequence[Tensor]) -> None:
        """Give every rank the sums of the ranks' ``loads``, whole numbers [n_experts] of each mixture."""

    def norm(self, norm: Tensor) -> Tensor:
        """The norm of a gradient that the ranks hold in whole or in parts."""
        return norm

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the optimizer's step."""
        optimizer.step()

    def vector(self, vector: nn.Module) -> Tensor:
        """The scale vector in effect."""
        result: Tensor = vector()
        return result

    def agreed(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """Whether any rank is to stop, and whether rank 0 wants a checkpoint: the same on all ranks."""
        return stop, save

    @property
    def writes(self) -> bool:
        """Whether this process has a part in writing checkpoints."""
        return self.leads

    def writer(self, folder: Path) -> BackgroundWriter:
        """Who writes the checkpoints of a trial into its ``folder``."""
        return BackgroundWriter(folder)

    def save_trunk(self, folder: Path, checkpoint: Checkpoint, rows: Sequence[Mapping[str, Any]]) -> bool:
        """As ``trunk_states.save_trunk``, at every rank."""
        return self.leads and save_trunk(folder, checkpoint, rows)

    def pack(self, model: Transformer, optimizer: torch.optim.Optimizer | None) -> Packed:
        """As ``checkpoints.state.pack``, of what this rank is to write."""
        return Packed(pack(model, optimizer), {})

    def unpack(
        self, tensors: Mapping[str, Kept], model: Transformer, optimizer: torch.optim.Optimizer
    ) -> None:
        """As ``checkpoints.state.unpack``, of the whole state at every rank."""
        unpack(tensors, model, optimizer)

    def read(self, path: Path) -> Checkpoint:
        """The checkpoint in ``path``, checked, at rank 0. Raises one of ``tensor_file.DAMAGE``."""
        return read_checkpoint(path)

    def handed_out(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        """What rank 0 has found to go on from, at every rank."""
        return checkpoint


ALONE = World()
