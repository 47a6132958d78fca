"""The identity of a trial: a hash over the fields that decide its bits, and nothing else."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any, TypeVar

from scalevec.model.config import ModelConfig, Trial
from scalevec.model.fields import fields_of, from_dict, is_left_out, to_dict
from scalevec.model.strategies import ScaleVectorStrategy

T = TypeVar("T")

IDENTITY_VERSION = 1

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def semantic_fields(trial: Trial) -> dict[str, Any]:
    """The fields that make ``trial`` what it is, as plain JSON values.

    The strategy is brought to its canonical form first, so that arms which train the same bits share
    one identity.
    """
    fields = to_dict(trial, identity=True)
    fields["model"]["scale_vectors"] = to_dict(
        _canonical(trial.model, trial.optimizer.weight_decay > 0), identity=True
    )
    fields["identity_version"] = IDENTITY_VERSION
    return fields


def trial_id(trial: Trial) -> str:
    """SHA-256 (64 hex digits) of the canonical JSON of :func:`semantic_fields`.

    The text is put together from those of the trial's parts, which many trials of a plan share.
    """
    decays_anything = trial.optimizer.weight_decay > 0
    texts = [f'"identity_version":{IDENTITY_VERSION}']
    for field in fields_of(type(trial)):
        value = getattr(trial, field.name)
        if not is_left_out(field, value):
            texts.append(f'"{field.name}":{_text(value, decays_anything)}')
    texts.sort()
    return hashlib.sha256(f"{{{','.join(texts)}}}".encode()).hexdigest()


def _text(value: Any, decays_anything: bool) -> str:
    """The canonical JSON of one of a trial's fields."""
    if type(value) is int:
        return str(value)
    if type(value) is not str and dataclasses.is_dataclass(value):
        return _part_text(value, decays_anything)
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


def _canonical(model: ModelConfig, decays_anything: bool) -> ScaleVectorStrategy:
    name = f"_canonical_strategy_{decays_anything}"
    return _kept_on(model, name, lambda: model.canonical_strategy(decays_anything))


def _part_text(part: Any, decays_anything: bool) -> str:
    """The canonical JSON of one of a trial's parts."""

    def make() -> str:
        fields = to_dict(part, identity=True)
        if isinstance(part, ModelConfig):
            fields["scale_vectors"] = to_dict(_canonical(part, decays_anything), identity=True)
        return _encode(fields)

    return _kept_on(part, f"_canonical_json_{decays_anything}", make)


def digest(fields: Any) -> str:
    """SHA-256 of ``fields`` as canonical JSON: sorted keys, no spaces, no NaN."""
    return hashlib.sha256(_encode(fields).encode()).hexdigest()


def trial_from_fields(fields: dict[str, Any]) -> Trial:
    """The trial that :func:`semantic_fields` described.

    Raises ``ConfigurationError`` for fields that this version does not know.
    """
    values = {name: value for name, value in fields.items() if name != "identity_version"}
    return from_dict(Trial, values)


def differences(
    first: dict[str, Any], second: dict[str, Any], prefix: str = ""
) -> dict[str, tuple[Any, Any]]:
    """The fields (dotted names) in which two trials differ, each with both values."""
    differing: dict[str, tuple[Any, Any]] = {}
    for name in sorted(first.keys() | second.keys()):
        before, after = first.get(name), second.get(name)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            differing |= differences(before, after, f"{prefix}{name}.")
        else:
            differing[prefix + name] = (before, after)
    return differing
