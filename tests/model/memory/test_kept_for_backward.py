"""The bytes that a plan counts for the backward pass are those that autograd keeps."""

from dataclasses import replace

import pytest

from allocations import WIDTHS, kept_for_backward
from scalevec.model.config import (
    OF_ARCHITECTURE,
    Experts,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    Shape,
    Trial,
)
from scalevec.model.memory.passes import MicroBatch, recorded
from scalevec.model.strategies import PRESETS

SHAPE = Shape(width=64, layers=2, heads=4, kv_heads=2, feed_forward=176)
DENSE = Trial(
    model=ModelConfig(SHAPE, vocabulary_size=100),
    optimizer=OptimizerConfig(),
    schedule=ScheduleConfig(),
    corpus="c0" * 32,
    sequence_length=40,
    batch_tokens=120,
    tokens=120,
    seed=0,
)
ROUNDING = 0.003
"""Of the whole: counts of tokens by expert, and the like."""


def counted(trial: Trial) -> float:
    micro = MicroBatch(trial.batch_tokens, trial.sequence_length, WIDTHS[trial.precision])
    return recorded(trial.model, micro).saved()


@pytest.mark.parametrize("precision", WIDTHS)
@pytest.mark.parametrize("preset", ["none", "baseline", "or", "unified"])
def test_of_a_gemma_as_it_is(preset: str, precision: str) -> None:
    model = replace(
        DENSE.model, scale_vectors=PRESETS[preset], architecture="gemma", **OF_ARCHITECTURE["gemma"]
    )
    trial = replace(DENSE, model=model, precision=precision)
    assert counted(trial) == pytest.approx(kept_for_backward(trial), rel=ROUNDING)


@pytest.mark.parametrize("precision", WIDTHS)
@pytest.mark.parametrize("architecture", ["llama", "gemma"])
@pytest.mark.parametrize("preset", PRESETS)
def test_of_a_dense_model(preset: str, architecture: str, precision: str) -> None:
    model = replace(DENSE.model, scale_vectors=PRESETS[preset], architecture=architecture)
    trial = replace(DENSE, model=model, precision=precision)
    assert counted(trial) == pytest.approx(kept_for_backward(trial), rel=ROUNDING)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_with_other_heads_and_embeddings(kv_heads: int, tied: bool) -> None:
    shape = replace(SHAPE, kv_heads=kv_heads)
    trial = replace(DENSE, model=replace(DENSE.model, shape=shape, tied_embeddings=tied))
    assert counted(trial) == pytest.approx(kept_for_backward(trial), rel=ROUNDING)


@pytest.mark.parametrize(
    "changes",
    [
        {"normalize_per_head": False},
        {"dual_maps": ("query", "output", "down")},
        {"dual_maps": ("value", "up"), "branches": "none"},
        {"dual_maps": ("output", "down"), "placement": "dual"},
        {"heterogeneous_maps": ("value",)},
        {"heads": "shared"},
        {"heads": "shared", "placement": "dual", "heterogeneous_maps": ("gate", "up")},
    ],
    ids=str,
)
@pytest.mark.parametrize("architecture", ["llama", "gemma"])
def test_with_other_strategies(changes: dict[str, object], architecture: str) -> None:
    strategy = replace(PRESETS["unified"], **changes)  # type: ignore[arg-type]
    trial = replace(DENSE, model=replace(DENSE.model, scale_vectors=strategy, architecture=architecture))
    assert counted(trial) == pytest.approx(kept_for_backward(trial), rel=ROUNDING)


@pytest.mark.parametrize("precision", WIDTHS)
@pytest.mark.parametrize("vectors", ["shared", "own", "none"])
@pytest.mark.parametrize("preset", ["none", "baseline", "unified", "unified-light", "unified-attention"])
@pytest.mark.parametrize(
    "experts",
    [
        Experts(4, 2, 88),
        Experts(4, 2, 88, over="mean", per="batch"),
        Experts(4, 1, 88, shared_experts=1, balancing="bias"),
        Experts(4, 2, 88, dense_layers=1, balancing="none"),
    ],
    ids=["of two", "balanced over batches", "shared", "behind dense"],
)
def test_of_a_mixture(experts: Experts, preset: str, vectors: str, precision: str) -> None:
    strategy = replace(PRESETS[preset], experts=vectors)
    shape = replace(SHAPE, feed_forward=experts.active_hidden)
    model = ModelConfig(shape, 100, strategy, "gemma" if vectors == "own" else "llama", experts=experts)
    trial = replace(DENSE, model=model, precision=precision)
    assert counted(trial) == pytest.approx(kept_for_backward(trial), rel=ROUNDING)
