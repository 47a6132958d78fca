"""What cells of tables say: numbers as they are written, and the states of runs."""

import json
import math
import numbers as number_types
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import shortened

BLANK = frozenset(("", "null", "none", "-", "n/a", "#n/a", "na", "<na>"))
"""Cells, in lower case, without a value."""
REQUIRED = ("n_params", "n_tokens", "loss")
"""Columns of which only an empty cell is blank: a word in them is a mistake."""
NAMES = ("trial_id", "arm", "rung", "optimizer", "schedule", "stage", "run", "cluster", "source")
"""Columns of names, which may look like numbers: 0.12b is a rung, and a trial's id may have digits alone."""
CELL_COLUMNS = ("rung", "n_tokens", "optimizer", "schedule", "corpus", "architecture")
"""With the further setting columns these name a cell; with the seed, a pair."""
ARM_COLUMNS = ("optimizer", "schedule", "architecture")
"""Those of them that an arm may choose for itself; then they are no part of its cells."""
GRID_COLUMNS = ("learning_rate", "precision")
"""Columns of every row that a sweep may also run as a grid; then a pair agrees in them too."""
_SUFFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:[,_ \u00a0\u202f]\d{3})+(?:\.\d+)?")
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([kmbgt]?)", re.IGNORECASE)
_NOT_FINITE = re.compile(r"[+-]?(?:nan(?:\(\w*\))?|1\.#\w+|inf(?:inity)?)", re.IGNORECASE)
"""As Python, C and Windows write them: 1.#IND, nan(ind)."""

_OF_SEVERAL = re.compile(
    r"(mean|avg|average|median|std|sd|stderr|min|max|sum|total|all|count|overall|ensemble|mittelwert)"
    r"(\b(?!\s*[=_-]).*)?|[Øø⌀µμ].*|\d+\s*(-|–|to|\.\.+|…)\s*\d+",
    re.IGNORECASE,
)
"""What stands in place of a seed in a row over several: mean, avg(3), mean±std, 0-2."""
LARGEST_SEED = 2.0**63
SMALLEST_NUMBER, LARGEST_NUMBER = 1e-100, 1e100
"""Between what counts, losses and FLOPs lie: sums of squares of others overflow."""
NINES = tuple(10.0**digits - 1 for digits in range(2, 13))
"""99, 999, ...: what some write where a run has no loss."""
ROUND = (*(10.0**digits for digits in range(2, 39)), 2.0**31 - 1, 65504.0, float(np.finfo(np.float32).max))
"""The same of losses alone, and the largest numbers of a kind: 1e9 is a count of tokens."""
FAR_ABOVE = 3.0
LOSS_BLOCKS, BLOCK_TOKENS = "loss_blocks", "block_tokens"
"""The mean loss of each block of the test split, and its tokens."""
AGREEMENT = 1e-4
"""The blocks' mean may differ from the loss by this share of it: rounding. Else they are of another loss."""

