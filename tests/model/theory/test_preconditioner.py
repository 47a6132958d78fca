"""The preconditioner of the effective matrices, in float64 against what gradient descent does."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from folded_model import fold
from scalevec.model.config import NORM_GAINS, OF_ARCHITECTURE, Experts, Shape
from scalevec.model.decoder import Transformer
from scalevec.model.strategies import ALL_MAPS, PRESETS, ScaleVectorStrategy
from scalevec.model.theory.preconditioner import (
    EffectiveMatrix,
    conserved,
    decay_direction,
    effective_matrices,
    eigenvalues,
    gradient_of_effective,
    precondition,
)

MINI = Shape(width=4, layers=1, heads=2, kv_heads=1, feed_forward=6)
ALL_DUAL = ScaleVectorStrategy(branches="heterogeneous", placement="dual", dual_maps=ALL_MAPS)
STRATEGIES = {
    **{
        name: PRESETS[name]
        for name in ("none", "baseline", "hg", "dp", "or", "er", "unified", "unified-attention")
    },
    "all-dual": ALL_DUAL,
    "all-dual-or": replace(ALL_DUAL, reparameterization="or"),
    "some-share": replace(ALL_DUAL, heterogeneous_maps=("value",), heads="shared", reparameterization="er"),
    "head-normalized": replace(PRESETS["unified"], normalize_head=True),
    **{n: ScaleVectorStrategy(reparameterization=n) for n in ("product", "exponential-sum")},
    "faster-vectors": replace(PRESETS["er"], learning_rate_factor=3.0),
}
by_strategy = pytest.mark.parametrize("name", STRATEGIES)


def with_gradients(model: Transformer, tokens: Tensor) -> Transformer:
    model.zero_grad()
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    return model


@torch.no_grad()
def step(model: Transformer, learning_rate: float, decay: float = 0.0) -> None:
    """Gradient descent with weight decay, the vectors at their strategy's factor of the rate."""
    factor = model.config.scale_vectors.learning_rate_factor
    for parameter in model.parameters():
        rate = learning_rate * (1.0 if parameter.dim() > 1 else factor)
        parameter -= rate * (parameter.grad + decay * parameter)


def matrices_that_move_as_predicted(model: Transformer, tokens: Tensor) -> list[EffectiveMatrix]:
    """The effective matrices, each held to -P(grad_V) in a small step of gradient descent."""
    factor = model.config.scale_vectors.learning_rate_factor
    with_gradients(model, tokens)
    before = []
    for matrix in effective_matrices(model):
        values = matrix.values()
        gradient = gradient_of_effective(matrix, values)
        before.append((matrix, values.effective(), precondition(matrix, values, gradient, factor)))
    step(model, 1e-7)
    for matrix, V, predicted in before:
        moved = (matrix.values().effective() - V) / 1e-7
        torch.testing.assert_close(moved, -predicted, rtol=1e-4, atol=1e-6)
    return [matrix for matrix, _, _ in before]


@by_strategy
def test_small_steps_of_gradient_descent_move_as_predicted(name, build, tokens):
    assert matrices_that_move_as_predicted(build(STRATEGIES[name], drawn=True), tokens)


@pytest.mark.parametrize("fields", [{}, OF_ARCHITECTURE["gemma"]], ids=["norms", "as it is"])
@pytest.mark.parametrize("name", ["baseline", "dp", "product", "unified"])
def test_maps_before_a_norm_of_the_architecture_move_as_predicted(name, fields, build, tokens):
    model = build(STRATEGIES[name], drawn=True, architecture="gemma", **fields)
    matrices = matrices_that_move_as_predicted(model, tokens)
    vectors = {matrix.kind for matrix in matrices if matrix.has_output_vector}
    shared = {"attention_shared", "feed_forward_shared", "head"}
    assert vectors == {"dp": shared, "unified": {"head"}}.get(name, set())


@pytest.mark.parametrize("name", ["baseline", "hg"])
def test_of_a_mixture_the_experts_and_what_shares_their_vector_are_left_out(name, build, tokens):
    experts = Experts(n_experts=3, top_k=2, feed_forward=8, dense_layers=1)
    matrices = matrices_that_move_as_predicted(build(STRATEGIES[name], drawn=True, experts=experts), tokens)
    kinds = {matrix.kind for matrix in matrices if matrix.layer == 1}
    assert ("router" in kinds) == (name == "hg")
    assert not kinds & {"gate", "up", "feed_forward_shared"}


