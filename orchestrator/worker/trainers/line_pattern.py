"""Which lines that a foreign trainer prints are rows of metrics."""

import re
from collections.abc import Mapping
from contextlib import suppress

_GROUP = re.compile(r"\(\?P<(\w+)>")
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]|.", re.DOTALL)
"""What may not be taken for the end of a group: an escaped sign, and a set of characters."""
_ANYTHING = r"\s*(?:\d+(?:,\d+)+(?:\.\d+)?|[^\s,;|)\]}\"']*[^\s,;:|)\]}\"'.])"
_GROUPED = "\\d+(?:,\\d+)+|\\d{1,3}(?:[_'’ \u00a0\u202f]\\d{3})+"
_DIGITS = re.compile(r"(?:(?:\\d|\[(?!\^)[^\]]*(?:\\d|0-9)[^\]]*\])(?:[+*?]|\{[\d,]+\})*(?:\\\.|\[\.\])?)+")
"""The part of a pattern that stands for a number."""
_REST = re.compile(r"[eE][+-]?\d+|[kKM]\b|_\d[\d_.]*|#[A-Z]+")
"""What a group of digits leaves of a number, or of 1.#QNAN."""
_PROSE = re.compile(
    r"\s*(?!(?:none|null|na|(?:[a-z]+\s+){0,2}(?:nan|inf|infinity))\b)[a-z]{2,}\s+[a-z]", re.IGNORECASE
)
"""A word that another follows: it stands for no number, but in `is nan`."""
_COMMAS = re.compile(r"(?:[,'’]\d+)+(?:\.\d+)?")
_COLUMNS = re.compile(r"\),(?:\\[dSw]|[\[(.])")
"""In a pattern: commas stand between values, and in none."""
_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""And whatever else commands a terminal: to clear a line, to move on it."""


class LinePattern:
    """A trainer's ``pattern``, whose group ``step`` tells the step.

    A line that has all of its words counts, whatever stands in place of its numbers: ``nan`` is a loss that
    is not finite, a line with several words there is prose, and what else is no number is refused where it
    is read.
    """

    def __init__(self, pattern: str, step: str) -> None:
        self._pattern = self._loose = re.compile(pattern)
        self._has_columns = _COLUMNS.search(pattern) is not None
        with suppress(re.error):  # one that refers to a part of a group cannot be loosened
            self._loose = re.compile(_loosened(pattern, step))

    def row(self, line: str) -> Mapping[str, str] | None:
        """The values of ``line`` by the names of the groups; None for a line of another kind."""
        plain = _COLOURS.sub("", line)
        return self._row(plain) or (self._row(line) if plain != line else None)

    def _row(self, line: str) -> Mapping[str, str] | None:
        matches = filter(None, (self._pattern.search(line), self._loose.search(line)))
        # Of an optional group the looser one may find what the other has passed by.
        # And nearer to its word: beside `loss nan best loss 3.2` the other has hopped to the best.
        match = max(matches, key=_groups_taken, default=None)
        if match is None:
            return None
        known = {name: value for name, value in match.groupdict().items() if value is not None}
        if any(_PROSE.match(line, match.start(name)) for name in known):
            return None
        return {name: value + self._rest(line, match, name) for name, value in known.items()}

    def _rest(self, line: str, match: re.Match[str], name: str) -> str:
        """What group ``name`` leaves of its number: of 1.2e+05 and 12,345.6 it may take 1.2 and 12."""
        end = match.end(name)
        rest = _REST.match(line, end)
        if rest is None and not self._has_columns and match[name].isdecimal():
            rest = _COMMAS.match(line, end)
        others = (match.start(other) for other in match.groupdict())
        return rest[0] if rest and not any(end < start <= rest.end() for start in others) else ""


def _groups_taken(match: re.Match[str]) -> tuple[int, list[int]]:
    """How many groups have something, and how early each of them begins."""
    return sum(map(bool, match.groups())), [-match.start(name) for name in match.groupdict()]


def _loosened(pattern: str, step: str) -> str:
    """``pattern`` with anything in place of what its groups take, of the ``step``'s with 1,000 too.

    And with nan for numbers beside them.
    """
    parts, at = [], 0
    for group in _GROUP.finditer(pattern):
        if group.start() < at:
            continue
        end = _end_of_group(pattern, group.end())
        taken = rf"{pattern[group.end() : end - 1]}|{_GROUPED}" if group[1] == step else _ANYTHING
        quote = "" if group[1] == step else "[\"']?"
        parts += [_with_nan(pattern[at : group.start()]), quote, group[0], taken, ")"]
        at = end
    return "".join([*parts, _with_nan(pattern[at:])])


def _with_nan(pattern: str) -> str:
    """``pattern`` with nan too where it has the digits of a number."""
    return _DIGITS.sub(lambda digits: rf"(?:{digits[0]}|[+-]?(?i:nan|inf(?:inity)?))", pattern)


def _end_of_group(pattern: str, start: int) -> int:
    depth = 1
    for part in _PART.finditer(pattern, start):
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        if depth == 0:
            return part.end()
    return len(pattern)
