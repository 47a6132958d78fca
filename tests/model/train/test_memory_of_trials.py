"""The memory that a plan tells is what the allocator gives: of whole trials, evaluation and all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allocations import allocations
from scalevec.model.config import (
    OF_ARCHITECTURE,
    OPTIMIZERS,
    PRECISIONS,
    Experts,
    ModelConfig,
    OptimizerConfig,
    RunOptions,
    ScheduleConfig,
    Shape,
    Trial,
)
from scalevec.model.data.corpus import Corpus
from scalevec.model.estimate import memory_of
from scalevec.model.strategies import PRESETS
from scalevec.model.train.loop import train
from support import MemoryRecorder

SHAPE = Shape(width=96, layers=3, heads=4, kv_heads=4, feed_forward=256)
PROMISED = 0.1
"""How far a plan may be from what is measured."""


@pytest.fixture
def held(trial: Trial, corpus: Corpus, tmp_path: Path) -> Any:
    """(measured, planned, told by the result) bytes of two steps and the evaluation of a trial on the CPU."""

    def of(optimizer: str = "adamw", precision: str = "float32", options: Any = None, **model: Any) -> Any:
        options = options or RunOptions()
        changed = replace(
            trial,
            model=ModelConfig(**{"shape": SHAPE, "vocabulary_size": 256, **model}),
            optimizer=OptimizerConfig(optimizer),
            schedule=ScheduleConfig(),
            batch_tokens=16 * trial.sequence_length,
            tokens=32 * trial.sequence_length,
            evaluation_tokens=64 * trial.sequence_length,
            precision=precision,
        )
        results = []
        measured = allocations(
            lambda: results.append(train(changed, corpus, options, MemoryRecorder(), tmp_path))
        )
        memory = memory_of(changed, options)
        return measured.peak, memory.arrays - memory.copy, results[0]["allocated_bytes"]

    return of


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_under_every_optimizer(optimizer: str, held: Any) -> None:
    measured, planned, told = held(optimizer)
    assert planned == pytest.approx(measured, rel=PROMISED)
    assert told == pytest.approx(measured, rel=PROMISED)


@pytest.mark.parametrize(
    ("preset", "architecture", "precision"),
    [
        *(("unified", "llama", precision) for precision in PRECISIONS),
        ("unified", "gemma", "bfloat16"),
        ("baseline", "gemma", "float32"),
    ],
)
def test_of_architectures_and_strategies(preset: str, architecture: str, precision: str, held: Any) -> None:
    fields = OF_ARCHITECTURE[architecture]
    model = {"scale_vectors": PRESETS[preset], "architecture": architecture, **fields}
    measured, planned, told = held(precision=precision, **model)
    assert planned == pytest.approx(measured, rel=PROMISED)
    assert told == pytest.approx(measured, rel=PROMISED)


def test_in_micro_batches(held: Any) -> None:
    measured, planned, _ = held(options=RunOptions(micro_batch=4))
    assert planned == pytest.approx(measured, rel=PROMISED)


@pytest.mark.parametrize("micro_batch", [0, 4])
def test_with_recomputed_blocks(micro_batch: int, held: Any) -> None:
    measured, planned, _ = held(options=RunOptions(micro_batch=micro_batch, recompute="block"))
    assert planned == pytest.approx(measured, rel=PROMISED)
    assert planned < 0.9 * held(options=RunOptions(micro_batch=micro_batch))[1]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_of_a_mixture(optimizer: str, held: Any) -> None:
    experts = Experts(4, 2, 128, over="mean", per="batch")
    measured, planned, _ = held(optimizer, experts=experts)
    assert planned == pytest.approx(measured, rel=PROMISED)


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["preconditioner", "sharpness"])
def test_with_measurements_the_plan_is_a_rough_figure(measure: str, held: Any) -> None:
    measured, planned, _ = held(options=RunOptions(measure=(measure,), measure_steps=2, micro_batch=8))
    assert measured == pytest.approx(planned, rel=0.4)
