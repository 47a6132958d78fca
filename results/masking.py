"""Values of secret environment variables, which are kept out of whatever is printed and kept."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

HIDDEN = "***"
SHORTEST = 6
"""Characters; a shorter value would hide ordinary words."""
_SECRET = re.compile(r"SECRET|PASSW|CREDENTIAL|(KEY|TOKEN|PASS)$")


def masked(text: str, variables: Mapping[str, str] | None = None) -> str:
    """``text`` without the values of variables that are named like keys, tokens, secrets and passwords."""
    named = (os.environ if variables is None else variables).items()
    values = [value for name, value in named if _is_secret(name) and len(value) >= SHORTEST]
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


@cache
def _is_secret(name: str) -> bool:
    return _SECRET.search(name.upper()) is not None


def masked_values(record: Any) -> Any:
    """``record`` of plain values with every text in it masked."""
    if isinstance(record, str):
        return masked(record)
    if isinstance(record, Mapping):
        return {name: masked_values(value) for name, value in record.items()}
    return [masked_values(value) for value in record] if isinstance(record, list | tuple) else record


class MaskedStream:
    """A text stream that masks what is written; a value cut in two by separate writes is not seen.

    What a full disk, or a file server that is away, does not take is lost: a log is not worth a training.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write ``text``, masked; returns its length."""
        with suppress(OSError):
            self._stream.write(masked(text))
        return len(text)

    def flush(self) -> None:
        """Pass on what was written."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        """What the stream itself has."""
        return getattr(self._stream, name)
