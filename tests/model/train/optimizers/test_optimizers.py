"""Parameter groups: who decays, who has a rate of its own, and what a step does.

At the end Muon's matrices of one shape, made orthogonal together as on a GPU, against torch's own step.
"""

from dataclasses import replace

import pytest
import torch

from scalevec.model.decoder import Transformer
from scalevec.model.train import optim
from scalevec.model.train.optim import _Muon, build_optimizer, parameter_groups, set_learning_rate


def test_every_parameter_is_in_exactly_one_group(trial):
    model = Transformer(trial.model)
    grouped = [id(p) for group in parameter_groups(model, trial) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())


def test_vectors_take_their_factor_of_the_learning_rate(trial):
    strategy = replace(trial.model.scale_vectors, learning_rate_factor=4.0)
    trial = replace(trial, model=replace(trial.model, scale_vectors=strategy))
    optimizer = build_optimizer(Transformer(trial.model), trial)
    set_learning_rate(optimizer, 0.5)
    assert {group["lr"] for group in optimizer.param_groups} == {0.5, 2.0}


RATE = 0.1


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("most", [2**26, 100])
def test_steps_together_are_torchs_steps_to_the_rounding_of_bfloat16(most, nesterov, monkeypatch):
    monkeypatch.setattr(optim, "MOST_TOGETHER", most)
    random = torch.Generator().manual_seed(1)
    shapes = [(8, 8), (6, 16), (8, 8), (16, 6), (6, 16), (8, 8)]
    start = [torch.randn(shape, generator=random) for shape in shapes]
    alone, together = ([torch.nn.Parameter(matrix.clone()) for matrix in start] for _ in range(2))
    optimizers = [_Muon(of, lr=RATE, nesterov=nesterov) for of in (alone, together)]
    for _ in range(3):
        for matrix, other in zip(alone[:-1], together[:-1], strict=True):  # the last one has no gradient
            matrix.grad = torch.randn(matrix.shape, generator=random)
            other.grad = matrix.grad.clone()
        optimizers[0].step()
        with torch.no_grad():
            optimizers[1].step_together(optimizers[1].param_groups[0])
    torch.testing.assert_close(together, alone, rtol=0, atol=0.05 * RATE)
    assert torch.equal(together[-1], start[-1])
    assert all(not torch.equal(other, begun) for other, begun in zip(together[:-1], start[:-1], strict=True))
