"""A world whose ranks share out the parameters, their gradients and the optimizer's state (FSDP2).

Each block is a unit: its matrices are gathered for its forward and backward pass, with the scale vectors that
are folded into them. They are gathered in float32 though products may be in bfloat16: a scale vector near 1
has steps of 1/128 there, which would hide what a trial is about. Checkpoints are gathered at rank 0 into the
one file that a single process would write. Optimizers of matrices need them whole: see
:class:`WholeMatrices`.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.func import functional_call

from scalevec.model.decoder import Transformer
from scalevec.model.train.checkpoint import pack, unpack
from scalevec.model.train.ddp import Losses, ProcessGroup
from scalevec.model.train.optim import Group
from scalevec.model.train.optimizer_state import LAYOUT, Tensors, merged_layout

FORWARD_METHODS = ("training_loss", "token_losses", "choices")
"""By which the loop calls a model: what is outside of the blocks is gathered for these."""


class ShardedProcessGroup(ProcessGroup):
    """Every rank keeps its share of each parameter, and of all that belongs to it."""

    in_step = frees_gradients = True

    def __init__(self, device: str, rendezvous: str = "env://") -> None:
        super().__init__(device, rendezvous)
        self._mesh = init_device_mesh(device, (self.size,))
        self._matrices = WholeMatrices(self)

    def prepare(self, model: Transformer) -> None:
        """Shard each block, and what is outside of them."""
        for module in (*model.blocks, model):
            unit: Any = fully_shard(module, mesh=self._mesh)
            # The sum of the ranks' gradients, each of which is of a part of the batch, not their mean.
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
        self._unit: Any = model
        for name in FORWARD_METHODS:
            register_fsdp_forward_method(model, name)

    def shard_groups(self, groups: list[Group]) -> list[Group]:
        """Matrices of an optimizer that takes them whole are replaced by what one rank has of them."""
        return [group if group["kind"] == "other" else self._matrices.stand_in(group) for group in groups]

    def objective(self, model: Transformer) -> Callable[[Tensor, Tensor], Losses]:
        """The model's own, whose hooks gather and reduce."""
        return model.training_loss

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Gradients are added up unsharded: they are exchanged once per step."""
        self._unit.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self._unit.set_requires_gradient_sync(True)

    def whole(self, tensor: Tensor) -> Tensor:
        """Gathered from all ranks."""
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def vector(self, vector: nn.Module) -> Tensor:
        """The vector in effect, of whole parameters."""
        whole = {name: self.whole(parameter.detach()) for name, parameter in vector.named_parameters()}
        return cast(Tensor, functional_call(vector, whole, ()))

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Each rank steps its shares, and its matrices whole."""
        self._matrices.gather_gradients()
        optimizer.step()
        self._matrices.send_out()

    @torch.no_grad()
    def pack(self, model: Transformer, optimizer: torch.optim.Optimizer | None) -> Tensors:
        """The whole state on the CPU of rank 0, gathered a tensor at a time."""
        self._unit.reshard()  # an evaluation leaves what is outside of the blocks whole
        held = pack(model, optimizer)
        names = [json.loads(text) for text in self.all_gather_text(json.dumps(list(held)))]
        gathered: Tensors = {}
        for name in dict.fromkeys(name for of_rank in names for name in of_rank):
            tensor, owner = held.get(name), next(rank for rank, its in enumerate(names) if name in its)
            if owner:  # a whole matrix's, which rank 0 lacks
                tensor = self.broadcast_tensor(torch.empty(0) if tensor is None else tensor, owner)
            elif tensor is not None:
                tensor = self.whole(tensor)
            if self.leads and tensor is not None:
                gathered[name] = tensor.detach().to("cpu", copy=True)
        if optimizer is not None:
            layouts = self.all_gather_text(held[LAYOUT].numpy().tobytes().decode())
            gathered |= {LAYOUT: merged_layout(layouts)} if self.leads else {}
        return gathered

    @torch.no_grad()
    def unpack(
        self, tensors: Mapping[str, Tensor], model: Transformer, optimizer: torch.optim.Optimizer
    ) -> None:
        """Each rank takes its share, and its matrices whole."""
        unpack(tensors, model, optimizer, _share)
        self._matrices.refresh(optimizer)


class WholeMatrices:
    """Sharded matrices and stacks of them, and the whole ones on which one rank each takes the step.

    A rank has its matrices whole, with their state; of others it knows the shape alone. So the memory of the
    whole ones is shared out too.
    """

    def __init__(self, world: ProcessGroup) -> None:
        self._world = world
        self._pairs: list[tuple[nn.Parameter, nn.Parameter, int]] = []

    @torch.no_grad()
    def stand_in(self, group: Group) -> Group:
        """``group`` with whole matrices of this rank, and bare shapes of others'."""
        parameters = group["params"]
        # In turn by size: every rank has about as much to make orthogonal.
        by_size = sorted(range(len(parameters)), key=lambda at: -parameters[at].numel())
        owners = {at: turn % self._world.size for turn, at in enumerate(by_size)}
        pairs = [(p, self._whole_at(p, owners[at]), owners[at]) for at, p in enumerate(parameters)]
        self._pairs += pairs
        return {**group, "params": [whole for _, whole, _ in pairs]}

    def _whole_at(self, parameter: nn.Parameter, owner: int) -> nn.Parameter:
        gathered = self._world.whole(parameter.detach())
        return nn.Parameter(gathered.clone() if owner == self._world.rank else gathered.to("meta"))

    @torch.no_grad()
    def gather_gradients(self) -> None:
        """Give each whole matrix its gradient, and other ranks' none: an optimizer passes them by."""
        for parameter, whole, owner in self._pairs:
            gradient = None if parameter.grad is None else self._world.whole(parameter.grad)
            whole.grad = gradient if owner == self._world.rank else None
            parameter.grad = None

    @torch.no_grad()
    def send_out(self) -> None:
        """Give the shares what came of the whole matrices."""
        for parameter, whole, owner in self._pairs:
            is_here = owner == self._world.rank
            sent = whole.detach() if is_here else torch.empty_like(whole, device=parameter.device)
            dist.broadcast(sent, owner)
            parameter.copy_(_share(sent, parameter))

    @torch.no_grad()
    def refresh(self, optimizer: torch.optim.Optimizer) -> None:
        """Make whole matrices those of the shares again, and drop the state of other ranks' matrices."""
        for parameter, whole, owner in self._pairs:
            gathered = self._world.whole(parameter.detach())
            if owner == self._world.rank:
                whole.copy_(gathered)
        for matrix in [matrix for matrix in optimizer.state if matrix.is_meta]:
            del optimizer.state[matrix]


def _share(kept: Tensor, beside: Tensor) -> Tensor:
    """What this rank has of ``kept``: laid out as ``beside``, or all of it where the shapes differ.

    Of another rank's matrix the shape alone.
    """
    if kept.shape != beside.shape:
        return kept
    if beside.is_meta:
        return torch.empty_like(beside)
    if not isinstance(beside, DTensor):
        return kept
    # Every rank has all of it: nothing is sent.
    placed: Tensor = distribute_tensor(
        kept.to(beside.device), beside.device_mesh, beside.placements, src_data_rank=None
    )
    return placed
