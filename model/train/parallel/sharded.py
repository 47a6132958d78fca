"""A world whose ranks share out the parameters, their gradients and the optimizer's state (FSDP2).

Each block is a unit: its matrices are gathered for its forward and backward pass, with the scale vectors that
are folded into them. Optimizers of matrices need them whole: see :class:`WholeMatrices`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.func import functional_call

from scalevec.model.decoder import Transformer
from scalevec.model.train.checkpoints.joint_state import Kept, KeptTensor, Part
from scalevec.model.train.checkpoints.optimizer_state import merged_layout
from scalevec.model.train.checkpoints.state import (
    OPTIMIZER_LAYOUT,
    Checkpoint,
    open_checkpoint,
    pack,
    unpack,
)
from scalevec.model.train.checkpoints.tensor_file import Tensors
from scalevec.model.train.checkpoints.trunk_states import save_trunk
from scalevec.model.train.optim import Group, Together
from scalevec.model.train.parallel.joint_writes import JointCheckpoint, JointWriter
from scalevec.model.train.parallel.process_group import ProcessGroup
from scalevec.model.train.parallel.shared_matrices import owners_of
from scalevec.model.train.parallel.world import Packed

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

FORWARD_METHODS = ("training_loss", "token_losses", "choices")
"""By which the loop calls a model: what is outside of the blocks is gathered for these."""


class ShardedProcessGroup(ProcessGroup):
    """Every rank keeps its share of each parameter, and of all that belongs to it."""

    def __init__(self, store: "Store", rank: int, size: int, device: str) -> None:
        super().__init__(store, rank, size, device)
        self._mesh = init_device_mesh(device, (size,))
        self._matrices = WholeMatrices(rank, size)

    def prepare(self, model: Transformer) -> None:
        """Shard each block, and what is outside of them."""
        for module in (*model.blocks, model):
            fully_shard(module, mesh=self._mesh)
        for name in FORWARD_METHODS:
            register_fsdp_forward_method(model, name)

    def laid_out(self, groups: list[Group]) -> list[Group]:
        """Matrices of an optimizer that takes them whole are replaced by what one rank has of them."""
        return [group if group["kind"] == "other" else self._matrices.stand_in(group) for group in groups]

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Learn which optimizer takes matrices."""
        self._matrices.optimizer = optimizer if isinstance(optimizer, Together) else None

    def objective(self, share: Tensor) -> Tensor:
        """Times the size of the world, whose mean the backward pass takes."""
        return share * self.size

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Summed in the backward pass."""

    def norm(self, norm: Tensor) -> Tensor:
        """Of all shares."""
        return _whole(norm)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Each rank steps its shares, and its matrices whole."""
        if self._matrices.optimizer is None:
            optimizer.step()
        else:
            self._matrices.step()

    def vector(self, vector: nn.Module) -> Tensor:
        """The vector in effect, whole."""
        whole = {name: _whole(parameter.detach()) for name, parameter in vector.named_parameters()}
        result: Tensor = functional_call(vector, whole, ())
        return result

    @property
    def writes(self) -> bool:
        """Every rank writes what it holds."""
        return True

    def writer(self, folder: Path) -> JointWriter:
        """Of checkpoints in shards."""
        return JointWriter(folder, self)

    def save_trunk(self, folder: Path, checkpoint: Checkpoint, rows: Sequence[Mapping[str, Any]]) -> bool:
        """In shards; the rows are in rank 0's."""
        return save_trunk(folder, checkpoint, rows if self.leads else None, partial(_write_together, self))

    @torch.no_grad()
    def pack(self, model: Transformer, optimizer: torch.optim.Optimizer | None) -> Packed:
        """This rank's shares, and of tensors that ranks have whole those that no rank before it has."""
        unit: Any = model
        unit.reshard()  # an evaluation leaves what is outside of the blocks whole
        tensors: Tensors = {}
        parts: dict[str, Part] = {}
        held = pack(model, optimizer)
        for name, tensor in held.items():
            if isinstance(tensor, DTensor) and len(local := tensor.to_local()):
                tensors[name], parts[name] = local, Part(_rows_of(tensor)[0], tuple(tensor.shape))
        entire = {name: tensor for name, tensor in held.items() if not isinstance(tensor, DTensor)}
        names = [set(json.loads(text)) for text in self.all_told(json.dumps(list(entire)))]
        before = set().union(*names[: self.rank])
        tensors |= {name: tensor for name, tensor in entire.items() if name not in before}
        if optimizer is not None:
            layouts = self.all_told(held[OPTIMIZER_LAYOUT].numpy().tobytes().decode())
            if self.leads:
                tensors[OPTIMIZER_LAYOUT] = merged_layout(layouts)
        return Packed(tensors, parts)

    @torch.no_grad()
    def unpack(
        self, tensors: Mapping[str, Kept], model: Transformer, optimizer: torch.optim.Optimizer
    ) -> None:
        """Each rank reads its share, and its matrices whole."""
        unpack(tensors, model, optimizer, _share)
        self._matrices.refresh()

    def read(self, path: Path) -> Checkpoint:
        """Checked, a tensor at a time; none is kept in memory."""
        return open_checkpoint(path)

    def handed_out(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        """What rank 0 has found and checked is opened by all."""
        head = None
        if checkpoint is not None:
            head = [str(checkpoint.source), checkpoint.step, dict(checkpoint.facts)]
        head = json.loads(self.told(json.dumps(head)))
        if head is None or checkpoint is not None:
            return checkpoint
        path, step, facts = head
        return replace(open_checkpoint(Path(path), check=False), step=step, facts=facts)


def _write_together(world: ShardedProcessGroup, folder: Path, checkpoint: Checkpoint) -> None:
    joint, problem = JointCheckpoint(world, folder, checkpoint.step), None
    try:
        joint.write(checkpoint)
    except OSError as failure:
        problem = failure
    joint.complete(problem)


class WholeMatrices:
    """Sharded matrices and stacks of them, and the whole ones on which one rank each takes the step.

    A rank has its matrices whole, with their state; of others it knows the shape alone. So the memory of the
    whole ones is shared out too.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.optimizer: Together | None = None
        self._rank, self._size = rank, size
        self._pairs: list[tuple[nn.Parameter, nn.Parameter, int]] = []

    @torch.no_grad()
    def stand_in(self, group: Group) -> Group:
        """``group`` with whole matrices of this rank, and bare shapes of others'."""
        parameters = group["params"]
        owners = owners_of([_as_matrix(tuple(parameter.shape)) for parameter in parameters], self._size)
        pairs = [(p, self._whole_at(p, owner), owner) for p, owner in zip(parameters, owners, strict=True)]
        self._pairs += pairs
        return {**group, "params": [whole for _, whole, _ in pairs]}

    def _whole_at(self, parameter: nn.Parameter, owner: int) -> nn.Parameter:
        gathered = _whole(parameter.detach())
        return nn.Parameter(gathered.clone() if owner == self._rank else gathered.to("meta"))

    @torch.no_grad()
    def step(self) -> None:
        """Gather the gradient of each matrix where it is whole, step, and send the shares out."""
        assert self.optimizer is not None
        for parameter, whole, owner in self._pairs:
            gradient = None if parameter.grad is None else _whole(parameter.grad)
            whole.grad = gradient if owner == self._rank else None
            parameter.grad = None
        self.optimizer.spread_gradients()
        self.optimizer.step_members()
        for parameter, whole, owner in self._pairs:
            sent = whole.detach() if owner == self._rank else torch.empty_like(whole, device=parameter.device)
            dist.broadcast(sent, owner)
            parameter.copy_(_share(sent, parameter))

    @torch.no_grad()
    def refresh(self) -> None:
        """Make whole matrices those of the shares again, and drop the state of other ranks' matrices."""
        for parameter, whole, owner in self._pairs:
            gathered = _whole(parameter.detach())
            if owner == self._rank:
                whole.copy_(gathered)
        if self.optimizer is not None:
            for group in self.optimizer.of_matrices.param_groups:
                for matrix in group["params"]:
                    if matrix.is_meta:
                        self.optimizer.state.pop(matrix, None)


def _whole(tensor: Tensor) -> Tensor:
    """All of a tensor whose shares the ranks hold; others as they are."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _share(kept: Kept, beside: Tensor) -> Tensor:
    """What this rank has of ``kept``: its rows, laid out as ``beside``, or all where the shapes differ.

    Of another rank's matrix the shape alone. From files no more is read.
    """
    if kept.shape == beside.shape and beside.is_meta:
        return torch.empty_like(beside)
    if kept.shape != beside.shape or not isinstance(beside, DTensor):
        return kept.whole() if isinstance(kept, KeptTensor) else kept
    start, stop = _rows_of(beside)
    rows = kept.rows(start, stop) if isinstance(kept, KeptTensor) else kept[start:stop]
    share: Tensor = DTensor.from_local(
        rows.to(beside.device),
        beside.device_mesh,
        beside.placements,
        run_check=False,
        shape=beside.shape,
        stride=beside.stride(),
    )
    return share


def _rows_of(tensor: DTensor) -> tuple[int, int]:
    """Which rows of ``tensor`` this rank has: the first ranks have as many each, the last what is left."""
    rows, mesh = len(tensor), tensor.device_mesh
    each = -(-rows // mesh.size())
    start = min(mesh.get_local_rank() * each, rows)
    stop = min(start + each, rows)
    assert stop - start == len(tensor.to_local())
    return start, stop


def _as_matrix(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A stack counts as one long matrix: what its matrices cost together, about."""
    return shape if len(shape) == 2 else (shape[0] * shape[1], shape[2])
