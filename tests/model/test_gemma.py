"""Gemma style: norms before and after each sublayer and on queries and keys, in float64."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from folded_model import fold
from scalevec.model.config import ModelConfig, OptimizerConfig, ScheduleConfig, Shape, Trial
from scalevec.model.decoder import DecoderBlock, Transformer, parameter_roles
from scalevec.model.identity import trial_id
from scalevec.model.ops import table_for
from scalevec.model.scale_vectors import ScaleVector
from scalevec.model.strategies import (
    ALL_MAPS,
    CHOICES,
    PRESETS,
    ScaleVectorStrategy,
)
from scalevec.model.theory.measure import vector_statistics
from scalevec.model.theory.preconditioner import effective_matrices
from scalevec.model.train.optim import parameter_groups

EPSILON, BASE = 1e-5, 10_000.0
GEMMA = {"architecture": "gemma"}
NORMS = ("query", "key", "output", "down")
SAME_START = [name for name, strategy in PRESETS.items() if "normalized" not in strategy.placement]


def norm(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt()


def turned(x: Tensor) -> Tensor:
    """The rotary embedding of x [length, width of a head], each pair of channels by its angle."""
    length, width = x.shape
    result = torch.empty_like(x)
    for position in range(length):
        for pair in range(width // 2):
            angle = position * BASE ** (-2 * pair / width)
            a, b = x[position, 2 * pair], x[position, 2 * pair + 1]
            result[position, 2 * pair] = a * math.cos(angle) - b * math.sin(angle)
            result[position, 2 * pair + 1] = a * math.sin(angle) + b * math.cos(angle)
    return result


def through(block: DecoderBlock, x: Tensor) -> Tensor:
    return block(x, table_for(x, block.attention.config.shape.head_width, BASE))[0]


def written_out(block: DecoderBlock, x: Tensor, shape: Shape) -> Tensor:
    """The block on x [length, width] under the baseline, as its formula says."""
    attention, feed_forward = block.attention, block.feed_forward
    h = norm(x) * attention.shared_vector.gain
    q, k, v = (h @ getattr(attention, name).weight.T for name in ("query", "key", "value"))
    causal = torch.ones(len(x), len(x), dtype=torch.bool).tril()
    heads = []
    for head in range(shape.heads):
        of_head = slice(head * shape.head_width, (head + 1) * shape.head_width)
        first = head * shape.kv_heads // shape.heads * shape.head_width
        read = slice(first, first + shape.head_width)
        query = turned(norm(q[:, of_head]) * attention.query.norm_vector.gain)
        key = turned(norm(k[:, read]) * attention.key.norm_vector.gain)
        scores = (query @ key.T / shape.head_width**0.5).masked_fill(~causal, -math.inf)
        heads.append(scores.softmax(-1) @ v[:, read])
    mixed = torch.cat(heads, -1) @ attention.output.weight.T
    x = x + norm(mixed) * attention.output.norm_vector.gain
    h = norm(x) * feed_forward.shared_vector.gain
    gate, up = h @ feed_forward.gate.weight.T, h @ feed_forward.up.weight.T
    down = (gate * gate.sigmoid() * up) @ feed_forward.down.weight.T
    return x + norm(down) * feed_forward.down.norm_vector.gain


def test_a_block_is_its_written_out_formula(build, tiny):
    block = build(PRESETS["baseline"], drawn=True, **GEMMA).blocks[1]
    x = torch.randn(7, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(
        through(block, x[None])[0], written_out(block, x, tiny), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("name", SAME_START)
def test_at_the_start_vectors_change_nothing(build, tokens, name):
    expected = build(PRESETS["none"], **GEMMA)(tokens)
    torch.testing.assert_close(build(PRESETS[name], **GEMMA)(tokens), expected, rtol=1e-12, atol=1e-12)


def test_dual_normalized_placement_adds_no_norm_where_there_is_one(build, tokens):
    strategy = replace(PRESETS["dnp"], dual_maps=NORMS)
    expected = build(PRESETS["none"], **GEMMA)(tokens)
    torch.testing.assert_close(build(strategy, **GEMMA)(tokens), expected, rtol=1e-12, atol=1e-12)


def test_dual_normalized_placement_elsewhere_computes_another_function(build, tokens):
    expected = build(PRESETS["none"], **GEMMA)(tokens)
    assert not torch.allclose(build(PRESETS["dnp"], **GEMMA)(tokens), expected, atol=1e-3)


@pytest.mark.parametrize("name", PRESETS)
def test_a_later_token_changes_no_earlier_logit(build, tokens, name):
    model = build(PRESETS[name], drawn=True, **GEMMA)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 23
    torch.testing.assert_close(model(changed)[:, :5], model(tokens)[:, :5], rtol=0, atol=0)


# Which vectors there are


def vectors(model: Transformer) -> set[str]:
    names = (name for name, module in model.named_modules() if isinstance(module, ScaleVector))
    return {name.removeprefix("blocks.0.") for name in names if not name.startswith("blocks.1.")}


@pytest.mark.parametrize("placement", ["input", "dual"])
@pytest.mark.parametrize("branches", ["shared", "heterogeneous"])
def test_norms_behind_maps_have_their_vectors(build, branches, placement):
    actual = vectors(build(ScaleVectorStrategy(branches=branches, placement=placement), **GEMMA))
    norms = {name for name in actual if name.endswith("norm_vector")}
    assert norms == {
        f"{'feed_forward' if name == 'down' else 'attention'}.{name}.norm_vector" for name in NORMS
    }


def test_dual_normalized_placement_replaces_the_norms_own_vectors(build):
    model = build(PRESETS["unified"], **GEMMA)
    assert {name for name in vectors(model) if name.endswith("norm_vector")} == {
        "attention.output.norm_vector",
        "feed_forward.down.norm_vector",
    }
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


def test_the_four_decay_policies_are_four_trials():
    assert len({trial_id(gemma_trial(policy)) for policy in CHOICES["weight_decay"]}) == 4
    assert len({trial_id(gemma_trial(policy, decay=0.0)) for policy in CHOICES["weight_decay"]}) == 1


# Folding


def test_vectors_next_to_maps_fold_in_front_of_the_norms(build, tokens):
    strategy = ScaleVectorStrategy(branches="none", placement="dual", dual_maps=ALL_MAPS)
    model = build(strategy, drawn=True, **GEMMA)
    folded = fold(model)
    assert not vectors(folded)
    torch.testing.assert_close(folded(tokens), model(tokens), rtol=1e-10, atol=1e-12)


def test_input_vectors_fold_while_the_norms_keep_theirs(build, tokens):
    model = build(PRESETS["baseline"], drawn=True, **GEMMA)
    folded = build(PRESETS["baseline"], **GEMMA)
    folded.load_state_dict(model.state_dict())
    with torch.no_grad():
        for block in folded.blocks:
            for sublayer, readers in (
                (block.attention, ("query", "key", "value")),
                (block.feed_forward, ("gate", "up")),
            ):
                for name in readers:
                    getattr(sublayer, name).weight.mul_(sublayer.shared_vector.gain)
                sublayer.shared_vector.reset()
    torch.testing.assert_close(folded(tokens), model(tokens), rtol=1e-10, atol=1e-12)


# The effective matrices


def test_an_output_vector_in_front_of_a_norm_is_part_of_the_effective_matrix(build):
    strategy = replace(PRESETS["dp"], branches="heterogeneous", dual_maps=("query",))
    model = build(strategy, drawn=True, **GEMMA)
    query = model.blocks[0].attention.query
    (actual,) = (
        matrix for matrix in effective_matrices(model) if (matrix.kind, matrix.layer) == ("query", 0)
    )
    torch.testing.assert_close(actual.values().effective(), query.folded_weight(), rtol=1e-12, atol=0)
