"""The processes that train one trial together, as the training loop sees them.

A step's batch is the same set of sequences whatever the size of the world: each rank takes its neighbouring
part of them. What follows from the whole batch (its loss, its gradient, the load of its experts) is summed
over the ranks, so that every rank takes the same step from the same bits. Rank 0 leads: it alone reads and
writes files.

Guaranteed on the CPU: a trial that was stopped and goes on in a world of the same size ends with the same
bits; worlds of different sizes agree to rounding.
"""

import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from scalevec.model.decoder import Transformer
from scalevec.model.train.checkpoint import Checkpoint, pack, unpack
from scalevec.model.train.optim import Group
from scalevec.model.train.optimizer_state import Tensors
from scalevec.model.train.record import TrainingInterruptedError

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
PATIENCE = timedelta(minutes=10)
"""How long a rank waits within one exchange before it counts the others as lost: rank 0 may be waiting for
the disk to take a large checkpoint, or reading one, meanwhile."""

Losses = tuple[Tensor, Tensor | None]
"""The mean loss and what the balancing of experts adds to it."""


class UnlikeRanksError(RuntimeError):
    """The ranks that met would not train the same: other code, another corpus, another kind of device."""


class World:
    """A world of one process, which needs no other: everything is as it is given."""

    rank = 0
    size = 1
    in_step = False
    """Whether ranks have to go forward through the model at the same time, in evaluations too."""
    frees_gradients = True
    """Whether gradients take no memory between a step and the next backward pass."""

    @property
    def leads(self) -> bool:
        """Whether this process keeps what the run has to say."""
        return self.rank == 0

    def __enter__(self) -> "World":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Part from the others."""

    def part(self, n_sequences: int) -> slice:
        """Which of the sequences of a batch are this rank's."""
        each = n_sequences // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def prepare(self, model: Transformer) -> None:
        """Lay the parameters out over the ranks, before the model moves to its device."""

    def shard_groups(self, groups: list[Group]) -> list[Group]:
        """The groups of parameters that this rank's optimizer is over."""
        return groups

    def objective(self, model: Transformer) -> Callable[[Tensor, Tensor], Losses]:
        """``model.training_loss``; a backward pass from it leaves the sum of the ranks' gradients."""
        return model.training_loss

    def accumulating(self) -> AbstractContextManager[object]:
        """Within it, for all micro-batches of a step but the last, each rank adds its gradients up alone."""
        return nullcontext()

    def sum(self, value: Tensor) -> Tensor:
        """The sum over the ranks of ``value``, whose memory it may take."""
        return value

    def sum_loads(self, loads: Sequence[Tensor]) -> None:
        """Give every rank the sums of the ranks' ``loads``, whole numbers [n_experts] of each mixture."""

    def whole(self, tensor: Tensor) -> Tensor:
        """All of a tensor of which each rank may hold a shard."""
        return tensor

    def vector(self, vector: nn.Module) -> Tensor:
        """The scale vector in effect."""
        return cast(Tensor, vector())

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the optimizer's step."""
        optimizer.step()

    def any_rank(self, stop: bool) -> bool:
        """Whether one of the ranks is to stop: the same answer at all."""
        return stop

    def leader_says(self, answer: bool) -> bool:
        """What rank 0 answers, at all ranks: its clock and its view of the files count."""
        return answer

    def pack(self, model: Transformer, optimizer: torch.optim.Optimizer | None) -> Tensors:
        """As ``checkpoint.pack`` at rank 0, which writes checkpoints; nothing at others."""
        return pack(model, optimizer)

    def unpack(
        self, tensors: Mapping[str, Tensor], model: Transformer, optimizer: torch.optim.Optimizer
    ) -> None:
        """As ``checkpoint.unpack``, of the whole state at every rank."""
        unpack(tensors, model, optimizer)

    def broadcast_checkpoint(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        """What rank 0 has found to go on from, at every rank."""
        return checkpoint


ALONE = World()
_ENDED: list[object] = []
"""Process groups that are over."""


class ProcessGroup(World):
    """Data parallel by torch's DDP: every rank has the whole model and sums its gradients with the others'.

    Every rank takes the whole step, Muon's orthogonalizations too: on one machine's cards they are a small
    part of a step, and then no state has to be collected from the ranks.

    Args:
        device: ``cpu`` or ``cuda``, whose card LOCAL_RANK is this rank's.
        rendezvous: Where the ranks RANK of WORLD_SIZE meet, as torch writes it; ``env://`` is what torchrun
            and its agent set.
    """

    # DDP's buckets hold them throughout; left there, micro-batches add up in place.
    frees_gradients = False

    def __init__(self, device: str, rendezvous: str = "env://") -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device(device)
        if device == "cuda":
            self.device = torch.device(device, int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)
        card = self.device if device == "cuda" else None
        seat: dict[str, Any] = {"rank": self.rank, "world_size": self.size, "init_method": rendezvous}
        dist.init_process_group(BACKENDS[device], timeout=PATIENCE, device_id=card, **seat)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Not after an error: the others may be gone, and to part from them could wait for them.
        if kind is None or issubclass(kind, TrainingInterruptedError):
            # To the end of the process: when its last reference goes, torch waits for threads of gloo with
            # the interpreter's lock, which they may need to let go of their tensors.
            _ENDED.append(dist.group.WORLD)
            dist.destroy_process_group()

    def objective(self, model: Transformer) -> Callable[[Tensor, Tensor], Losses]:
        """Through DDP, which sums gradients while the backward pass still runs."""
        # Compiled blocks are smaller than DDP's buckets: to cut them at those would only break their graphs.
        torch._dynamo.config.optimize_ddp = False
        ids = [self.device] if self.device.type == "cuda" else None
        loss = _TrainingLoss(model)
        # Buffers are the same at all ranks: they follow from loads that are summed. The argument for that
        # has another name from torch 2.13 on; this is what both understand.
        ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(loss, [name for name, _ in loss.named_buffers()])
        self._ddp = DistributedDataParallel(loss, device_ids=ids, gradient_as_bucket_view=True)
        self._ddp.register_comm_hook(None, _sum_bucket)
        return self._ddp

    def accumulating(self) -> AbstractContextManager[object]:
        """DDP's."""
        return self._ddp.no_sync()

    def sum(self, value: Tensor) -> Tensor:
        """All-reduce ``value`` in place and return it."""
        dist.all_reduce(value)
        return value

    def sum_loads(self, loads: Sequence[Tensor]) -> None:
        """Whole numbers, whose sum knows no order."""
        if not loads:
            return
        for load, total in zip(loads, self.sum(torch.stack(list(loads))), strict=True):
            load.copy_(total)

    def any_rank(self, stop: bool) -> bool:
        """Whoever is asked to stop."""
        wanted = torch.tensor(int(stop))
        dist.all_reduce(wanted, dist.ReduceOp.MAX)
        return bool(wanted)

    def leader_says(self, answer: bool) -> bool:
        """Broadcast rank 0's."""
        word = torch.tensor(int(answer))
        dist.broadcast(word, 0)
        return bool(word)

    def pack(self, model: Transformer, optimizer: torch.optim.Optimizer | None) -> Tensors:
        """Every rank has all of it; rank 0 writes."""
        return pack(model, optimizer) if self.leads else {}

    def broadcast_checkpoint(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        """Sent to the others a tensor at a time, when they are asked for: no rank but 0 holds all of it."""
        head = checkpoint and [checkpoint.step, dict(checkpoint.facts), list(checkpoint.tensors)]
        head = json.loads(self.broadcast_text(json.dumps(head)))
        if head is None:
            return None
        step, facts, names = head
        return Checkpoint(
            step, _FromLeader(self, names, {} if checkpoint is None else checkpoint.tensors), facts
        )

    def broadcast_tensor(self, tensor: Tensor, source: int = 0) -> Tensor:
        """The ``tensor`` that rank ``source`` has, on the CPU of all ranks."""
        tensor = tensor.detach().cpu().contiguous()
        described = [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]
        dtype, shape = json.loads(self.broadcast_text(json.dumps(described), source))
        if self.rank != source:
            tensor = torch.empty(shape, dtype=getattr(torch, dtype))
        # As bytes: gloo does not know every type.
        dist.broadcast(tensor.view(-1).view(torch.uint8), source)
        return tensor

    def broadcast_text(self, text: str, source: int = 0) -> str:
        """The ``text`` of rank ``source``. No pickles: between machines anybody might answer."""
        content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        length = torch.tensor(len(content))
        dist.broadcast(length, source)
        if self.rank != source:
            content = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(content, source)
        return content.numpy().tobytes().decode()

    def all_gather_text(self, text: str) -> list[str]:
        """The ``text`` of every rank, in order."""
        return [self.broadcast_text(text, rank) for rank in range(self.size)]

    def require_alike(self, traits: Mapping[str, str]) -> list[str]:
        """Return the hosts of the ranks, whose ``traits`` (by what a person calls them) are the same.

        Raises :class:`UnlikeRanksError` at all ranks where they are not.
        """
        mine = {"host": socket.gethostname(), "traits": dict(traits)}
        records = [json.loads(text) for text in self.all_gather_text(json.dumps(mine))]
        first = records[0]
        for rank, record in enumerate(records):
            for name, value in first["traits"].items():
                if (theirs := record["traits"].get(name)) != value:
                    raise UnlikeRanksError(
                        f"the ranks of a trial need the same {name}: rank {rank} on {record['host']} has "
                        f"{theirs}, rank 0 on {first['host']} has {value}"
                    )
        return [record["host"] for record in records]


class _TrainingLoss(nn.Module):
    """What DDP wraps: it watches calls of a module's forward, and training calls ``training_loss``."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor) -> Losses:
        return self.model.training_loss(inputs, targets)


def _sum_bucket(_: object, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]
    """The sum over the ranks of a bucket of gradients, each of which is of a rank's part of the batch."""
    flat = bucket.buffer()
    if flat.is_cuda:
        work = dist.all_reduce(flat, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])  # type: ignore[no-any-return]
    # DDP reorders its buckets after the first step of a process, and gloo's sums of three or more values
    # depend on the place in the bucket: in the order of ranks they are the same before a resume and after it.
    parts = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    work = dist.all_gather(parts, flat, async_op=True)
    return work.get_future().then(lambda _: sum(parts[1:], parts[0]))  # type: ignore[no-any-return]


class _FromLeader(dict[str, Tensor]):
    """The tensors of rank 0's checkpoint (empty ones at others), each sent when all ranks ask for it."""

    def __init__(self, world: ProcessGroup, names: Sequence[str], kept: Mapping[str, Tensor]) -> None:
        super().__init__({name: kept.get(name, torch.empty(0)) for name in names})
        self._world = world

    def __getitem__(self, name: str) -> Tensor:
        return self._world.broadcast_tensor(super().__getitem__(name))
