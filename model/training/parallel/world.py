"""The processes that train one trial together, as the training loop sees them.

A step's batch is the same set of sequences whatever the size of the world: each rank takes its neighbouring
part of them. What follows from the whole batch (its loss, the norm of its gradient, the load of its experts)
is summed over the ranks, so that every rank takes the same step. Rank 0 leads: it alone reads and writes
files.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scalevec.model.training.checkpoints.state import Checkpoint, Tensors, pack, unpack
from scalevec.model.training.optimizers.base import Group
from scalevec.model.transformer import Transformer


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

    def sum(self, value: float) -> float:
        """The sum of the ranks' values."""
        return value

    def sum_loads(self, loads: Sequence[Tensor]) -> None:
        """Give every rank the sums of the ranks' ``loads``, whole numbers [n_experts] of each mixture."""

    def norm(self, norm: Tensor) -> float:
        """The norm of a gradient that the ranks hold in whole or in parts."""
        return norm.item()

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

    def pack(self, model: Transformer, optimizer: torch.optim.Optimizer | None) -> Tensors:
        """As ``checkpoints.state.pack``: the whole state at rank 0, at others any part of it."""
        return pack(model, optimizer)

    def unpack(self, tensors: Tensors, model: Transformer, optimizer: torch.optim.Optimizer) -> None:
        """As ``checkpoints.state.unpack``, of the whole state at every rank."""
        unpack(tensors, model, optimizer)

    def handed_out(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        """What rank 0 has found to go on from, at every rank."""
        return checkpoint


ALONE = World()
