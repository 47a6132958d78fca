"""The identity of a trial and of its trunk: hashes over the fields that decide its bits, and nothing else."""

import dataclasses
import hashlib
import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from scalevec.model.config import ModelConfig, Trial
from scalevec.model.fields import fields_of, from_dict, is_left_out, to_dict
from scalevec.model.optimization import SCHEDULES
from scalevec.model.schedules import learning_rate
from scalevec.model.strategies import ScaleVectorStrategy

T = TypeVar("T")

IDENTITY_VERSION = 3
"""3: OR, ER and the head's vector as arXiv 2605.26895 has them. What was kept under 1 and 2 is not read:
``or`` and ``er`` stood for other formulas."""

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def semantic_fields(trial: Trial) -> dict[str, Any]:
    """The fields that make ``trial`` what it is, as plain JSON values.

    The strategy is brought to its canonical form first, so that arms which train the same bits share
    one identity.
    """
    fields = to_dict(trial, identity=True)
    fields["model"]["scale_vectors"] = to_dict(
        _canonical(trial.model, trial.optimizer.weight_decay), identity=True
    )
    fields["stream"] = stream_of(trial)
    fields["identity_version"] = IDENTITY_VERSION
    return fields


_OUTSIDE_STREAMS = ("tokens", "seed", "stream", "identity_version")


def stream_of(trial: Trial) -> str:
    """What the random numbers of ``trial`` follow from (64 hex digits): as given, else of its own fields."""
    if trial.stream:
        return trial.stream
    return stream(stream_base(semantic_fields(replace(trial, stream="0" * 64))), trial.seed)


def stream_base(fields: Mapping[str, Any]) -> str:
    """What the streams of a cell have in common, whatever the seed: the digest of its semantic ``fields``.

    The token budget, the learning rate and the sources of plugins are left out, and of a schedule with a
    course of its own between warm-up and cooldown (:func:`trunk_id`) all but that and the warm-up: trials
    that differ in these alone share their streams.

    Args:
        fields: Plain values as from :func:`semantic_fields`, before the fields of an arm are applied; the
            schedule may hold ``warmup_fraction`` in place of ``warmup_tokens``.
    """
    kept, model = _without(fields, *_OUTSIDE_STREAMS), fields["model"]
    kept["model"] = {**model, "scale_vectors": _without(model["scale_vectors"], "plugin")}
    kept["optimizer"] = _without(kept["optimizer"], "learning_rate", "plugin")
    kept["schedule"] = _without(kept["schedule"], "plugin")
    registered = SCHEDULES.get(kept["schedule"]["name"])
    if registered is not None and registered.course is not None:
        warmup = {k: value for k, value in kept["schedule"].items() if k.startswith("warmup_")}
        kept["schedule"] = {"course": registered.course, **warmup}
    return digest(kept)


def _without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def stream(base: str, seed: int) -> str:
    """The stream of ``seed`` in a cell with this :func:`stream_base`."""
    return hashlib.sha256(f"{base}/{seed}".encode()).hexdigest()


def trial_id(trial: Trial) -> str:
    """SHA-256 (64 hex digits) of the canonical JSON of :func:`semantic_fields`.

    The text is put together from those of the trial's parts, which many trials of a plan share.
    """
    weight_decay = trial.optimizer.weight_decay
    texts = [f'"identity_version":{IDENTITY_VERSION}']
    for field in fields_of(type(trial)):
        value = stream_of(trial) if field.name == "stream" else getattr(trial, field.name)
        if not is_left_out(field, value):
            texts.append(f'"{field.name}":{_text(value, weight_decay)}')
    texts.sort()
    return hashlib.sha256(f"{{{','.join(texts)}}}".encode()).hexdigest()


def _text(value: Any, weight_decay: float) -> str:
    """The canonical JSON of one of a trial's fields."""
    if type(value) is int:
        return str(value)
    if type(value) is not str and dataclasses.is_dataclass(value):
        return _part_text(value, weight_decay)
    return _encode(value)


def _kept_on(part: Any, name: str, make: Callable[[], T]) -> T:
    """What ``make`` returns, made once for each ``part`` of a trial and kept on it.

    Many trials of a plan share a part, and parts that are equal may be written differently (1 and 1.0), so
    that equality would be the wrong key of a cache. Without this the ids of 96,000 trials take 7 s, not 1.
    """
    kept: dict[str, T] = vars(part)
    if name not in kept:
        kept[name] = make()
    return kept[name]


def _canonical(model: ModelConfig, weight_decay: float) -> ScaleVectorStrategy:
    name = f"_canonical_strategy_{weight_decay}"
    return _kept_on(model, name, lambda: model.canonical_strategy(weight_decay))


def _part_text(part: Any, weight_decay: float) -> str:
    """The canonical JSON of one of a trial's parts."""

    def make() -> str:
        fields = to_dict(part, identity=True)
        if isinstance(part, ModelConfig):
            fields["scale_vectors"] = to_dict(_canonical(part, weight_decay), identity=True)
        return _encode(fields)

    return _kept_on(part, f"_canonical_json_{weight_decay}", make)


def digest(fields: Any) -> str:
    """SHA-256 of ``fields`` as canonical JSON: sorted keys, no spaces, no NaN."""
    return hashlib.sha256(_encode(fields).encode()).hexdigest()


def trial_from_fields(fields: dict[str, Any]) -> Trial:
    """The trial that :func:`semantic_fields` described.

    Raises ``ConfigurationError`` for fields that this version does not know.
    """
    values = {name: value for name, value in fields.items() if name != "identity_version"}
    return from_dict(Trial, values)


_FAR = 1_000_000
"""A budget so many times as large cools down later, if at all."""


def trunk_id(trial: Trial) -> str | None:
    """SHA-256 of what decides the bits of ``trial`` before its cooldown; None where there is no such part.

    The identity of the trial without its tokens and without what only its cooldown uses.
    """
    course = trial.schedule.registered.course
    if course is None or branch_step(trial) == 0:
        return None
    fields = semantic_fields(trial)
    del fields["tokens"]
    return digest({**fields, "schedule": {"course": course, "warmup_tokens": trial.schedule.warmup_tokens}})


def branch_step(trial: Trial) -> int:
    """How many of the first steps of ``trial`` do not depend on its budget; 0 where it has no trunk.

    The schedule itself is asked, at this budget and at a far larger one. The last step, whose row of metrics
    is fuller, always counts as the trial's own.
    """
    if trial.schedule.registered.course is None:
        return 0
    longer = replace(trial, tokens=trial.tokens * _FAR)

    def depends(step: int) -> bool:
        return learning_rate(trial, step) != learning_rate(longer, step)

    return bisect_left(range(trial.steps - 1), True, key=depends)
