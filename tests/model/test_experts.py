"""Mixtures of experts: against a plain loop over tokens, forward and backward, and how they are balanced."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from any_strategy import any_strategy_of_a_mixture
from scalevec.model import experts as module
from scalevec.model.accounting import count_parameters
from scalevec.model.config import ARCHITECTURES, Experts, ModelConfig, Shape
from scalevec.model.decoder import Transformer, initialise, parameter_roles
from scalevec.model.experts import Mixture
from scalevec.model.scale_vectors import LinearMap
from scalevec.model.strategies import ALL_MAPS, PRESETS, ScaleVectorStrategy
from scalevec.model.theory.measure import vector_statistics

EPSILON = 1e-5
FOUR = Experts(n_experts=4, top_k=2, feed_forward=6, shared_experts=1)
SHAPE = Shape(width=16, layers=2, heads=4, kv_heads=2, feed_forward=18)
ALL_DUAL = {"dual_maps": ALL_MAPS, "reparameterization": "or"}
STRATEGIES = {
    "none": PRESETS["none"],
    "baseline": PRESETS["baseline"],
    "own vectors": ScaleVectorStrategy(experts="own"),
    "no vectors in experts": ScaleVectorStrategy(experts="none", router="none"),
    "unified": PRESETS["unified"],
    "unified, own vectors": replace(PRESETS["unified"], experts="own"),
    "unified-attention": PRESETS["unified-attention"],
    "unified-attention, own vectors": replace(PRESETS["unified-attention"], experts="own"),
    "gate and up share": ScaleVectorStrategy(branches="heterogeneous", heterogeneous_maps=("query",)),
    "every map": ScaleVectorStrategy(branches="heterogeneous", placement="dual", **ALL_DUAL),
    "every map normalized": ScaleVectorStrategy(placement="dual-normalized", experts="own", **ALL_DUAL),
}


def mixed(build, strategy: ScaleVectorStrategy, experts: Experts = FOUR, **options: Any) -> Transformer:
    shape = replace(SHAPE, feed_forward=experts.active_hidden)
    model = build(strategy, shape=shape, experts=experts, drawn=True, **options)
    assert isinstance(model, Transformer)
    return model


def inputs() -> Tensor:
    return torch.randn(3, 7, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


# Against the plain loop


def norm(x: Tensor) -> Tensor:
    return x / (x.square().mean() + EPSILON).sqrt()


def row(vector: Tensor, expert: int | None) -> Tensor:
    return vector if vector.ndim == 1 or expert is None else vector[expert]


def through(map_: LinearMap, x: Tensor, before: Tensor | None, expert: int | None = None) -> Tensor:
    """One token x [in] through a linear map, or that of one expert, by its definition."""
    if map_.input_vector is not None:
        x = x * row(map_.input_vector(), expert)
    if before is not None:
        x = x * row(before, expert)
    y = (map_.weight if expert is None else map_.weight[expert]) @ x
    y = norm(y) if map_.norm_width else y
    return y if map_.output_vector is None else y * row(map_.output_vector(), expert)


def through_unit(unit: torch.nn.Module, x: Tensor, before: Tensor | None, expert: int | None) -> Tensor:
    gate, up = through(unit.gate, x, before, expert), through(unit.up, x, before, expert)
    return through(unit.down, gate * gate.sigmoid() * up, None, expert)


def plain_loop(mixture: Mixture, strategy: ScaleVectorStrategy, x: Tensor) -> Tensor:
    """The mixture of one token of the residual stream [width]: expert by expert, as its definition says."""
    stream, x, config = x, norm(x), mixture.experts_config
    shared = None if mixture.shared_vector is None else mixture.shared_vector()
    probabilities = through(mixture.router, x, shared if strategy.router == "branch" else None).softmax(0)
    scores = probabilities if mixture.bias is None else probabilities + mixture.bias
    chosen = sorted(range(config.n_experts), key=lambda expert: -scores[expert].item())[: config.top_k]
    weights = probabilities[chosen]
    if config.top_k > 1:
        weights = weights / weights.sum()
    before = shared if strategy.experts == "shared" else None
    if mixture.experts.shared_vector is not None:
        before = mixture.experts.shared_vector()
    result = torch.zeros_like(x)
    for weight, expert in zip(weights, chosen, strict=True):
        result = result + weight * through_unit(mixture.experts, x, before, expert)
    if mixture.shared_expert is not None:
        result = result + through_unit(mixture.shared_expert, x, shared, None)
    result = norm(result) if mixture.normalizes else result
    return stream + (result if mixture.norm_vector is None else result * mixture.norm_vector())


def assert_as_the_plain_loop(mixture: Mixture, strategy: ScaleVectorStrategy) -> None:
    x = inputs().requires_grad_()
    parameters = [x, *mixture.parameters()]
    result, _ = mixture(x, mixture.weights())
    expected = torch.stack([plain_loop(mixture, strategy, token) for token in x.flatten(0, 1)]).view_as(x)
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-12)
    into = torch.linspace(-1, 1, x.numel(), dtype=torch.float64).view_as(x)
    actual = torch.autograd.grad((result * into).sum(), parameters, allow_unused=True, materialize_grads=True)
    options = {"allow_unused": True, "materialize_grads": True}
    wanted = torch.autograd.grad((expected * into).sum(), parameters, **options)
    for item, other in zip(actual, wanted, strict=True):
        torch.testing.assert_close(item, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_mixture_and_its_gradients_are_those_of_a_plain_loop(build, name, architecture):
    model = mixed(build, STRATEGIES[name], architecture=architecture)
    assert_as_the_plain_loop(model.blocks[1].feed_forward, STRATEGIES[name])


@pytest.mark.parametrize(
    "experts",
    [
        Experts(n_experts=3, top_k=1, feed_forward=5),
        Experts(n_experts=3, top_k=3, feed_forward=5),
        Experts(n_experts=9, top_k=2, feed_forward=4, shared_experts=2, shared_feed_forward=7),
        Experts(n_experts=4, top_k=2, feed_forward=4, balancing="bias"),
    ],
    ids=["one of three", "all of three", "two shared", "with a bias"],
)
def test_any_number_of_experts_is_that_of_a_plain_loop(build, experts):
    mixture = mixed(build, PRESETS["baseline"], experts).blocks[0].feed_forward
    if mixture.bias is not None:
        mixture.bias += torch.tensor([0.5, -0.1, 0.2, 0.0])
    assert_as_the_plain_loop(mixture, PRESETS["baseline"])


@pytest.mark.skipif(module._grouped_mm is None, reason="this torch has no grouped matrix products")
def test_grouped_products_are_those_of_the_loop_forward_and_backward():
    """Where there is no accelerator, torch computes them on the CPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    load = torch.tensor([3, 0, 9, 4], device=device)
    rows = torch.randn(16, 24, generator=generator).to(device, torch.bfloat16).requires_grad_()
    weights = torch.randn(4, 8, 24, generator=generator).to(device, torch.bfloat16).requires_grad_()
    results = []
    for multiply in (module.grouped_products, module.looped_products):
        product = multiply(rows, weights, load)
        results.append((product, *torch.autograd.grad(product.float().square().sum(), [rows, weights])))
    for grouped, looped in zip(*results, strict=True):
        torch.testing.assert_close(grouped, looped, rtol=2e-2, atol=2e-2)


