"""A world of several processes, each with the whole model on a device of its own (torch.distributed)."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from scalevec.model.decoder import Transformer
from scalevec.model.train.checkpoints.joint_state import Kept, whole
from scalevec.model.train.checkpoints.optimizer_state import merged_layout
from scalevec.model.train.checkpoints.state import OPTIMIZER_LAYOUT, Checkpoint, pack, unpack
from scalevec.model.train.checkpoints.tensor_file import Tensors
from scalevec.model.train.optim import Together
from scalevec.model.train.parallel.shared_matrices import SharedMatrices
from scalevec.model.train.parallel.world import Packed, World

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
PATIENCE = timedelta(minutes=30)
"""How long a rank waits within one exchange: rank 0 may be writing a large checkpoint meanwhile."""
BUCKET_BYTES = 2**26
"""Of gradients that are summed at once, about: large enough for the network, small beside the model."""


class ProcessGroup(World):
    """Data parallel: every rank has the whole model, and sums its gradients with the others'.

    Parameters start from one seed and take the same steps, so they stay the same bits at all ranks.
    """

    def __init__(self, store: "Store", rank: int, size: int, device: str) -> None:
        self.rank, self.size = rank, size
        self._device = torch.device(device)
        self._shared: SharedMatrices | None = None
        dist.init_process_group(BACKENDS[device], store=store, rank=rank, world_size=size, timeout=PATIENCE)

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Share the matrices of an optimizer of matrices out among the ranks."""
        if isinstance(optimizer, Together):
            self._shared = SharedMatrices(optimizer, self.rank, self.size)

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """One sum for each bucket of gradients."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            dist.all_reduce(flat)
            for gradient, part in zip(bucket, torch.split(flat, [g.numel() for g in bucket]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def sum(self, value: Tensor) -> Tensor:
        """In place."""
        dist.all_reduce(value)
        return value

    def sum_loads(self, loads: Sequence[Tensor]) -> None:
        """Whole numbers, whose sum knows no order."""
        if not loads:
            return
        stacked = torch.stack(list(loads))
        dist.all_reduce(stacked)
        for load, total in zip(loads, stacked, strict=True):
            load.copy_(total)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Every rank takes the same step; of shared matrices it takes its own and is given the others."""
        if self._shared is None:
            optimizer.step()
        else:
            self._shared.step()

    def agreed(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """A stop counts whoever asks for it, the time of a checkpoint by rank 0's clock."""
        wanted = torch.tensor([stop, save and self.leads], dtype=torch.int32)
        dist.all_reduce(wanted, dist.ReduceOp.MAX)
        any_stop, any_save = wanted.tolist()
        return bool(any_stop), bool(any_save)

    def pack(self, model: Transformer, optimizer: torch.optim.Optimizer | None) -> Packed:
        """The whole state at rank 0; that of shared matrices is collected from those who have it."""
        if self._shared is None or optimizer is None:
            return Packed(pack(model, optimizer) if self.leads else {}, {})
        return Packed(self._collected(pack(model, optimizer)), {})

    def unpack(
        self, tensors: Mapping[str, Kept], model: Transformer, optimizer: torch.optim.Optimizer
    ) -> None:
        """Of shared matrices each rank keeps its own state."""
        unpack(tensors, model, optimizer)
        if self._shared is not None:
            self._shared.forget_others()

    def handed_out(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        """Rank 0's, sent to the others a tensor at a time: they read no files."""
        head = None
        if checkpoint is not None:
            head = [checkpoint.step, dict(checkpoint.facts), list(checkpoint.tensors)]
        head = json.loads(self.told(json.dumps(head)))
        if head is None:
            return None
        step, facts, names = head
        kept = {} if checkpoint is None else checkpoint.tensors
        return Checkpoint(step, {name: self._sent(kept.get(name)) for name in names}, facts)

    def _sent(self, kept: Kept | None) -> Tensor:
        """The tensor that rank 0 has, at all ranks."""
        tensor = None if kept is None else whole(kept).contiguous()
        description = json.loads(self.told(json.dumps(None if tensor is None else _described(tensor))))
        tensor = _blank(*description) if tensor is None else tensor
        dist.broadcast(_bytes_of(tensor), 0)
        return tensor

    def _collected(self, tensors: Tensors) -> Tensors:
        """Rank 0's tensors and those that it lacks, by name; other ranks' own."""
        layout = tensors[OPTIMIZER_LAYOUT].numpy().tobytes().decode()
        layouts = self.all_told(layout)
        mine = {name: _described(tensor) for name, tensor in tensors.items()}
        descriptions = [json.loads(text) for text in self.all_told(json.dumps(mine))]
        collected, known = dict(tensors), set(descriptions[0])
        for sender in range(1, self.size):
            for name in [name for name in descriptions[sender] if name not in known]:
                known.add(name)
                if self.rank == sender:
                    dist.send(_bytes_of(tensors[name].cpu().contiguous()), 0)
                elif self.leads:
                    collected[name] = _blank(*descriptions[sender][name])
                    dist.recv(_bytes_of(collected[name]), sender)
        collected[OPTIMIZER_LAYOUT] = merged_layout(layouts)
        return collected

    def all_told(self, text: str) -> list[str]:
        """The ``text`` of every rank, in order."""
        return [self.told(text, rank) for rank in range(self.size)]

    def done_by_leader(self, work: Callable[[], str]) -> str:
        """What ``work`` returns at rank 0, which alone does it; its ``OSError`` is raised at all ranks."""
        answer: dict[str, Any] = {}
        if self.leads:
            try:
                answer = {"value": work()}
            except OSError as problem:
                answer = {"error": [problem.errno, str(problem)]}
        answer = json.loads(self.told(json.dumps(answer)))
        if "error" in answer:
            raise OSError(*answer["error"])
        return str(answer["value"])

    def told(self, text: str, teller: int = 0) -> str:
        """The ``text`` of rank ``teller``."""
        content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        length = torch.tensor([len(content)])
        dist.broadcast(length, teller)
        if self.rank != teller:
            content = torch.empty(int(length.item()), dtype=torch.uint8)
        dist.broadcast(content, teller)
        return content.numpy().tobytes().decode()


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """``gradients`` in their order, as many at a time as make a bucket of one type."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        full = sum(g.numel() * g.element_size() for g in bucket) >= BUCKET_BYTES
        if bucket and (full or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


def _described(tensor: Tensor) -> tuple[str, list[int]]:
    return str(tensor.dtype).removeprefix("torch."), list(tensor.shape)


def _blank(dtype: str, shape: Sequence[int]) -> Tensor:
    return torch.empty(tuple(shape), dtype=getattr(torch, dtype))


def _bytes_of(tensor: Tensor) -> Tensor:
    """The memory of a contiguous ``tensor``: not every type can be sent."""
    return tensor.detach().view(-1).view(torch.uint8)
