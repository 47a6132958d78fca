"""What is recorded of the scale vectors along a run."""

from dataclasses import replace

import pytest
import torch

from scalevec.model.strategies import PRESETS
from scalevec.model.theory.measure import NEAR_ZERO, vector_statistics


def test_statistics_are_taken_of_the_vectors_in_effect_by_kind(build):
    model = build(replace(PRESETS["or"], reparameterization="product"))
    with torch.no_grad():
        for block in model.blocks:
            block.attention.shared_vector.beta.fill_(2.0)
        model.blocks[0].feed_forward.shared_vector.alpha.fill_(NEAR_ZERO / 2)
    statistics = vector_statistics(model)
    assert statistics["sv/attention_shared/mean"] == 2.0
    assert statistics["sv/attention_shared/deviation"] == 0.0
    assert statistics["sv/feed_forward_shared/near_zero"] == 0.5
    assert statistics["sv/final/mean"] == 1.0


def test_statistics_name_every_kind_of_vector(build):
    kinds = {key.split("/")[1] for key in vector_statistics(build(PRESETS["unified"]))}
    branch_kinds = {
        f"{name}_{side}" for name in ("query", "key", "value", "gate", "up") for side in ("input", "output")
    }
    assert kinds == branch_kinds | {"final", "head"}


def test_a_model_without_vectors_has_no_statistics(build):
    assert vector_statistics(build(PRESETS["none"])) == {}


def test_a_kind_of_several_layers_is_given_by_layer_too(build):
    model = build(PRESETS["baseline"])
    with torch.no_grad():
        model.blocks[1].attention.shared_vector.gain[:4] = 0.0
    statistics = vector_statistics(model)
    assert statistics["sv/attention_shared/near_zero/layers"] == [0.0, 0.25]
    assert statistics["sv/attention_shared/mean/layers"] == [1.0, 0.75]
    for name in ("mean", "near_zero"):
        by_layer = statistics[f"sv/attention_shared/{name}/layers"]
        assert statistics[f"sv/attention_shared/{name}"] == pytest.approx(sum(by_layer) / 2)


def test_a_kind_that_exists_once_is_not_given_by_layer(build):
    statistics = vector_statistics(build(PRESETS["baseline"]))
    assert "sv/final/mean" in statistics
    assert "sv/final/mean/layers" not in statistics