STATES: Mapping[str, str] = {
    **dict.fromkeys(("finished", "completed", "complete", "done", "success", "succeeded"), "completed"),
    **dict.fromkeys(("crashed", "failed", "error", "killed", "preempted", "timeout", "canceled"), "failed"),
    **dict.fromkeys(("out_of_memory", "oom", "node_fail", "aborted"), "failed"),
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
            return sys.float_info.max if cell > 0 else -sys.float_info.max
        except (TypeError, ValueError):
            return None
    text = cell.strip()
    if _NOT_FINITE.fullmatch(text):
        inf = -math.inf if text.startswith("-") else math.inf
        return inf if "inf" in text.lower() else math.nan
    if _GROUPED.fullmatch(text):
        return float(re.sub("[^0-9.+-]", "", text))
    match = _NUMBER.fullmatch(text)
    return finite(match[1]) * _SUFFIXES[match[2].lower()] if match else None


def finite(text: str) -> float:
    """The number that ``text`` writes out: one that no float can hold is the largest, not infinite.

    An infinite loss is of a run that diverged; of 1.8e308 or 400 digits nobody knows, so it is asked about.
    """
    return max(-sys.float_info.max, min(float(text), sys.float_info.max))


def numbers(cells: Sequence[Any], name: str = "") -> list[float | None]:
    """The number in each of ``cells`` of the column ``name``, NaN for a blank; None where there is none."""
    blank = _is_empty if name in REQUIRED else is_blank
    return [math.nan if blank(cell) else number(cell) for cell in cells]


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
        if kinds == {str} and "_" not in "".join(cells):
            for kind in (np.int64, float):
                with suppress(ValueError, OverflowError):
                    array: Any = np.array(cells, kind)
                    if np.isfinite(array).all():
                        return array
        if {*map(str, cells)} <= {"True", "False"}:
            return np.array([str(cell) == "True" for cell in cells])
        if column.name == "seed" and any(map(is_blank, cells)):  # of 19 digits, which no float holds
            return pd.Series([None if is_blank(cell) else cell for cell in cells], column.index, dtype=object)
        read = numbers(cells, str(column.name))
        if None not in read and not all(map(is_blank, cells)):
            is_whole = kinds == {int} and max(map(abs, cells)) < 2**63
            return np.array(cells, np.int64) if is_whole else np.array(read, float)
    return pd.Series([None if _is_empty(cell) else str(cell).strip() for cell in cells], column.index)


def status(cell: Any) -> str | None:
    """The status of a trial for a state of another tracker; None for a word that is not known."""
    word = str(cell).strip().lower()
    return (STATES[word] or word) if word in STATES else None


def numbers_of_column(column: "pd.Series[float]") -> "pd.Series[float]":
    """``column`` as numbers, NaN for a blank; its index has the numbers of rows. Raises DataError."""
    if pd.api.types.is_bool_dtype(column):
        raise DataError(f"column {column.name!r} holds true/false; allowed: numbers")
    if pd.api.types.is_numeric_dtype(column):
        return column.astype(float)
    read = numbers(column.tolist(), str(column.name))
    if None in read:
        position = read.index(None)
        row, cell = column.index[position], column.iloc[position]
        known = "nan where a run diverged" if str(column.name).startswith("loss") else "a number"
        remedy = f"write {known}, or leave such rows out (--where)"
        raise DataError(f"column {column.name!r}, row {row}: {cell!r:.60} is not a number; {remedy}")
    return pd.Series(read, column.index, dtype=float)


def seeds_of(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Whole numbers, whether ``1``, ``1.0`` or text, else names as text; a blank is no seed.

    The index of ``column`` holds the numbers of its rows. Raises :class:`DataError`.
    """
    blank = column.map(is_blank)
    given = column[~blank]
    read = given.map(number).astype(float)
    are_numbers = read.notna().all()
    if are_numbers:
        allowed = (read % 1 == 0) & (read.abs() < LARGEST_SEED)
    else:
        allowed = given.map(lambda seed: isinstance(seed, str | number_types.Real))
    if not allowed.all():
        position = int(allowed.to_numpy(bool).argmin())
        row, value = given.index[position], str(given.iloc[position])[:40]
        raise DataError(f"column 'seed', row {row}: {value}; allowed: whole numbers below 2^63, or names")
    sums = given[given.map(lambda seed: _OF_SEVERAL.fullmatch(str(seed).strip()) is not None).astype(bool)]
    if len(sums) and read.notna().any():
        raise DataError(
            f"column 'seed', row {sums.index[0]}: {sums.iloc[0]!r} is no run's; leave such rows out: --where "
            f"\"seed != '{sums.iloc[0]}'\""
        )
    if not are_numbers:
        return column.map(str).where(~blank, None).astype(object)
    exact = [int(seed) if str(seed).strip().isdecimal() else int(number(seed) or 0) for seed in given]
    return pd.Series(exact, read.index, dtype="Int64").reindex(column.index)


def check_column(values: "pd.Series[float]") -> None:
    """Raise :class:`DataError` for numbers out of range, and for such as stand for what is not known."""
    column, within = str(values.name), ""
    is_loss = column.startswith("loss")
    bad: pd.Series[bool] = pd.Series(~np.isfinite(values) | (values <= 0), values.index)
    if not bad.any():
        bad = ~values.between(SMALLEST_NUMBER, LARGEST_NUMBER)
        within = f", from {SMALLEST_NUMBER:g} to {LARGEST_NUMBER:g}"
    if not bad.any():
        # Such as people write for none, far above all others: 999 beside 3.
        alike = np.isclose(values.to_numpy()[:, None], ROUND if is_loss else (), rtol=1e-3)  # as printed
        written = values.isin(NINES) | np.any(alike, axis=1)
        bad, within = written & (values > FAR_ABOVE * values[~written].max()), ""
    if not bad.any():
        return
    value = float(values[bad].iloc[0])
    rows = values.index[values.eq(value) | (bad & values.isna())].tolist()
    which = f"row {rows[0]}" if len(rows) == 1 else f"rows {shortened(rows)}"
    shown = "blank or nan" if np.isnan(value) else f"{value:g}"
    what = f"column {column!r}, {which}: {shown}; allowed: finite numbers above zero{within}"
    if np.isnan(value):
        raise DataError(f"{what}. Leave rows that are no runs out: --where '{column} > 0'")
    if np.isinf(value) or (0 < value < SMALLEST_NUMBER):
        raise DataError(what)
    # Trackers and scripts write such a number where they have none. A completed run whose loss is nan has
    # diverged, which counts against its arm.
    where, known = ("a run diverged", "write nan") if is_loss else ("nothing is known", "give the number")
    rest = f"'{column} > 0'" if value <= 0 else f"'{column} < {value:g}'"
    if is_loss and (values < 0).all():
        raise DataError(f"{what}; all are below zero. Log likelihoods? --map '{column}=-{column}'")
    raise DataError(
        f"{what}. Is it written where {where}? Then {known}; or leave such rows out: --where {rest}"
    )


def numbers_in_list(value: object, column: str) -> npt.NDArray[np.float64]:
    """The numbers of one field [blocks]; none where it is empty. Raises :class:`DataError`."""
    if is_blank(value):
        return np.empty(0)
    try:
        read: Any = json.loads(value) if isinstance(value, str) else value
        result = np.asarray(read, float)
    except (TypeError, ValueError) as error:
        raise DataError(f"column {column!r}: {value!r:.60} is no list of numbers") from error
    if result.ndim != 1 or not np.all(np.isfinite(result)):
        raise DataError(f"column {column!r}: {value!r:.60} is no list of finite numbers")
    return result


def losses_by_block(complete: pd.DataFrame) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
    """Losses [sides, pairs, blocks] and tokens [blocks] of complete pairs, reference first.

    None unless every trial has the same blocks and the blocks' mean is the loss that is compared. Raises
    :class:`DataError`.
    """
    lists = []
    for column in (LOSS_BLOCKS, BLOCK_TOKENS):
        sides = [f"{column}_reference", f"{column}_arm"]
        if not set(sides) <= set(complete):
            return None
        lists.append([numbers_in_list(value, column) for side in sides for value in complete[side]])
    losses, tokens = lists
    first = tokens[0] if tokens else np.empty(0)
    alike = all(np.array_equal(counts, first) for counts in tokens) and {*map(len, losses)} == {len(first)}
    if not len(first) or np.any(first <= 0) or not alike:
        return None
    by_block = np.array(losses).reshape(2, len(complete), -1)
    means = by_block @ (first / first.sum())
    given = np.stack([complete[f"loss_{side}"].to_numpy(float) for side in ("reference", "arm")])
    return (by_block, first) if np.allclose(means, given, rtol=AGREEMENT) else None
