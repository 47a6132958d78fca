"""What torch really takes: the tensors that a backward pass keeps, and the allocator's own records."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from scalevec.model.config import Trial
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.train.step import compile_blocks


def kept_for_backward(trial: Trial, *, compiled: bool = False) -> int:
    """Bytes of the storages that the forward pass over a batch saves, each once, parameters left out."""
    model = Transformer(trial.model)
    initialise(model, 0)
    if compiled:
        compile_blocks(model)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in parameters:
            kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    tokens = torch.zeros(trial.batch_sequences, trial.sequence_length, dtype=torch.long)
    tokens += torch.arange(trial.sequence_length) % trial.model.vocabulary_size
    narrow = torch.autocast("cpu", torch.bfloat16, enabled=trial.product_precision == "bfloat16")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), narrow:
        model.training_loss(tokens, tokens.clone())
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@dataclass(frozen=True)
class Allocations:
    """The most bytes at once that were allocated since it began, and those that are left."""

    peak: int
    left: int


class _Records(torch.autograd.profiler.profile):
    """torch's profiler, whose raw records are enough: to make events of them takes a second."""

    def _parse_kineto_results(self, _result: object) -> list[object]:
        return []


def allocations(work: Callable[[], object]) -> Allocations:
    """What the allocator of the CPU records while ``work`` runs."""
    with _Records(profile_memory=True) as profiler:
        work()
    events = profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    peak = total = 0
    for _, change in changes:
        total += change
        peak = max(peak, total)
    return Allocations(peak, total)
