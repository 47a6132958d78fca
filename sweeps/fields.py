"""The trial fields that a sweep file may set: one table from flat names to their place in a trial."""

import types
import typing
from dataclasses import fields as dataclass_fields
from typing import Any

from model.config import ARCHITECTURES, PRECISIONS, Trial
from model.optimization import OPTIMIZERS, OPTION_CHOICES, SCHEDULES, OptimizerConfig, ScheduleConfig
from model.strategies import (
    BRANCHES,
    EXPERT_VECTORS,
    PLACEMENTS,
    PRESETS,
    REPARAMETERIZATIONS,
    ROLES,
    ROUTER_VECTORS,
    WEIGHT_DECAYS,
    ScaleVectorStrategy,
)


def _fields_of(part: str, config: type[Any]) -> dict[str, str]:
    """The fields of an optimizer or a schedule under their own names, its name under that of the part."""
    own = [field.name for field in dataclass_fields(config)]
    return {part if name == "name" else name: f"{part}.{name}" for name in own}


TRIAL_FIELDS: dict[str, str] = {
    **_fields_of("optimizer", OptimizerConfig),
    **_fields_of("schedule", ScheduleConfig),
    "batch_tokens": "batch_tokens",
    "sequence_length": "sequence_length",
    "precision": "precision",
    "architecture": "model.architecture",
    "scale_vectors": "model.scale_vectors",
    "tied_embeddings": "model.tied_embeddings",
    "norm_epsilon": "model.norm_epsilon",
    "rope_base": "model.rope_base",
}
"""Flat name in the sweep file -> place in :class:`model.config.Trial`. A new option of an optimizer or a
schedule is in here by itself; any other new field is one line."""

WARMUP_FRACTION = "warmup_fraction"
"""Of the trial's tokens; the one field that a trial holds in another form (``warmup_tokens``)."""
DEFAULT_WARMUP_FRACTION = 0.08
DEFAULT_BATCH_SEQUENCES = 8

FIELD_CHOICES: dict[str, tuple[str, ...]] = {
    "optimizer": tuple(OPTIMIZERS),
    "schedule": tuple(SCHEDULES),
    "precision": PRECISIONS,
    "architecture": ARCHITECTURES,
    **OPTION_CHOICES,
}
"""What the fields with names may hold, for the JSON Schema (the dataclasses check it)."""
STRATEGY_CHOICES: dict[str, tuple[str, ...]] = {
    "preset": tuple(PRESETS),
    "branches": BRANCHES,
    "placement": PLACEMENTS,
    "reparameterization": REPARAMETERIZATIONS,
    "weight_decay": WEIGHT_DECAYS,
    "dual_output_role": ROLES,
    "experts": EXPERT_VECTORS,
    "router": ROUTER_VECTORS,
}


def _type_at(place: str) -> Any:
    """The type of the field at ``place``; of one that may be None, what it is otherwise."""
    found: Any = Trial
    for name in place.split("."):
        found = typing.get_type_hints(found)[name]
    return typing.get_args(found)[0] if isinstance(found, types.UnionType) else found


FIELD_TYPES: dict[str, Any] = {
    **{name: _type_at(place) for name, place in TRIAL_FIELDS.items()},
    WARMUP_FRACTION: float,
}
NUMERIC_FIELDS: tuple[str, ...] = tuple(name for name, kind in FIELD_TYPES.items() if kind in (int, float))
STRATEGY_TYPES: dict[str, Any] = {
    field.name: typing.get_type_hints(ScaleVectorStrategy)[field.name]
    for field in dataclass_fields(ScaleVectorStrategy)
}


def place_of(field: str) -> str:
    """The dotted place in a trial that the flat ``field`` of a sweep file decides."""
    return TRIAL_FIELDS["warmup_tokens" if field == WARMUP_FRACTION else field]
