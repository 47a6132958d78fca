"""Gemma style: vectors of norms after sublayers and on queries and keys, and gains stored as 1 + w."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from scalevec.model import scale_vectors
from scalevec.model.config import NORM_GAINS, ModelConfig, OptimizerConfig, ScheduleConfig, Shape, Trial
from scalevec.model.decoder import Transformer, parameter_roles
from scalevec.model.fields import PluginSource
from scalevec.model.scale_vectors import ScaleVector
from scalevec.model.strategies import CHOICES, PRESETS, Reparameterization, ScaleVectorStrategy
from scalevec.model.theory.measure import vector_statistics
from scalevec.model.train.optim import parameter_groups

GEMMA = {"architecture": "gemma"}
NORMS = ("query", "key", "output", "down")


def test_dual_normalized_placement_adds_no_norm_where_there_is_one(build, tokens):
    strategy = replace(PRESETS["dnp"], dual_maps=NORMS)
    expected = build(PRESETS["none"], **GEMMA)(tokens)
    torch.testing.assert_close(build(strategy, **GEMMA)(tokens), expected, rtol=1e-12, atol=1e-12)


# Which vectors there are


def vectors(model: Transformer) -> set[str]:
    names = (name for name, module in model.named_modules() if isinstance(module, ScaleVector))
    return {name.removeprefix("blocks.0.") for name in names if not name.startswith("blocks.1.")}


@pytest.mark.parametrize("placement", ["input", "dual"])
@pytest.mark.parametrize("branches", ["shared", "heterogeneous"])
def test_norms_behind_maps_have_their_vectors(build, branches, placement):
    actual = vectors(build(ScaleVectorStrategy(branches=branches, placement=placement), **GEMMA))
    norms = {name for name in actual if name.endswith("norm_vector")}
    expected = {f"{'feed_forward' if name == 'down' else 'attention'}.{name}.norm_vector" for name in NORMS}
    assert norms == expected


def test_dual_normalized_placement_replaces_the_norms_own_vectors(build):
    model = build(PRESETS["unified"], **GEMMA)
    expected = {"attention.output.norm_vector", "feed_forward.down.norm_vector"}
    assert {name for name in vectors(model) if name.endswith("norm_vector")} == expected
    query = model.blocks[0].attention.query
    assert (query.norm_width, query.output_vector.alpha.shape) == (4, (16,))


def test_without_branches_a_gemma_has_norms_and_no_vectors(build):
    model = build(PRESETS["none"], **GEMMA)
    assert not vectors(model)
    assert model.blocks[0].attention.output.norm_width == 16
    assert vector_statistics(model) == {}


@pytest.mark.parametrize("role", ["input", "output"])
def test_vectors_of_the_architectures_norms_are_output_vectors_whatever_the_dual_ones_are(build, role):
    strategy = replace(PRESETS["dp"], dual_maps=("key",), input_role_maps=("key",) * (role == "input"))
    roles = parameter_roles(build(strategy, **GEMMA))
    assert roles["blocks.0.attention.key.norm_vector.gain"] == "scale_vector_output"
    assert roles["blocks.0.attention.key.output_vector.gain"] == f"scale_vector_{role}"


def test_statistics_name_the_vectors_of_norms_behind_maps(build):
    kinds = {key.split("/")[1] for key in vector_statistics(build(PRESETS["baseline"], **GEMMA))}
    assert kinds == {"attention_shared", "feed_forward_shared", "final", *(f"{name}_norm" for name in NORMS)}


# Decay


def gemma_trial(policy: str, decay: float = 0.1) -> Trial:
    shape = Shape(width=16, layers=1, heads=4, kv_heads=2, feed_forward=22)
    strategy = ScaleVectorStrategy(weight_decay=policy)
    return Trial(
        model=ModelConfig(shape, 23, strategy, "gemma"),
        optimizer=OptimizerConfig(weight_decay=decay),
        schedule=ScheduleConfig(),
        corpus="c0" * 32,
        sequence_length=8,
        batch_tokens=8,
        tokens=8,
        seed=0,
    )


@pytest.mark.parametrize("policy", CHOICES["weight_decay"])
def test_each_decay_policy_decays_the_vectors_it_names(policy):
    trial = gemma_trial(policy)
    model = Transformer(trial.model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed = {
        names[id(parameter)]
        for group in parameter_groups(model, trial)
        for parameter in group["params"]
        if group["weight_decay"] > 0
    }
    expected = {"all": {"input", "output"}, "none": set()}.get(policy, {policy})
    for name, role in parameter_roles(model).items():
        if role.startswith("scale_vector"):
            assert (name in decayed) == (role.removeprefix("scale_vector_") in expected)
        else:
            assert name in decayed


# Folding


# The effective matrices


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