@by_strategy
def test_decay_shrinks_as_said(name, build, tokens):
    model = build(STRATEGIES[name], drawn=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    factor = STRATEGIES[name].learning_rate_factor
    rates = {id(p): 1e-6 * 0.1 * (1.0 if p.dim() == 2 else factor) for p in model.parameters()}
    before = [
        (matrix, values.effective(), decay_direction(matrix, values, rates))
        for matrix in effective_matrices(model)
        for values in (matrix.values(),)
    ]
    step(model, 1e-6, decay=0.1)
    for matrix, V, lost in before:
        torch.testing.assert_close(V - matrix.values().effective(), lost, rtol=1e-4, atol=1e-13)


@pytest.mark.parametrize("name", ["baseline", "dp", "all-dual"])
def test_the_gradient_of_an_effective_matrix_is_that_of_the_folded_model(name, build, tokens):
    model = with_gradients(build(STRATEGIES[name], drawn=True), tokens)
    folded = with_gradients(fold(model), tokens)
    expected = {id(model.get_parameter(name)): p.grad for name, p in folded.named_parameters()}
    for matrix in effective_matrices(model):
        gradient = gradient_of_effective(matrix, matrix.values())
        stacked = torch.cat([expected[id(weight)] for weight in matrix.weights])
        torch.testing.assert_close(gradient, stacked, rtol=1e-10, atol=1e-13)


def test_a_gradient_that_a_zero_hides_counts_as_zero(build, tokens):
    model = build(PRESETS["baseline"])
    with torch.no_grad():
        model.blocks[0].attention.shared_vector.gain[2] = 0.0
    matrix = effective_matrices(with_gradients(model, tokens))[0]
    gradient = gradient_of_effective(matrix, matrix.values())
    assert torch.all(gradient[:, 2] == 0)
    assert torch.all(gradient.isfinite())


def dense(matrix: EffectiveMatrix, factor: float = 1.0) -> Tensor:
    """P as a matrix, by its products with the unit vectors."""
    values = matrix.values()
    units = torch.eye(values.weight.numel(), dtype=torch.float64)
    columns = [precondition(matrix, values, unit.view_as(values.weight), factor) for unit in units]
    return torch.stack([column.flatten() for column in columns])


@pytest.mark.parametrize("name", ["baseline", "dp", "er", "all-dual-or", "product", "faster-vectors"])
def test_eigenvalues_are_those_of_the_dense_preconditioner(name, build):
    strategy = STRATEGIES[name]
    factor = strategy.learning_rate_factor
    for matrix in effective_matrices(build(strategy, shape=MINI, drawn=True)):
        P = dense(matrix, factor)
        torch.testing.assert_close(P, P.T)
        exact = torch.linalg.eigvalsh(P)
        spectrum = eigenvalues(matrix, matrix.values(), factor)
        assert spectrum["max"] == pytest.approx(exact[-1].item(), rel=2e-3)
        assert spectrum["min"] <= exact[0].item() + 1e-12
        assert spectrum["median"] <= spectrum["max"]


def test_without_vectors_the_preconditioner_is_the_identity(build, tokens):
    for matrix in effective_matrices(with_gradients(build(PRESETS["none"]), tokens)):
        gradient = gradient_of_effective(matrix, matrix.values())
        assert torch.equal(precondition(matrix, matrix.values(), gradient), gradient)
        assert eigenvalues(matrix, matrix.values()) == {"min": 1.0, "median": 1.0, "max": 1.0}


@pytest.mark.parametrize("norm_gain", NORM_GAINS)
@pytest.mark.parametrize(
    "name", ["baseline", "hg", "dp", "or", "er", "product", "exponential-sum", "unified", "faster-vectors"]
)
def test_what_the_flow_conserves_changes_in_the_second_order_only(name, norm_gain, build, tokens):
    factor = STRATEGIES[name].learning_rate_factor
    changes = []
    for learning_rate in (1e-3, 1e-4):
        model = with_gradients(build(STRATEGIES[name], drawn=True, norm_gain=norm_gain), tokens)
        matrices = [matrix for matrix in effective_matrices(model) if matrix.input_vector is not None]
        before = [conserved(matrix, factor) for matrix in matrices]
        step(model, learning_rate)
        pairs = zip(matrices, before, strict=True)
        changes.append([(conserved(matrix, factor) - old).abs().max().item() for matrix, old in pairs])
    for coarse, fine in zip(*changes, strict=True):
        assert fine == pytest.approx(coarse / 100, rel=0.1)


def test_every_map_behind_a_norm_is_in_one_effective_matrix(build):
    shared = {(m.kind, m.layer): m for m in effective_matrices(build(PRESETS["baseline"]))}
    kinds = {"attention_shared", "feed_forward_shared"}
    assert set(shared) == {(kind, layer) for kind in kinds for layer in (0, 1)} | {("head", 0)}
    assert shared["attention_shared", 1].values().weight.shape == (16 + 8 + 8, 16)
    kinds = [m.kind for m in effective_matrices(build(PRESETS["hg"])) if m.layer == 1]
    assert kinds == ["query", "key", "value", "gate", "up"]
    of_some = [m.kind for m in effective_matrices(build(PRESETS["unified-attention"])) if m.layer == 1]
    assert of_some == ["query", "key", "value", "feed_forward_shared"]


def test_a_tied_head_is_left_out(build):
    kinds = {matrix.kind for matrix in effective_matrices(build(PRESETS["baseline"], tied=True))}
    assert "head" not in kinds
