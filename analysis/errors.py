"""The error of everything in ``analysis``, and the words in which it lists what is allowed."""

import difflib
from collections.abc import Iterable


class DataError(ValueError):
    """The table or an option cannot be used; one message says what, where, the value and what is allowed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown ``name``: the nearest known one, or all of them."""
    names = sorted(str(candidate) for candidate in known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"nearest: {close[0]!r}" if close else "allowed: " + ", ".join(names)


def require_choice(what: str, value: str, allowed: Iterable[str]) -> None:
    """Raise :class:`DataError` unless ``value`` is one of ``allowed``."""
    names = list(allowed)
    if value not in names:
        raise DataError(f"{what} is {value!r}; {nearest(str(value), names)}")
