"""Secrets in a sweep file, which is kept with its results and shown by reports: they are refused."""

import re
from collections.abc import Iterator
from itertools import pairwise

from scalevec.sweeps.errors import Path
from scalevec.sweeps.sections.schema import Sweep

SHORTEST = 6
"""Characters of a secret, as ``results.masking`` has it."""
_NAME = re.compile(r"SECRET|PASSW|CREDENTIAL|(^|[_.])((API|ACCESS|AUTH|PRIVATE)?KEY|(AUTH)?TOKEN|PASS)$")
"""Names of secrets, by whole words: ``api_key``, but no ``tokens`` and no ``monkey``."""
_IN_URL = re.compile(r"://[^/@\s]*:([^/@\s]+)@")
_NO_SECRET = re.compile(r"\{\w+\}|[<\[(/~.].*|[-+\d.eE]+")
"""A placeholder, a special token of a tokenizer, a path, a number."""
_INSTEAD = (
    "a sweep is kept with its results and shown by reports; let the trainer read an environment variable, "
    "which the profile's setup may export"
)


def secrets_in(sweep: Sweep) -> Iterator[tuple[Path, str]]:
    """Yield each field and word of a command that holds a secret; the message does not say which."""
    for name, kind in sweep.fields.items():
        if kind == "str" and is_secret(name):
            yield ("fields", name), f"is called like a secret: {_INSTEAD}, or give the field another name"
    for part in ("command", "resume"):
        words = (getattr(sweep.trainer, part) or ()) if sweep.trainer else ()
        for position, (before, word) in enumerate(pairwise(("", *words))):
            if option := _name_of_secret(before, word):
                yield ("trainer", part, position), f"holds a secret ({option}): {_INSTEAD}"


def is_secret(name: str) -> bool:
    """Whether what is called so is a secret: an option, a variable or a field."""
    return _NAME.search(name.lstrip("-").replace("-", "_").upper()) is not None


def _name_of_secret(before: str, word: str) -> str | None:
    """What the secret in ``word`` is called, after the word ``before``; None where there is none."""
    if (in_url := _IN_URL.search(word)) and not _NO_SECRET.fullmatch(in_url[1]):
        return "a password in a URL"
    name, sign, value = word.partition("=")
    if not sign:
        name, value = before if before.startswith("-") and "=" not in before else "", word
    is_value = len(value) >= SHORTEST and not value.startswith("-") and not _NO_SECRET.fullmatch(value)
    return name.lstrip("-") if is_value and is_secret(name) else None
