"""The operations between the matrix products."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scalevec.model import ops
from scalevec.model.ops import head_loss, rms_norm, rotary_table, rotate, table_for
from scalevec.model.train.devices import missing_compiler


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_rms_norm_has_exact_first_and_second_derivatives():
    x = drawn(2, 8).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: rms_norm(x, 1e-2), x)
    assert torch.autograd.gradgradcheck(lambda x: rms_norm(x, 1e-2), x)


def test_rms_norm_of_half_precision_is_reckoned_in_single_precision():
    x = torch.full((1, 4), 300.0, dtype=torch.bfloat16)
    assert torch.equal(rms_norm(x, 1e-5), torch.ones(1, 4, dtype=torch.bfloat16))


def test_rms_norm_under_autocast_is_reckoned_in_single_precision():
    x = drawn(3, 8).float()
    with torch.autocast("cpu", torch.bfloat16):
        actual = rms_norm(x, 1e-5)
    assert torch.equal(actual, rms_norm(x, 1e-5))


def assert_is_that_of_torch(*, fused=False):
    targets = torch.tensor([0, 1, 4, 4, 2, 3])
    ours = [drawn(6, 8).requires_grad_(), drawn(5, 8, seed=1).requires_grad_()]
    peers = [tensor.detach().clone().requires_grad_() for tensor in ours]
    loss = head_loss(*ours, targets, fused=fused)
    expected = torch.nn.functional.cross_entropy(peers[0] @ peers[1].T, targets)
    torch.testing.assert_close(loss, expected)
    (3 * loss).backward()
    (3 * expected).backward()
    torch.testing.assert_close([tensor.grad for tensor in ours], [tensor.grad for tensor in peers])


def test_the_head_loss_and_its_gradients_are_those_of_torch(monkeypatch):
    monkeypatch.setattr(ops, "rows_of_a_slice", lambda classes, device_type: 4)
    assert_is_that_of_torch()


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_compiler("cpu")), reason="needs a C++ compiler")
def test_one_compiled_softmax_serves_slices_of_any_number_of_rows(monkeypatch):
    torch._dynamo.utils.counters.clear()
    for rows in (6, 4, 3):
        monkeypatch.setattr(ops, "rows_of_a_slice", lambda classes, device_type, rows=rows: rows)
        assert_is_that_of_torch(fused=True)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_the_head_loss_refuses_a_second_derivative():
    hidden = drawn(2, 4).requires_grad_()
    loss = head_loss(hidden, drawn(3, 4), torch.tensor([0, 1]))
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        torch.autograd.grad(loss, hidden, create_graph=True)


@given(st.floats(0, 1e4))
def test_the_head_loss_stays_finite_where_a_probability_underflows(gap):
    loss = head_loss(torch.tensor([[1.0]]), torch.tensor([[gap], [0.0]]), torch.tensor([1])).item()
    assert loss == pytest.approx(gap + math.log1p(math.exp(-gap)), rel=1e-5)


def test_the_head_loss_in_half_precision_is_in_single_precision():
    hidden, weight = torch.ones(2, 4).bfloat16(), torch.zeros(3, 4).bfloat16().requires_grad_()
    loss = head_loss(hidden, weight, torch.tensor([0, 1]))
    loss.backward()
    assert loss.dtype == torch.float32
    assert weight.grad.dtype == torch.bfloat16


def test_a_rotary_table_first_made_in_inference_mode_serves_training():
    rotary_table.cache_clear()
    x = drawn(1, 4, 1, 4)
    with torch.inference_mode():
        rotate(x, table_for(x, 4, 10_000.0))
    x.requires_grad_()
    rotate(x, table_for(x, 4, 10_000.0)).sum().backward()
    assert x.grad is not None
