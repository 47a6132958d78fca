"""What cells of other people's tables say: numbers as they are written, and the states of runs."""

import math
import re
from collections.abc import Mapping
from typing import Any

BLANK = frozenset(("", "null", "none", "-", "n/a", "na"))
"""Cells, in lower case, without a value."""
_SUFFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:[,_ ]\d{3})+(?:\.\d+)?")
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([kmbgt]?)", re.IGNORECASE)
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "+inf": math.inf}

STATES: Mapping[str, str] = {
    **dict.fromkeys(("finished", "completed", "complete", "done", "success", "succeeded"), "completed"),
    **dict.fromkeys(("crashed", "failed", "error", "killed", "preempted", "timeout", "canceled"), "failed"),
    **dict.fromkeys(("running", "queued", "pending", "cancelled", "diverged"), ""),
    **dict.fromkeys(("scheduled", "preempting"), "queued"),
}
"""The status of a trial for a state of another tracker, in lower case; an empty one is called the same."""


def is_blank(cell: Any) -> bool:
    """Whether ``cell`` says nothing. A NaN of a number does say something: that a loss was none."""
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in BLANK)


def number(cell: Any) -> float | None:
    """The number that ``cell`` holds: ``10.6M``, ``212,336,640`` too; None where it holds none."""
    if isinstance(cell, bool) or cell is None:
        return None
    if not isinstance(cell, str):
        try:
            return float(cell)
        except (TypeError, ValueError, OverflowError):
            return None
    text = cell.strip()
    if text.lower() in _NOT_FINITE:
        return _NOT_FINITE[text.lower()]
    if _GROUPED.fullmatch(text):
        return float(re.sub("[,_ ]", "", text))
    match = _NUMBER.fullmatch(text)
    return float(match[1]) * _SUFFIXES[match[2].lower()] if match else None


def status(cell: Any) -> str | None:
    """The status of a trial for a state of another tracker; None for a word that is not known."""
    word = str(cell).strip().lower()
    return (STATES[word] or word) if word in STATES else None
