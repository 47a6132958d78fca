"""What the streams of a cell follow from: its fields before those of an arm are applied."""

from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

from scalevec.model.config import (
    ConfigurationError,
    Experts,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    Shape,
    Trial,
)
from scalevec.model.fields import fields_of, is_left_out, to_dict
from scalevec.model.identity import stream_base
from scalevec.sweeps.expansion.trials import CorpusFacts, grouped
from scalevec.sweeps.fields import DEFAULT_BATCH_SEQUENCES, DEFAULT_WARMUP_FRACTION, WARMUP_FRACTION


def base_of(shape: Shape, experts: Experts | None, corpus: CorpusFacts, values: Mapping[str, Any]) -> str:
    """The base of the streams of the flat ``values``, whatever the arm, the seed and the token budget.

    Values that only an arm makes whole (options of an optimizer that each arm names) count as they are.
    """
    groups = grouped(values)
    of_shape = {"shape": shape, "vocabulary_size": corpus.vocabulary_size, "experts": experts}
    optimizer = _plain(OptimizerConfig, groups["optimizer"])
    of_trial = {"corpus": corpus.fingerprint, **groups[""]}
    of_trial.setdefault("batch_tokens", DEFAULT_BATCH_SEQUENCES * values["sequence_length"])
    return stream_base(
        {
            **_defaults(Trial),
            **of_trial,
            "model": _model(of_shape | groups["model"], weight_decay=optimizer["weight_decay"]),
            "optimizer": optimizer,
            "schedule": _schedule(groups["schedule"], values),
        }
    )


def _model(given: dict[str, Any], *, weight_decay: float) -> dict[str, Any]:
    model = _plain(ModelConfig, given)
    try:
        strategy = ModelConfig(**given).canonical_strategy(weight_decay)
    except ConfigurationError:
        return model
    return {**model, "scale_vectors": to_dict(strategy, identity=True)}


def _schedule(given: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The schedule; a warm-up that is a share of the budget stays one, so that budgets share the stream."""
    if "warmup_tokens" in given:
        return _plain(ScheduleConfig, given)
    schedule = _plain(ScheduleConfig, {**given, "warmup_tokens": 1})
    del schedule["warmup_tokens"]
    return schedule | {WARMUP_FRACTION: values.get(WARMUP_FRACTION, DEFAULT_WARMUP_FRACTION)}


def _plain(kind: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    """The part of a trial with the values ``given`` and its defaults, as plain values."""
    try:
        return to_dict(kind(**given), identity=True)
    except ConfigurationError:
        return _defaults(kind) | {name: _as_plain(value) for name, value in given.items()}


def _as_plain(value: Any) -> Any:
    return to_dict(value, identity=True) if hasattr(value, "__dataclass_fields__") else value


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """The fields of ``kind`` that need not be given, but for later ones, at their defaults."""
    with_default = (field for field in fields_of(kind) if field.default is not MISSING)
    defaults = {field.name: field.default for field in with_default if not is_left_out(field, field.default)}
    factories = {field.name: field.default_factory for field in fields_of(kind)}
    return defaults | {name: _as_plain(make()) for name, make in factories.items() if make is not MISSING}
