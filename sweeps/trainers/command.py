"""The words of a trainer's command: their placeholders, and what they are for one trial."""

import string
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from scalevec.model.fields import ConfigurationError
from scalevec.sweeps.trainers.foreign_trial import OF_AN_ATTEMPT

OF_A_BUDGET = ("tokens", "n_params", "steps")
"""Placeholders that every trial has; ``steps`` where a ``batch_tokens`` is given."""


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


def filled(words: Iterable[str], known: Mapping[str, Any]) -> tuple[str, ...]:
    """``words`` with their placeholders filled in. Raises ``ConfigurationError`` for an unknown one."""
    return tuple(_filled(word, known) for word in words)


def _filled(word: str, known: Mapping[str, Any]) -> str:
    for name in placeholders_of(word):
        if name not in known:
            raise ConfigurationError("command", word, f"fields that the trial has; {name} has no value here")
    try:
        return word.format(**known)
    except (ValueError, TypeError) as error:
        raise ConfigurationError("command", word, f"formats that fit their values ({error})") from None


def known_before(words: Iterable[str], known: Mapping[str, Any]) -> Iterator[str]:
    """Yield those of ``words`` that name nothing of an attempt, filled in."""
    for word in words:
        if not set(placeholders_of(word)) & set(OF_AN_ATTEMPT):
            yield _filled(word, known)
