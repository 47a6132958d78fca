"""The trial fields that a sweep file may set: one table from flat names to their place in a trial."""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from typing import Any

from scalevec.model.config import (
    ACTIVATIONS,
    ARCHITECTURES,
    ATTENTIONS,
    EMBEDDING_SCALES,
    NORM_GAINS,
    PRECISIONS,
    Trial,
)
from scalevec.model.optimization import OPTIMIZERS, OPTIONS, SCHEDULES, OptimizerConfig, ScheduleConfig
from scalevec.model.strategies import CHOICES, MAP_CHOICES, PRESETS, ScaleVectorStrategy


def _fields_of(part: str, config: type[Any], registry: Mapping[str, Any]) -> dict[str, str]:
    """The fields of an optimizer or a schedule under their own names, its name under that of the part.

    Options that the dataclass has no field for are in its ``options``.
    """
    names = [field.name for field in dataclass_fields(config) if field.name not in ("plugin", "options")]
    others = [name for entry in registry.values() for name in entry.options if name not in names]
    places = {part if name == "name" else name: f"{part}.{name}" for name in names}
    return places | {name: f"{part}.options.{name}" for name in others}


TRIAL_FIELDS: dict[str, str] = {
    **_fields_of("optimizer", OptimizerConfig, OPTIMIZERS),
    **_fields_of("schedule", ScheduleConfig, SCHEDULES),
    "batch_tokens": "batch_tokens",
    "sequence_length": "sequence_length",
    "precision": "precision",
    "evaluation_tokens": "evaluation_tokens",
    "architecture": "model.architecture",
    "scale_vectors": "model.scale_vectors",
    "tied_embeddings": "model.tied_embeddings",
    "norm_epsilon": "model.norm_epsilon",
    "rope_base": "model.rope_base",
    "embedding_scale": "model.embedding_scale",
    "norm_gain": "model.norm_gain",
    "activation": "model.activation",
    "attention": "model.attention",
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
    "embedding_scale": EMBEDDING_SCALES,
    "norm_gain": NORM_GAINS,
    "activation": ACTIVATIONS,
    "attention": tuple(ATTENTIONS),
    **{name: spec.choices for name, spec in OPTIONS.items() if spec.choices},
}
"""What the fields with names may hold, for the JSON Schema (the dataclasses check it)."""
STRATEGY_CHOICES: dict[str, tuple[str, ...]] = {"preset": tuple(PRESETS), **CHOICES, **MAP_CHOICES}


def _type_at(path: str) -> Any:
    """The type of the field at ``path``; of one that may be None, what it is otherwise."""
    kind: Any = Trial
    for name in path.split("."):
        kind = typing.get_type_hints(kind)[name]
    return _given(kind)


def _given(kind: Any) -> Any:
    """Of what may be None, what it is otherwise."""
    return typing.get_args(kind)[0] if isinstance(kind, types.UnionType) else kind


FIELD_TYPES: dict[str, Any] = {
    **{
        name: type(OPTIONS[name].default) if name in OPTIONS else _type_at(path)
        for name, path in TRIAL_FIELDS.items()
    },
    WARMUP_FRACTION: float,
}
"""These tables grow by the options of plugins (``sweeps.plugins``)."""
STRATEGY_TYPES: dict[str, Any] = {
    field.name: _given(typing.get_type_hints(ScaleVectorStrategy)[field.name])
    for field in dataclass_fields(ScaleVectorStrategy)
    if field.name != "plugin"
}
OF_STRATEGY = "scale_vectors."


def numeric_fields() -> dict[str, type]:
    """The fields that are numbers, with their types."""
    return {name: kind for name, kind in FIELD_TYPES.items() if kind in (int, float)}


def tunable_fields() -> dict[str, type]:
    """The fields that can be tuned: numbers of a trial, and of its strategy as ``scale_vectors.NAME``."""
    of_strategy = {OF_STRATEGY + name: kind for name, kind in STRATEGY_TYPES.items() if kind is float}
    return numeric_fields() | of_strategy


