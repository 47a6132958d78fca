"""Rows of metrics in what a command prints."""

import re
from collections.abc import Mapping
from contextlib import suppress

_GROUP = re.compile(r"\(\?P<(\w+)>")
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]|.", re.DOTALL)
"""What may not be taken for the end of a group: an escaped sign, and a set of characters."""
_ANYTHING = r"[^\s,;|)\]}\"']*[^\s,;:|)\]}\"'.]"
_EXPONENT = re.compile(r"[eE][+-]?\d+")


class LinePattern:
    """A trainer's ``pattern``, whose group ``step`` tells the step.

    A line that has all of its words counts, whatever stands in place of its numbers: ``nan`` is a loss that
    is not finite, and what is no number at all is refused where it is read.
    """

    def __init__(self, pattern: str, step: str) -> None:
        self._pattern = self._loose = re.compile(pattern)
        with suppress(re.error):  # one that refers to a part of a group cannot be loosened
            self._loose = re.compile(_loosened(pattern, step))

    def row(self, line: str) -> Mapping[str, str] | None:
        """The values of ``line`` by the names of the groups; None for a line of another kind."""
        matches = filter(None, (self._pattern.search(line), self._loose.search(line)))
        # Of an optional group the looser one may find what the other has passed by.
        match = max(matches, key=lambda match: sum(map(bool, match.groups())), default=None)
        if match is None:
            return None
        # A group that knows no exponents takes 1.2e+05 for 1.2.
        rest = {name: _EXPONENT.match(line, match.end(name)) for name in match.groupdict()}
        known = {name: value for name, value in match.groupdict().items() if value is not None}
        return {name: value + (more[0] if (more := rest[name]) else "") for name, value in known.items()}


def _loosened(pattern: str, step: str) -> str:
    """``pattern`` with anything in place of what its groups take, but for the ``step``'s."""
    parts, at = [], 0
    for group in _GROUP.finditer(pattern):
        if group.start() < at or group[1] == step:
            continue
        parts += [pattern[at : group.end()], _ANYTHING, ")"]
        at = _end_of_group(pattern, group.end())
    return "".join([*parts, pattern[at:]])


def _end_of_group(pattern: str, start: int) -> int:
    depth = 1
    for part in _PART.finditer(pattern, start):
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        if depth == 0:
            return part.end()
    return len(pattern)
