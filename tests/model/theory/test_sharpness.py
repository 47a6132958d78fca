"""Sharpness against the exact Hessian, and the search for a largest eigenvalue that it rests on."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call

from scalevec.model.config import Experts, Shape
from scalevec.model.decoder import Transformer
from scalevec.model.strategies import PRESETS
from scalevec.model.theory import sharpness as lanczos

MINI = Shape(width=2, layers=1, heads=1, kv_heads=1, feed_forward=2)


def exact_hessian(model: Transformer, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """By torch's own function for it, of the loss as a function of the flat parameters."""
    parameters = dict(model.named_parameters())
    flat = torch.nn.utils.parameters_to_vector(parameters.values()).detach()

    def loss(values: torch.Tensor) -> torch.Tensor:
        parts = torch.split(values, [parameter.numel() for parameter in parameters.values()])
        pairs = zip(parameters.items(), parts, strict=True)
        tensors = {name: part.view_as(parameter) for (name, parameter), part in pairs}
        logits = functional_call(model, tensors, (inputs,))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.autograd.functional.hessian(loss, flat)


@pytest.mark.parametrize("arm", ["unified", "er"])
def test_it_is_the_largest_eigenvalue_of_the_full_hessian(arm, build, tokens):
    model = build(PRESETS[arm], shape=MINI, drawn=True)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    exact = torch.linalg.eigvalsh(exact_hessian(model, inputs, targets))
    with patch.object(lanczos, "TOLERANCE", 1e-6):
        actual = lanczos.sharpness(model, inputs, targets)
    assert actual.residual < 1e-5
    assert actual.value == pytest.approx(exact[-1].item(), rel=1e-6)
    assert exact[0] < 0


def largest_of(matrix: torch.Tensor, **constants) -> lanczos.LargestEigenvalue:
    with patch.dict(vars(lanczos), constants):
        return lanczos.largest_eigenvalue(lambda x: matrix @ x, len(matrix), matrix)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-5, 5).filter(lambda x: abs(x) > 1e-3), min_size=2, max_size=12))
def test_it_is_the_largest_eigenvalue_however_they_lie(values):
    drawn = torch.randn(len(values), len(values), generator=torch.Generator().manual_seed(2))
    basis, _ = torch.linalg.qr(drawn.double())
    matrix = basis @ torch.diag(torch.tensor(values).double()) @ basis.T
    largest = largest_of(matrix, TOLERANCE=1e-10)
    assert largest.value == pytest.approx(max(values), abs=1e-6)
    assert abs(largest.value - max(values)) <= largest.residual * abs(largest.value) + 1e-6


def test_a_value_that_has_not_settled_is_not_given():
    """Evenly spaced eigenvalues: a few products cannot tell the last from its neighbours."""
    evenly = torch.diag(torch.linspace(0, 1, 200, dtype=torch.float64))
    largest = largest_of(evenly, TOLERANCE=1e-6, MOST_RESTARTS=1)
    assert (largest.value, largest.residual) == (None, None)
    assert 0 < largest.products < 20


def test_products_that_are_no_numbers_are_no_eigenvalue():
    assert largest_of(torch.full((4, 4), float("nan"))) == lanczos.LargestEigenvalue(None, None, 1)


def test_parameters_that_the_loss_does_not_see_count_as_zero():
    seen, unseen = torch.nn.Parameter(torch.tensor([1.0, 2.0])), torch.nn.Parameter(torch.ones(3))
    product = lanczos.hessian_product(lambda: (seen**3).sum(), [seen, unseen])
    assert product(torch.ones(5)).tolist() == [6.0, 12.0, 0.0, 0.0, 0.0]


def test_the_loss_of_a_mixture_is_differentiated_twice(build, tokens):
    """Against the difference of gradients on both sides, where no token changes its experts."""
    experts = Experts(n_experts=3, top_k=2, feed_forward=1)
    model = build(PRESETS["baseline"], shape=MINI, drawn=True, experts=experts)
    parameters = list(model.parameters())
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    flat = torch.nn.utils.parameters_to_vector(parameters).detach()
    direction = torch.randn(len(flat), dtype=torch.float64, generator=torch.Generator().manual_seed(4))

    def gradient_at(weights: torch.Tensor) -> torch.Tensor:
        torch.nn.utils.vector_to_parameters(weights, parameters)
        gradients = torch.autograd.grad(lanczos.batch_loss(model, inputs, targets), parameters)
        return torch.cat([gradient.flatten() for gradient in gradients])

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        products = lanczos.hessian_product(lambda: lanczos.batch_loss(model, inputs, targets), parameters)
        product = products(direction)
        ahead, behind = (gradient_at(flat + sign * 1e-5 * direction) for sign in (1, -1))
    torch.testing.assert_close(product, (ahead - behind) / 2e-5, rtol=1e-4, atol=1e-6)
