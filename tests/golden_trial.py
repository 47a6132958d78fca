"""The trial whose identity, and that of its neighbours, must never change."""

from dataclasses import replace
from typing import Any

from scalevec.model.config import ModelConfig, OptimizerConfig, ScheduleConfig, Shape, Trial
from scalevec.model.strategies import PRESETS

TRIAL = Trial(
    model=ModelConfig(Shape(32, 2, heads=2, kv_heads=2, feed_forward=88), vocabulary_size=1024),
    optimizer=OptimizerConfig(learning_rate=0.016),
    schedule=ScheduleConfig(warmup_tokens=31_744),
    corpus="c0" * 32,
    sequence_length=128,
    batch_tokens=1024,
    tokens=401_408,
    seed=0,
)


def of_model(**fields: Any) -> Trial:
    """The trial with other fields of its model."""
    return replace(TRIAL, model=replace(TRIAL.model, **fields))


def arm(name: str) -> Trial:
    return of_model(scale_vectors=PRESETS[name])
