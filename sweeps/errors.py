"""What is wrong with a sweep file: which file, line and field, the value, and what is allowed."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalevec.analysis.errors import shortened_text

Path = tuple[str | int, ...]
"""Where a value stands in a sweep file: keys and positions, from the top."""

_LARGEST_SHOWN = 60
_MOST_NAMES = 12
_MOST_PROBLEMS_SHOWN = 20
_PLAIN_KEY = re.compile(r"[\w.+-]+", re.ASCII)

ALLOWED_BY_KIND = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "string_type": "text (quote it if it looks like something else)",
    "tuple_type": "a list",
    "model_type": "a mapping of fields",
    "dict_type": "a mapping",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "string_too_short": "text that is not empty",
    "too_short": "at least one entry",
}
"""pydantic's kinds of problem -> what is allowed, in our words; ``{...}`` is filled from its context.

Of any other kind its own words are taken."""

DEVICES = "a whole number of GPUs, or a share of one (0 to 1) that lets several trials use it"
"""How many GPUs a trial may ask for."""


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong. ``field`` is empty where the whole file is meant; lines count from 1."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return shortened_text(f"{self.file}:{self.line}: {field}{self.message}")


class SweepError(ValueError):
    """A sweep file was refused; ``problems`` holds everything that was found, in the order of the lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Sequence[Problem] = tuple(sorted(set(problems)))
        lines = [str(problem) for problem in self.problems[:_MOST_PROBLEMS_SHOWN]]
        if (more := len(self.problems) - len(lines)) > 0:
            lines.append(f"... and {more} more problems")
        super().__init__("\n".join(lines))


def dotted(path: Path) -> str:
    """``path`` as a person writes it: ``tune.learning_rate[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _PLAIN_KEY.fullmatch(part) else shown(part))
    return text


def shown(value: object) -> str:
    """``value`` in one short line that is safe to print."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value).encode("ascii", "backslashreplace").decode()
    return text if len(text) <= _LARGEST_SHOWN else text[: _LARGEST_SHOWN - 3] + "..."


def refused(value: object, allowed: str) -> str:
    """The message for a value that is not allowed."""
    return f"{shown(value)}; allowed: {allowed}"


def refused_by_pydantic(details: Mapping[str, Any], patterns: Mapping[str, str]) -> str:
    """The message for a value that pydantic refused; ``patterns`` says what each pattern allows."""
    kind, context = details["type"], details.get("ctx", {})
    if kind == "string_pattern_mismatch":
        return refused(details["input"], patterns[context["pattern"]])
    allowed = ALLOWED_BY_KIND.get(kind, details["msg"].removeprefix("Input should be ")).format(**context)
    return refused(details["input"], allowed)


def not_among(value: object, allowed: Iterable[str], what: str) -> str:
    """The message for a value that is not among the names ``allowed``."""
    return f"{shown(value)}: {unknown(value, allowed, what)}"


def unknown(value: object, allowed: Iterable[str], what: str = "unknown") -> str:
    """The message for a name that is not among ``allowed``, with the nearest one that is."""
    names = list(allowed)
    near = difflib.get_close_matches(str(value)[:_LARGEST_SHOWN], names, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    # Who is told the nearest one needs no list that fills the screen.
    rest = f" and {len(names) - _MOST_NAMES} more" if near and len(names) > _MOST_NAMES + 1 else ""
    shown = names[:_MOST_NAMES] if rest else names
    return f"{what}{hint} (allowed: {', '.join(shown)}{rest})"
