"""The identity of a trial: a hash over the fields that decide its bits, and nothing else."""

import hashlib
import json
from typing import Any

from model.config import Trial
from model.fields import from_dict, to_dict

IDENTITY_VERSION = 1
SHOWN_DIGITS = 12


def semantic_fields(trial: Trial) -> dict[str, Any]:
    """The fields that make ``trial`` what it is, as plain JSON values.

    The strategy is brought to its canonical form first, so that arms which train the same bits share
    one identity.
    """
    fields = to_dict(trial, identity=True)
    fields["model"]["scale_vectors"] = to_dict(trial.canonical_strategy, identity=True)
    fields["identity_version"] = IDENTITY_VERSION
    return fields


def trial_id(trial: Trial) -> str:
    """SHA-256 (64 hex digits) of the canonical JSON of :func:`semantic_fields`."""
    return digest(semantic_fields(trial))


def digest(fields: Any) -> str:
    """SHA-256 of ``fields`` as canonical JSON: sorted keys, no spaces, no NaN."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


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
