"""Muon's matrices of one shape, made orthogonal together as on a GPU, against torch's own step."""

import pytest
import torch
from torch.optim import _muon

from scalevec.model.train import optim
from scalevec.model.train.optim import _Muon, orthogonal

COEFFICIENTS = (_muon.DEFAULT_A, _muon.DEFAULT_B, _muon.DEFAULT_C)
RATE = 0.1


@pytest.mark.parametrize("shape", [(8, 8), (6, 16), (16, 6)])
def test_many_matrices_are_made_orthogonal_as_each_by_itself(shape):
    updates = torch.randn(5, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    together = orthogonal(updates, COEFFICIENTS, 5, 1e-7, torch.float64)
    for update, turned in zip(updates, together, strict=True):
        alone = update / update.norm()
        a, b, c = COEFFICIENTS
        for _ in range(5):
            gram = alone @ alone.T
            alone = a * alone + (b * gram + c * gram @ gram) @ alone
        torch.testing.assert_close(turned, alone, rtol=1e-12, atol=1e-12)


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
