"""The words of a trainer's command: their placeholders, and what they are for one trial."""

import string
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from scalevec.model.fields import ConfigurationError
from scalevec.sweeps.trainers.any_trial import OF_AN_ATTEMPT

OF_A_BUDGET = ("tokens", "n_params", "steps")
"""Placeholders that every trial has; ``steps`` where a ``batch_tokens`` is given."""
_TRIED: dict[str, Any] = dict.fromkeys(OF_AN_ATTEMPT, 0) | dict.fromkeys(
    ("python", "out", "trial_json", "master"), ""
)
"""Values with which words are tried before there is an attempt."""


@cache
def placeholders_of(word: str) -> tuple[str, ...]:
    """The names in braces of ``word``. Raises ``ConfigurationError`` where it is no such text."""
    try:
        parts = list(string.Formatter().parse(word))
    except ValueError:
        raise ConfigurationError(
            "command", word, "text with placeholders such as {seed}; {{ for a brace"
        ) from None
    names = []
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if not name.isidentifier() or conversion or "{" in (form or ""):
            raise ConfigurationError("command", word, "placeholders such as {seed} or {learning_rate:.6g}")
        names.append(name)
    return tuple(names)


def names_in(words: Iterable[str]) -> list[str]:
    """The placeholders of ``words``, each once. Raises ``ConfigurationError``."""
    return list(dict.fromkeys(name for word in words for name in placeholders_of(word)))


def known_before(words: Iterable[str], known: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of ``words`` that name nothing of an attempt, filled in from what is ``known`` of the trial.

    Raises ``ConfigurationError`` for any of the words that could not be filled in then.
    """
    tried = [(_filled(word, {**_TRIED, **known}), placeholders_of(word)) for word in words]
    return tuple(text for text, names in tried if not set(names) & set(OF_AN_ATTEMPT))


def _filled(word: str, known: Mapping[str, Any]) -> str:
    for name in placeholders_of(word):
        if name not in known:
            raise ConfigurationError("command", word, f"fields that the trial has; {name} has no value here")
    try:
        return word.format(**known)
    except (ValueError, TypeError) as error:
        raise ConfigurationError("command", word, f"formats that fit their values ({error})") from None
