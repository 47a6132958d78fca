"""The identities that scale vectors obey exactly, in float64."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from folded_model import fold
from scalevec.model import scale_vectors
from scalevec.model.config import NORM_GAINS
from scalevec.model.decoder import parameter_roles
from scalevec.model.fields import PluginSource
from scalevec.model.strategies import ALL_MAPS, CHOICES, PRESETS, Reparameterization, ScaleVectorStrategy

FOLDABLE = [name for name, strategy in PRESETS.items() if "normalized" not in strategy.placement]
REPARAMETERIZATIONS = CHOICES["reparameterization"]
WIDTH = 7
ALL_DUAL = ScaleVectorStrategy(branches="heterogeneous", placement="dual", dual_maps=ALL_MAPS)


# Reparameterizations


@given(st.sampled_from(REPARAMETERIZATIONS), st.integers(1, 300))
def test_every_reparameterization_starts_at_exactly_one(reparameterization, width):
    assert torch.equal(scale_vectors.ScaleVector(width, reparameterization, "input")(), torch.ones(width))


@pytest.mark.parametrize(
    ("reparameterization", "formula"),
    [
        ("or", lambda beta, alpha: beta * len(alpha) ** 0.5 * alpha / alpha.norm()),
        ("er", lambda beta, alpha: torch.exp(beta) * torch.exp(alpha - alpha.mean())),
        ("product", lambda beta, alpha: beta * alpha),
        ("exponential-sum", lambda beta, alpha: torch.exp(beta) * torch.exp(alpha)),
    ],
)
def test_a_reparameterization_follows_its_formula(reparameterization, formula):
    vector = vector_of(reparameterization)
    torch.testing.assert_close(vector(), formula(vector.beta, vector.alpha), rtol=1e-12, atol=0)


def vector_of(reparameterization: str, norm_gain: str = "g") -> scale_vectors.ScaleVector:
    """A vector whose parameters are away from their start, by the same under both ways of storing it."""
    vector = scale_vectors.ScaleVector(WIDTH, reparameterization, "input", norm_gain=norm_gain).double()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in vector.parameters():
            parameter += 0.3 * torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
    return vector


# Gains stored as 1 + w


@torch.no_grad()
def decayed(vector: scale_vectors.ScaleVector, by: float) -> Tensor:
    """The vector in effect once every parameter has lost ``by`` of what is stored."""
    for parameter in vector.parameters():
        parameter *= 1 - by
    return vector()


@pytest.mark.parametrize("reparameterization", REPARAMETERIZATIONS)
def test_the_start_is_zero_as_stored_and_one_in_effect(reparameterization: str) -> None:
    vector = scale_vectors.ScaleVector(WIDTH, reparameterization, "input", norm_gain="1+w")
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
    vector = vector_of(reparameterization, "1+w")
    before = vector()
    assert (decayed(vector, 0.5) - 1).norm() < 0.6 * (before - 1).norm()
    assert torch.equal(decayed(vector, 1.0), torch.ones(WIDTH, dtype=torch.float64))


def test_a_plugins_arithmetic_is_pulled_to_where_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Reparameterization("operator:add", 0.25, 0.75, PluginSource("operator", "f" * 64))
    monkeypatch.setitem(scale_vectors.REPARAMETERIZATIONS, "sum", entry)
    vector = vector_of("sum", "1+w")
    assert (vector() > 1).all()
    assert torch.equal(decayed(vector, 1.0), torch.ones(WIDTH, dtype=torch.float64))


# Folding


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", FOLDABLE)
def test_folding_leaves_the_logits_the_same(build, tokens, name, tied):
    model = build(PRESETS[name], drawn=True, tied=tied)
    torch.testing.assert_close(fold(model)(tokens), model(tokens), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("branches", ["none", "shared", "heterogeneous"])
def test_folding_takes_vectors_on_all_seven_maps(build, tokens, branches):
    model = build(replace(ALL_DUAL, branches=branches), drawn=True)
    folded = fold(model)
    assert all(role in ("matrix", "embedding", "head") for role in parameter_roles(folded).values())
    torch.testing.assert_close(folded(tokens), model(tokens), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("maps_with_vectors", [("query",), ("key", "value"), ("gate", "up")], ids=str)
def test_folding_takes_vectors_that_some_of_the_maps_share(build, tokens, maps_with_vectors):
    strategy = replace(ALL_DUAL, heterogeneous_maps=maps_with_vectors, heads="shared")
    model = build(strategy, drawn=True)
    torch.testing.assert_close(fold(model)(tokens), model(tokens), rtol=1e-10, atol=1e-12)


# The same function at the start


@pytest.mark.parametrize("name", FOLDABLE)
def test_at_the_start_vectors_change_nothing(build, tokens, name):
    expected = build(PRESETS["none"])(tokens)
    torch.testing.assert_close(build(PRESETS[name])(tokens), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("per_head", [True, False])
def test_dual_normalized_placement_scales_the_normalized_product(build, tokens, per_head):
    """y = u * Norm(W x), the norm over each head or over the whole width."""
    strategy = replace(PRESETS["dnp"], dual_maps=ALL_MAPS, normalize_per_head=per_head, branches="none")
    attention = build(strategy, drawn=True).blocks[0].attention
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    product = x @ attention.value.weight.T
    groups = product.view(2, 5, -1, 4 if per_head else 8)
    normalized = groups / (groups.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    expected = normalized.flatten(-2) * attention.value.output_vector.gain
    torch.testing.assert_close(alone(attention.value, x), expected, rtol=1e-10, atol=1e-12)


def alone(map_: scale_vectors.LinearMap, x: Tensor, before: Tensor | None = None) -> Tensor:
    product = scale_vectors.joint_map((map_,), x, 1e-5, scale_vectors.joint_weight((map_,), (before,)))
    return scale_vectors.scaled(product, map_.post_norm_gain())


def test_a_vector_of_values_behind_a_norm_scales_what_the_output_map_reads(build, tokens):
    """Two heads of queries read each head of values, of four channels."""
    model = build(replace(PRESETS["dnp"], dual_maps=("query", "value")), drawn=True)
    expected = model(tokens)
    with torch.no_grad():
        for block in model.blocks:
            gain = block.attention.value.output_vector.gain
            block.attention.output.weight *= gain.view(2, 1, 4).expand(2, 2, 4).flatten()
            gain.fill_(1.0)
    torch.testing.assert_close(model(tokens), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dual_maps", [("query",), ("key", "value"), ("query", "key", "value")])
@pytest.mark.parametrize("per_head", [True, False])
def test_maps_side_by_side_are_what_each_makes_alone(build, dual_maps, per_head):
    strategy = replace(PRESETS["unified"], dual_maps=dual_maps, normalize_per_head=per_head)
    attention = build(strategy, drawn=True).blocks[0].attention
    maps = (attention.query, attention.key, attention.value)
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    one_by_one = torch.cat([alone(map_, x, x[0, 0]) for map_ in maps], -1)
    weight = scale_vectors.joint_weight(maps, [x[0, 0]] * 3)
    joint = scale_vectors.joint_map(maps, x, 1e-5, weight) * scale_vectors.post_norm_gains(maps)
    torch.testing.assert_close(joint, one_by_one, rtol=1e-10, atol=1e-12)


# Heads of attention


def test_heads_that_share_an_output_vector_are_scaled_alike(build):
    """The values of grouped queries: two heads of four channels, one vector of four entries."""
    vector = build(PRESETS["unified-attention"], drawn=True).blocks[0].attention.value.output_vector
    assert (vector.alpha.shape, vector.beta.shape) == ((4,), (1,))
    entries = vector.beta * vector.alpha / vector.alpha.square().mean().sqrt()
    torch.testing.assert_close(vector(), entries.repeat(2), rtol=1e-12, atol=0)


def test_each_head_may_have_a_magnitude_of_its_own(build):
    strategy = replace(PRESETS["unified"], magnitudes="head")
    vector = build(strategy, drawn=True).blocks[0].attention.value.output_vector
    assert (vector.alpha.shape, vector.beta.shape) == ((2, 4), (2, 1))
    rms = vector().view(2, 4).square().mean(-1).sqrt()
    torch.testing.assert_close(rms, vector.beta.flatten(), rtol=1e-12, atol=0)


# The head


def test_the_heads_vector_has_an_entry_for_each_token_and_scales_its_logit(build, tokens):
    model, plain = build(PRESETS["unified"]), build(PRESETS["unified-no-head"])
    with torch.no_grad():
        model.head_vector.alpha += torch.rand(model.head_vector.alpha.shape).double()
    torch.testing.assert_close(model(tokens), plain(tokens) * model.head_vector(), rtol=1e-10, atol=1e-12)


def test_a_normalized_head_scales_logits_of_mean_square_one(build, tokens):
    model = build(replace(PRESETS["unified"], normalize_head=True))
    squares = model(tokens).square().mean(-1)
    torch.testing.assert_close(squares, torch.ones_like(squares), rtol=1e-3, atol=0)


@pytest.mark.parametrize("normalized", [False, True])
def test_the_loss_of_a_head_with_a_vector_is_that_of_its_logits(build, tokens, normalized):
    model = build(replace(PRESETS["unified"], normalize_head=normalized), drawn=True)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    each = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction="none")
    torch.testing.assert_close(model.loss(inputs, targets), each.mean(), check_dtype=False)
    torch.testing.assert_close(model.token_losses(inputs, targets).flatten(), each, check_dtype=False)


def test_the_norms_without_vectors_are_those_of_dual_normalized_placement(build, tokens):
    norms, dual = build(PRESETS["norms-only"]), build(PRESETS["dnp"])
    torch.testing.assert_close(norms(tokens), dual(tokens), rtol=1e-10, atol=1e-12)
    assert not [name for name, _ in norms.named_parameters() if "vector" in name]
