"""Gemma style: vectors of norms after sublayers and on queries and keys."""

from dataclasses import replace

import pytest
import torch

from golden_trial import of_model
from scalevec.model.decoder import Transformer, parameter_roles
from scalevec.model.scale_vectors import ScaleVector
from scalevec.model.strategies import CHOICES, PRESETS, ScaleVectorStrategy
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


@pytest.mark.parametrize("policy", CHOICES["weight_decay"])
def test_each_decay_policy_decays_the_vectors_it_names(policy):
    trial = of_model(architecture="gemma", scale_vectors=ScaleVectorStrategy(weight_decay=policy))
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
