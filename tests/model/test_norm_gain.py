"""Gains stored as 1 + w: the same function and flow as gains, pulled by decay to one instead of zero."""

import pytest
import torch
from torch import Tensor

from scalevec.model import scale_vectors
from scalevec.model.config import NORM_GAINS
from scalevec.model.fields import PluginSource
from scalevec.model.scale_vectors import ScaleVector
from scalevec.model.strategies import CHOICES, Reparameterization

BY_DISTANCE = "1+w"
REPARAMETERIZATIONS = CHOICES["reparameterization"]
WIDTH = 7


def vector_of(reparameterization: str, norm_gain: str) -> ScaleVector:
    """A vector whose parameters are away from their start, by the same under both ways of storing it."""
    vector = ScaleVector(WIDTH, reparameterization, "input", norm_gain=norm_gain).double()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in vector.parameters():
            parameter += 0.3 * torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
    return vector


@torch.no_grad()
def decayed(vector: ScaleVector, by: float) -> Tensor:
    """The vector in effect once every parameter has lost ``by`` of what is stored."""
    for parameter in vector.parameters():
        parameter *= 1 - by
    return vector()


@pytest.mark.parametrize("reparameterization", REPARAMETERIZATIONS)
def test_the_start_is_zero_as_stored_and_one_in_effect(reparameterization: str) -> None:
    vector = ScaleVector(WIDTH, reparameterization, "input", norm_gain=BY_DISTANCE)
    assert all(not parameter.any() for parameter in vector.parameters())
    assert torch.equal(vector(), torch.ones(WIDTH))


@pytest.mark.parametrize("reparameterization", REPARAMETERIZATIONS)
def test_the_vector_in_effect_and_its_gradients_are_the_same_under_both(reparameterization: str) -> None:
    stored, by_distance = (vector_of(reparameterization, norm_gain) for norm_gain in NORM_GAINS)
    torch.testing.assert_close(by_distance(), stored(), rtol=1e-12, atol=0)
    for vector in (stored, by_distance):
        vector().square().sin().sum().backward()
    for of_gain, of_distance in zip(stored.parameters(), by_distance.parameters(), strict=True):
        torch.testing.assert_close(of_distance.grad, of_gain.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("reparameterization", REPARAMETERIZATIONS)
def test_decay_pulls_every_vector_to_one(reparameterization: str) -> None:
    before = vector_of(reparameterization, BY_DISTANCE)()
    vector = vector_of(reparameterization, BY_DISTANCE)
    assert (decayed(vector, 0.5) - 1).norm() < 0.6 * (before - 1).norm()
    assert torch.equal(decayed(vector, 1.0), torch.ones(WIDTH, dtype=torch.float64))


def test_a_plugins_arithmetic_is_pulled_to_where_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Reparameterization("operator:add", 0.25, 0.75, PluginSource("operator", "f" * 64))
    monkeypatch.setitem(scale_vectors.REPARAMETERIZATIONS, "sum", entry)
    vector = vector_of("sum", BY_DISTANCE)
    assert (vector() > 1).all()
    assert torch.equal(decayed(vector, 1.0), torch.ones(WIDTH, dtype=torch.float64))


# Whole models
