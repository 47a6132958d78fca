"""The decoder: its attention, its start, its loss."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from scalevec.model.config import Experts, ModelConfig, Shape
from scalevec.model.decoder import Transformer, initialise, parameter_roles
from scalevec.model.strategies import PRESETS

TINY = Shape(width=16, layers=2, heads=4, kv_heads=2, feed_forward=22)
MIXTURE = Experts(n_experts=4, top_k=2, feed_forward=6, shared_experts=1, shared_feed_forward=10)


@pytest.mark.parametrize("name", PRESETS)
def test_a_later_token_changes_no_earlier_logit(build, tokens, name):
    model = build(PRESETS[name], drawn=True)
    before = model(tokens)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 23
    after = model(changed)
    torch.testing.assert_close(after[:, :5], before[:, :5], rtol=0, atol=0)
    assert not torch.allclose(after[:, 5:], before[:, 5:])


# The start


def matrices(model: Transformer) -> dict[str, Tensor]:
    roles = parameter_roles(model)
    return {name: p for name, p in model.named_parameters() if not roles[name].startswith("scale_vector")}


@pytest.mark.parametrize("name", PRESETS)
def test_arms_of_one_seed_start_from_the_same_matrices(build, name):
    expected = matrices(build(PRESETS["none"]))
    actual = matrices(build(PRESETS[name]))
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[key], expected[key]) for key in expected)


def test_another_seed_draws_every_matrix_anew(build):
    first, second = build(PRESETS["baseline"]), build(PRESETS["baseline"])
    initialise(second, seed=4)
    pairs = zip(matrices(first).values(), matrices(second).values(), strict=True)
    assert not any(torch.equal(item, other) for item, other in pairs)


def test_initialising_again_restores_the_start(build):
    fresh, used = build(PRESETS["unified"]), build(PRESETS["unified"], drawn=True)
    initialise(used, seed=3)
    assert all(torch.equal(value, used.state_dict()[key]) for key, value in fresh.state_dict().items())


def test_the_start_has_the_stated_deviations():
    model = Transformer(ModelConfig(Shape(64, 2, 4, 4, 256), 500))
    initialise(model, seed=0)
    block = model.blocks[1]
    expected = {
        model.embedding: 64**-0.5,
        model.head: 64**-0.5,
        block.attention.key.weight: 64**-0.5,
        block.feed_forward.gate.weight: 64**-0.5,
        block.attention.output.weight: 64**-0.5 / math.sqrt(4),
        block.feed_forward.down.weight: 256**-0.5 / math.sqrt(4),
    }
    for tensor, deviation in expected.items():
        assert tensor.std().item() == pytest.approx(deviation, rel=0.05)
        assert tensor.mean().item() == pytest.approx(0, abs=0.1 * deviation)


# Parameters


@pytest.mark.parametrize("output_role", ["input", "output"])
@pytest.mark.parametrize("reparameterization", ["none", "or"])
def test_every_parameter_has_the_role_of_its_place(build, output_role, reparameterization):
    strategy = replace(
        PRESETS["dp"],
        dual_maps=("query", "down"),
        input_role_maps=("query", "down") if output_role == "input" else (),
        reparameterization=reparameterization,
    )
    roles = parameter_roles(build(strategy))
    parts = ["gain"] if reparameterization == "none" else ["beta", "alpha"]
    for part in parts:
        assert roles[f"blocks.0.attention.shared_vector.{part}"] == "scale_vector_input"
        assert roles[f"blocks.1.feed_forward.down.input_vector.{part}"] == "scale_vector_input"
        assert roles[f"blocks.1.attention.query.output_vector.{part}"] == f"scale_vector_{output_role}"
        assert roles[f"final_vector.{part}"] == "scale_vector_input"
    assert roles["blocks.0.attention.output.weight"] == "matrix"
    assert (roles["embedding"], roles["head"]) == ("embedding", "head")


def test_what_commutes_into_the_next_map_decays_as_an_input_vector_where_the_strategy_says_so(build):
    roles = parameter_roles(build(PRESETS["unified-attention"]))
    attention = "blocks.0.attention"
    by_map = {name: roles[f"{attention}.{name}.output_vector.alpha"] for name in ("query", "key", "value")}
    assert list(by_map.values()) == ["scale_vector_output", "scale_vector_output", "scale_vector_input"]


def test_every_parameter_has_a_role_and_a_gradient(build, tokens):
    for strategy in PRESETS.values():
        model = build(strategy)
        model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
        names = dict(model.named_parameters())
        assert parameter_roles(model).keys() == names.keys()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in names.values())


# The loss


@pytest.mark.parametrize(("name", "experts"), [("baseline", None), ("unified", None), ("baseline", MIXTURE)])
def test_autocast_gives_a_single_precision_loss_near_the_exact_one(tokens, name, experts):
    model = Transformer(ModelConfig(TINY, 23, PRESETS[name], experts=experts))
    initialise(model, seed=0)
    exact = model.loss(tokens[:, :-1], tokens[:, 1:])
    with torch.autocast("cpu", torch.bfloat16):
        parts = [part for part in model.training_loss(tokens[:, :-1], tokens[:, 1:]) if part is not None]
    sum(parts).backward()
    assert [part.dtype for part in parts] == [torch.float32] * (2 if experts else 1)
    assert parts[0].item() == pytest.approx(exact.item(), abs=0.05)
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
