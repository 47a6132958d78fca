"""The identity of a trial: a hash over the fields that decide its bits, and nothing else."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any, TypeVar

from model.config import ModelConfig, Trial
from model.fields import fields_of, from_dict, is_left_out, to_dict
from model.strategies import ScaleVectorStrategy

T = TypeVar("T")

IDENTITY_VERSION = 1
SHOWN_DIGITS = 12

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_MOST_PARTS = 100_000


def semantic_fields(trial: Trial) -> dict[str, Any]:
    """The fields that make ``trial`` what it is, as plain JSON values.

    The strategy is brought to its canonical form first, so that arms which train the same bits share
    one identity.
    """
    fields = to_dict(trial, identity=True)
    strategy = _canonical(trial.model, _decays_anything(trial))
    fields["model"]["scale_vectors"] = to_dict(strategy, identity=True)
    fields["identity_version"] = IDENTITY_VERSION
    return fields


def trial_id(trial: Trial) -> str:
    """SHA-256 (64 hex digits) of the canonical JSON of :func:`semantic_fields`.

    The text is put together from those of the trial's parts, which many trials of a plan share.
    """
    decays = _decays_anything(trial)
    texts = [f'"identity_version":{IDENTITY_VERSION}']
    for field in fields_of(type(trial)):
        value = getattr(trial, field.name)
        if not is_left_out(field, value):
            texts.append(f'"{field.name}":{_text(value, decays)}')
    texts.sort()
    return hashlib.sha256(f"{{{','.join(texts)}}}".encode()).hexdigest()


def _text(value: Any, decays_anything: bool) -> str:
    """The canonical JSON of one of a trial's fields."""
    if type(value) is int:
        return str(value)
    if type(value) is not str and dataclasses.is_dataclass(value):
        return _part_text(value, decays_anything)
    return _encode(value)


def _decays_anything(trial: Trial) -> bool:
    return trial.optimizer.weight_decay > 0


def _once_a_part(make: Callable[[Any, bool], T]) -> Callable[[Any, bool], T]:
    """Remembers what ``make`` made of a part that many trials share, by the part's place in memory.

    Parts that are equal may be written differently (1 and 1.0), so equality would be the wrong key. A part is
    kept beside what was made of it, so that no other takes its place.
    """
    made: dict[tuple[int, bool], tuple[Any, T]] = {}

    def of(part: Any, decays_anything: bool) -> T:
        key = (id(part), decays_anything)
        if key not in made:
            if len(made) >= _MOST_PARTS:
                made.clear()
            made[key] = (part, make(part, decays_anything))
        return made[key][1]

    return of


@_once_a_part
def _canonical(model: ModelConfig, decays_anything: bool) -> ScaleVectorStrategy:
    return model.canonical_strategy(decays_anything)


@_once_a_part
def _part_text(part: Any, decays_anything: bool) -> str:
    """The canonical JSON of one of a trial's parts."""
    fields = to_dict(part, identity=True)
    if isinstance(part, ModelConfig):
        fields["scale_vectors"] = to_dict(_canonical(part, decays_anything), identity=True)
    return _encode(fields)


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
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted(first.keys() | second.keys()):
        one, other = first.get(name), second.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            found |= differences(one, other, f"{prefix}{name}.")
        elif one != other:
            found[prefix + name] = (one, other)
    return found
