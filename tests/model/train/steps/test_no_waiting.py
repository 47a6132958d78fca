"""A step asks the device for nothing that it would have to wait for."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scalevec.model import experts
from scalevec.model.config import OPTIMIZERS, Experts, OptimizerConfig, RunOptions
from scalevec.model.train.loop import TrainingRun
from support import MemoryRecorder

WAITING = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.bincount.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.unique_dim.default,
    torch.ops.aten._unique2.default,
}


class Asked(TorchDispatchMode):
    """Counts operations that wait for the device; an optimizer's counters of steps are never on it."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.optimizer = optimizer
        self.operations: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        counters = [state.get("step") for state in self.optimizer.state.values()]
        if func in WAITING and not any(args[0] is counter for counter in counters):
            self.operations[str(func)] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "mixture", [None, Experts(n_experts=4, top_k=2, feed_forward=24)], ids=["dense", "mixture"]
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nothing_is_read_from_the_device_within_a_step(name, mixture, trial, corpus, tmp_path, monkeypatch):
    trial = replace(trial, optimizer=OptimizerConfig(name), model=replace(trial.model, experts=mixture))
    # A GPU has one grouped product for all experts, and one_hot looks at its input on a CPU alone.
    monkeypatch.setattr(experts, "looped_products", lambda rows, weights, load: rows @ weights[0].T)
    monkeypatch.setattr(
        torch.nn.functional, "one_hot", lambda chosen, n: chosen.unsqueeze(-1) == torch.arange(n)
    )
    run = TrainingRun(trial, corpus, RunOptions(micro_batch=2), MemoryRecorder(), tmp_path)
    with run.writer, run.feed:
        run._step(0)
        with Asked(run.optimizer) as asked:
            run._step(1)
    assert asked.operations == {}