# Balancing


def pairs(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return tokens[:, :-1], tokens[:, 1:]


def test_the_penalty_is_no_part_of_the_evaluated_loss(build, tokens):
    model = mixed(build, PRESETS["baseline"])
    loss, penalty = model.training_loss(*pairs(tokens))
    assert penalty.item() > 0
    torch.testing.assert_close(model.loss(*pairs(tokens)), loss, rtol=0, atol=0)


@pytest.mark.parametrize("balancing", ["bias", "none"])
def test_only_balancing_by_loss_has_a_penalty(build, tokens, balancing):
    model = mixed(build, PRESETS["baseline"], replace(FOUR, balancing=balancing))
    assert model.training_loss(*pairs(tokens))[1] is None


def biased(build) -> Transformer:
    return mixed(build, PRESETS["baseline"], replace(FOUR, balancing="bias", bias_rate=0.25))


def test_the_bias_rises_below_the_mean_load_and_falls_above_it(build):
    mixture = biased(build).blocks[0].feed_forward
    mixture.load.copy_(torch.tensor([5, 1, 3, 3]))
    mixture.balance()
    assert mixture.bias.tolist() == [-0.25, 0.25, 0.0, 0.0]
    assert mixture.load.tolist() == [0, 0, 0, 0]


def test_the_load_of_micro_batches_is_that_of_the_batch(build, tokens):
    whole, parts = biased(build), biased(build)
    whole.training_loss(*pairs(tokens))
    for sequence in tokens:
        parts.training_loss(*pairs(sequence[None]))
    for item, other in zip(whole.blocks, parts.blocks, strict=True):
        assert item.feed_forward.load.sum() == 3 * 8 * 2
        assert torch.equal(item.feed_forward.load, other.feed_forward.load)


def test_evaluation_counts_no_load(build, tokens):
    model = biased(build)
    model.loss(*pairs(tokens))
    assert model.blocks[0].feed_forward.load.sum() == 0


# Parameters, counts, folding


def test_stacked_experts_have_a_role_of_their_own(build):
    roles = parameter_roles(mixed(build, PRESETS["unified"]))
    assert roles["blocks.0.feed_forward.experts.gate.weight"] == "experts"
    assert roles["blocks.0.feed_forward.router.weight"] == "matrix"
    assert roles["blocks.0.feed_forward.shared_expert.down.weight"] == "matrix"
    assert roles["blocks.0.feed_forward.router.input_vector.alpha"] == "scale_vector_input"
    assert roles["blocks.0.feed_forward.experts.up.output_vector.beta"] == "scale_vector_output"


def test_statistics_tell_the_vectors_of_experts_from_others(build):
    kinds = {key.split("/")[1] for key in vector_statistics(mixed(build, PRESETS["hg"]))}
    input_kinds = {f"{name}_input" for name in ("query", "key", "value", "gate", "up", "router")}
    assert kinds == input_kinds | {"expert_gate_input", "expert_up_input", "final"}
    shared = vector_statistics(mixed(build, STRATEGIES["own vectors"]))
    assert {"sv/feed_forward_shared/mean", "sv/expert_shared/mean"} <= shared.keys()


def test_initialising_again_restores_the_bias(build):
    model = biased(build)
    model.blocks[0].feed_forward.bias += 1
    initialise(model, seed=3)
    assert model.blocks[0].feed_forward.bias.abs().sum() == 0


def from_the_model(config: ModelConfig) -> dict[str, int]:
    with torch.device("meta"):
        model = Transformer(config)
    roles, sizes = parameter_roles(model), dict.fromkeys(("matrix", "experts", "input", "output"), 0)
    for name, parameter in model.named_parameters():
        kind = roles[name].removeprefix("scale_vector_")
        if kind in sizes:
            sizes[kind] += parameter.numel()
    return sizes


@settings(max_examples=30, deadline=None)
@given(any_strategy_of_a_mixture, st.integers(0, 2), st.integers(0, 1), st.sampled_from(ARCHITECTURES))
def test_parameters_of_any_strategy_are_those_of_the_model(strategy, shared, dense, architecture):
    experts = replace(FOUR, shared_experts=shared, shared_feed_forward=9, dense_layers=dense)
    hidden = 21 if dense else experts.active_hidden
    config = ModelConfig(replace(SHAPE, feed_forward=hidden), 31, strategy, architecture, experts=experts)
    counts, sizes = count_parameters(config), from_the_model(config)
    assert (counts.scale_vectors_input, counts.scale_vectors_output) == (sizes["input"], sizes["output"])
    assert counts.matrices_total == sizes["matrix"] + sizes["experts"]
    routed_and_passed = sizes["experts"] * experts.top_k // experts.n_experts
    assert counts.matrices == sizes["matrix"] + routed_and_passed
    assert counts.total - counts.active == sizes["experts"] - routed_and_passed


# Bad input


def test_a_number_without_meaning_makes_no_other_mixture():
    assert replace(FOUR, bias_rate=0.5) == FOUR
    assert replace(FOUR, balancing="none", loss_coefficient=0.5) == replace(FOUR, balancing="none")
