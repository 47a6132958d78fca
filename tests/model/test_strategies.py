"""Strategies as data: what they refuse, and the canonical form that stands for what is trained."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from any_strategy import any_strategy, any_strategy_of_a_mixture
from scalevec.model.config import ARCHITECTURES, Experts, ModelConfig, Shape
from scalevec.model.decoder import Transformer, parameter_roles
from scalevec.model.experts import Mixture
from scalevec.model.fields import ConfigurationError
from scalevec.model.scale_vectors import LinearMap
from scalevec.model.strategies import ALL_MAPS, NORMED_MAPS, PRESETS, ScaleVectorStrategy, canonical

SHAPE = Shape(width=12, layers=1, heads=3, kv_heads=3, feed_forward=7)

FIELDS = [field.name for field in fields(ScaleVectorStrategy)]

any_architecture = st.sampled_from(ARCHITECTURES)
any_decay = st.sampled_from([0.0, 0.1])


def trained(
    strategy: ScaleVectorStrategy, architecture: str, weight_decay: float, experts: Experts | None = None
) -> dict[str, Any]:
    """All of a strategy that training sees: each vector's parameters, decay and rate, each map's norm."""
    shape = SHAPE if experts is None else replace(SHAPE, feed_forward=experts.active_hidden)
    with torch.device("meta"):
        model = Transformer(ModelConfig(shape, 5, strategy, architecture, experts=experts))
    facts: dict[str, Any] = {"head": model.normalizes_head}
    for name, role in parameter_roles(model).items():
        if role.startswith("scale_vector"):
            parameter = name.rpartition(".")[2]
            decay = strategy.decay_of(role.removeprefix("scale_vector_"), parameter, weight_decay)
            entries = tuple(model.get_parameter(name).shape)
            facts[name] = (decay, strategy.learning_rate_factor, strategy.reparameterization, entries)
    for name, module in model.named_modules():
        if isinstance(module, LinearMap):
            facts[name] = (module.norm_width, module.output_is_folded)
        if isinstance(module, Mixture) and module.shared_vector is not None:
            facts[name] = (module.router_shares, module.routed_share)
    return facts


@settings(deadline=None, max_examples=50)
@given(any_strategy, any_architecture, any_decay)
def test_the_canonical_strategy_trains_the_same_bits(strategy, architecture, weight_decay):
    position = {"architecture": architecture, "weight_decay": weight_decay}
    assert trained(canonical(strategy, **position), **position) == trained(strategy, **position)


@settings(deadline=None, max_examples=50)
@given(any_strategy_of_a_mixture, any_architecture, any_decay, st.integers(0, 1))
def test_the_canonical_strategy_of_a_mixture_trains_the_same_bits(strategy, architecture, decays, shared):
    simplest = canonical(strategy, architecture=architecture, weight_decay=decays, is_mixture=True)
    experts = Experts(n_experts=2, top_k=1, feed_forward=3, shared_experts=shared)
    position = {"architecture": architecture, "weight_decay": decays, "experts": experts}
    assert trained(simplest, **position) == trained(strategy, **position)


@given(any_strategy, any_architecture, any_decay)
def test_the_canonical_strategy_is_its_own_canonical_strategy(strategy, architecture, weight_decay):
    position = {"architecture": architecture, "weight_decay": weight_decay}
    simplest = canonical(strategy, **position)
    assert canonical(simplest, **position) == simplest


@settings(deadline=None, max_examples=100)
@given(any_strategy, any_strategy, st.sets(st.sampled_from(FIELDS)), any_architecture, any_decay)
def test_one_canonical_strategy_trains_the_same_bits(first, other, changed, architecture, weight_decay):
    second = replace(first, **{name: getattr(other, name) for name in changed})
    position = {"architecture": architecture, "weight_decay": weight_decay}
    same = trained(first, **position) == trained(second, **position)
    forms = [canonical(strategy, **position) for strategy in (first, second)]
    assert (forms[0] == forms[1]) == same


def test_input_vectors_on_output_and_down_need_branches():
    strategy = ScaleVectorStrategy(branches="none", placement="dual", dual_maps=ALL_MAPS)
    assert not any(strategy.has_own_input_vector(name) for name in ALL_MAPS)
    shared = replace(strategy, branches="shared")
    assert [name for name in ALL_MAPS if shared.has_own_input_vector(name)] == ["output", "down"]


def test_maps_that_are_left_out_of_heterogeneous_branches_share_a_vector():
    strategy = ScaleVectorStrategy(branches="heterogeneous", heterogeneous_maps=("value",))
    assert [name for name in NORMED_MAPS if strategy.has_own_input_vector(name)] == ["value"]
    assert strategy.has_shared_vector(("query", "key", "value"))
    assert strategy.has_shared_vector(("gate", "up"))


def test_the_role_of_an_output_vector_is_said_by_map():
    strategy = replace(PRESETS["unified"], input_role_maps=("value", "up"))
    roles = [strategy.output_role(name) for name in NORMED_MAPS]
    assert roles == ["output", "output", "input", "output", "input"]
    assert [PRESETS["unified"].output_role(name) for name in NORMED_MAPS] == ["output"] * 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("branches", "some"),
        ("dual_maps", ("up", "up")),
        ("reparameterization", "both"),
        ("vector_weight_decay", -0.1),
        ("heterogeneous_maps", ("output",)),
        ("learning_rate_factor", float("nan")),
    ],
)
def test_a_field_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(ConfigurationError, match=f"scale_vectors.{field}"):
        ScaleVectorStrategy(**{field: value})
