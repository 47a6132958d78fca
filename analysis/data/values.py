"""What cells of tables say: numbers as they are written, and the states of runs."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

BLANK = frozenset(("", "null", "none", "-", "n/a", "#n/a", "na", "<na>"))
"""Cells, in lower case, without a value."""
REQUIRED = ("n_params", "n_tokens", "loss")
"""Columns of which only an empty cell is blank: a word in them is a mistake."""
NAMES = ("trial_id", "arm", "rung", "optimizer", "schedule", "stage")
"""Columns of names, which may look like numbers: 0.12b is a rung, and a trial's id may have digits alone."""
_SUFFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:[,_ ]\d{3})+(?:\.\d+)?")
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([kmbgt]?)", re.IGNORECASE)
_NOT_FINITE = re.compile(r"[+-]?(?:nan(?:\(\w*\))?|1\.#\w+|inf(?:inity)?)", re.IGNORECASE)
"""As Python, C and Windows write them: 1.#IND, nan(ind)."""

STATES: Mapping[str, str] = {
    **dict.fromkeys(("finished", "completed", "complete", "done", "success", "succeeded"), "completed"),
    **dict.fromkeys(("crashed", "failed", "error", "killed", "preempted", "timeout", "canceled"), "failed"),
    **dict.fromkeys(("running", "queued", "pending", "cancelled", "diverged"), ""),
    **dict.fromkeys(("scheduled", "preempting"), "queued"),
}
"""The status of a trial for a state of another tracker, in lower case; an empty one is called the same."""


def is_blank(cell: Any) -> bool:
    """Whether ``cell`` says nothing."""
    if isinstance(cell, str):
        return cell.strip().lower() in BLANK
    return cell is None or cell is pd.NA or cell is pd.NaT or (isinstance(cell, float) and math.isnan(cell))


def number(cell: Any) -> float | None:
    """The number that ``cell`` holds: ``10.6M``, ``212,336,640`` too; None where it holds none."""
    if isinstance(cell, bool) or cell is None:
        return None
    if not isinstance(cell, str):
        try:
            return float(cell)
        except OverflowError:  # an integer of 400 digits is Python's own and has no float
            return math.copysign(math.inf, cell)
        except (TypeError, ValueError):
            return None
    text = cell.strip()
    if _NOT_FINITE.fullmatch(text):
        inf = -math.inf if text.startswith("-") else math.inf
        return inf if "inf" in text.lower() else math.nan
    if _GROUPED.fullmatch(text):
        return float(re.sub("[,_ ]", "", text))
    match = _NUMBER.fullmatch(text)
    return float(match[1]) * _SUFFIXES[match[2].lower()] if match else None


def numbers(cells: Sequence[Any], name: str = "") -> list[float | None]:
    """The number in each of ``cells`` of the column ``name``, NaN for a blank; None where there is none."""
    if name in REQUIRED:
        return [math.nan if _is_empty(cell) else number(cell) for cell in cells]
    return [math.nan if is_blank(cell) else number(cell) for cell in cells]


def _is_empty(cell: Any) -> bool:
    return is_blank(cell) and not (isinstance(cell, str) and cell.strip())


def typed(rows: pd.DataFrame) -> pd.DataFrame:
    """``rows`` with columns of numbers, or of true and false, as such, and the others as text."""
    return pd.DataFrame({name: _typed(rows[name]) for name in rows.columns}, rows.index)


def _typed(column: "pd.Series[Any]") -> Any:
    cells, kinds = column.tolist(), set(map(type, column)) if column.dtype.kind == "O" else set()
    if not kinds or kinds & {list, dict, np.ndarray}:
        return column
    if column.name not in NAMES and cells:
        for kind in (np.int64, float) if kinds == {str} and "_" not in "".join(cells) else ():
            try:
                return np.array(cells, kind)
            except (ValueError, OverflowError):
                pass
        if {*map(str, cells)} <= {"True", "False"}:
            return np.array([str(cell) == "True" for cell in cells])
        read = numbers(cells, str(column.name))
        if None not in read and not all(map(is_blank, cells)):
            is_whole = kinds == {int} and max(map(abs, cells)) < 2**63
            return np.array(cells, np.int64) if is_whole else np.array(read, float)
    return pd.Series([None if _is_empty(cell) else str(cell) for cell in cells], column.index)


def status(cell: Any) -> str | None:
    """The status of a trial for a state of another tracker; None for a word that is not known."""
    word = str(cell).strip().lower()
    return (STATES[word] or word) if word in STATES else None
