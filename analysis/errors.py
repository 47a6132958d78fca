"""The error of everything in ``analysis``, and the words in which it lists what is allowed."""

import difflib
import re
from collections.abc import Iterable

LONGEST_MESSAGE = 1_000
MOST_NAMES = 30
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return ``text`` with control characters as their escapes, those of the direction of writing too.

    Names from a file may command a terminal, or stand in another order there than in the file.
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def shortened_text(text: str) -> str:
    """``text``, or its beginning and end where it is longer than anybody reads."""
    if len(text) <= LONGEST_MESSAGE:
        return text
    return f"{text[: LONGEST_MESSAGE // 2]} ... {text[-LONGEST_MESSAGE // 2 :]}"


class DataError(ValueError):
    """The table or an option cannot be used; one message says what, where, the value and what is allowed."""

    def __init__(self, message: str) -> None:
        """Keep ``message`` printable and of a length that is read."""
        super().__init__(shortened_text(printable(message)))


class FormulaError(DataError):
    """A formula that cannot be read."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown ``name``: the nearest known one, or all of them."""
    names = sorted(str(candidate) for candidate in known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"nearest: {close[0]!r}"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return "allowed: " + ", ".join(name[:60] for name in names[:MOST_NAMES]) + more


def require_choice(what: str, value: str, allowed: Iterable[str]) -> None:
    """Raise :class:`DataError` unless ``value`` is one of ``allowed``."""
    names = list(allowed)
    if value not in names:
        raise DataError(f"{what} is {value!r}; {nearest(str(value), names)}")