def place_of(field: str) -> str:
    """The dotted place in a trial that the flat ``field`` of a sweep file decides."""
    if field.startswith(OF_STRATEGY):
        return f"model.{field}"
    return TRIAL_FIELDS["warmup_tokens" if field == WARMUP_FRACTION else field]


FIELD_HELP: dict[str, str] = {
    "optimizer": "Name of the optimizer.",
    "learning_rate": "Peak of the schedule.",
    "weight_decay": "Decay of the matrices, as p <- p (1 - learning_rate * weight_decay) per step.",
    "clip_norm": "Largest norm of the gradient; larger gradients are scaled down to it.",
    "schedule": "Name of the learning-rate schedule.",
    "warmup_tokens": "Tokens over which the rate rises linearly to its peak.",
    WARMUP_FRACTION: "Share of the trial's tokens over which the rate rises to its peak (default 0.08).",
    "batch_tokens": "Tokens per optimizer step; 8 sequences where it is not given.",
    "sequence_length": "Tokens per sequence, where it is not the corpus's.",
    "precision": "Number format of the matrix products, and of the residual stream (else float32).",
    "evaluation_tokens": "Tokens of each held-out split that the losses are taken on, at most; 0: all.",
    "architecture": "Where norms are; gemma means Gemma's embedding scale, gains and activation too.",
    "scale_vectors": "Scale-vector strategy: a preset's name, or fields that change one.",
    "tied_embeddings": "Whether the output layer shares the embedding's weights.",
    "norm_epsilon": "Added to the mean square in every norm.",
    "rope_base": "Base of the rotary position embedding.",
    "embedding_scale": "What the embedding is multiplied by; none, for gemma sqrt-width.",
    "norm_gain": "How scale vectors are stored: g decays to 0, 1+w to 1; for gemma 1+w.",
    "activation": "Of the gated units; swiglu, for gemma geglu (GELU by its tanh formula).",
    "attention": "Which attention; full is causal softmax attention over the whole sequence.",
    **{name: spec.help for name, spec in OPTIONS.items()},
}
"""What each field means, in one sentence, for the JSON Schema."""
STRATEGY_HELP: dict[str, str] = {
    "preset": "Named strategy that the other fields change; baseline where none is named.",
    "branches": "Whether maps that read one normalized input share its vector or have one each.",
    "heterogeneous_maps": "Maps that heterogeneous branches give an own vector; the others share one.",
    "placement": "Whether vectors scale the inputs of maps or their outputs too, behind a norm or not.",
    "dual_maps": "Maps that dual placement gives an output vector, the head among them.",
    "normalize_per_head": "Whether dual-normalized placement normalizes queries, keys and values per head.",
    "normalize_head": "Whether dual-normalized placement normalizes the logits over the vocabulary.",
    "reparameterization": "How a vector is written as a scalar and a direction.",
    "magnitudes": "Whether output vectors of queries, keys and values have a magnitude for each head.",
    "weight_decay": "Which vectors decay.",
    "vector_weight_decay": "Decay of the vectors that decay; the optimizer's weight_decay if not given.",
    "decay_direction": "Whether the direction of a reparameterized vector decays, or its magnitude alone.",
    "heads": "Whether each head has its own entries of an output vector or all heads share them.",
    "input_role_maps": "Maps whose output vectors decay as input-norm vectors.",
    "learning_rate_factor": "Learning rate of the vectors over that of the matrices.",
    "experts": "Vectors of routed experts: shared by all, one each, or none.",
    "router": "Whether the router reads the normalized input as a branch with vectors, or as it is.",
}

NO_OPTIONS_OF_ANALYSIS = ("reference", "predict")
"""What the section ``compare`` holds beside options of an analysis."""


def analysis_options(compare: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the section ``compare``, given or resolved, says of ``analysis.AnalysisOptions``."""
    return {name: value for name, value in compare.items() if name not in NO_OPTIONS_OF_ANALYSIS}
