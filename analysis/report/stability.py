"""What became of each learning rate: a map by rung, arm and rate, with what diverged."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import HAS_RESULT
from scalevec.analysis.data.tidy import comparison_rows

MOST_RATES = 12
"""Columns of the map; where more rates were run, neighbouring ones share a column."""
_BESIDE = ("carried", "censored")


@dataclass(frozen=True)
class RateCell:
    """The trials of one arm, rung and column of rates: ``kind`` is how the cell is painted."""

    kind: str
    text: str


@dataclass(frozen=True)
class StabilityMap:
    """A row for each rung and arm; a cell for each of ``rates``, None where nothing was run."""

    rates: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[RateCell | None, ...]], ...]


def stability_map(table: pd.DataFrame, choices: Sequence[Mapping[str, Any]]) -> StabilityMap | None:
    """Return the map of the checked ``table`` and of tuning.json; None where no rate is known."""
    counts = _counted(table, choices)
    if not counts:
        return None
    columns, names = _columns(sorted({rate for _, _, rate in counts}))
    merged: dict[tuple[str, str], dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for (rung, arm, rate), of_rate in counts.items():
        merged[rung, arm][columns[rate]].update(of_rate)
    rows = (
        (rung, arm, tuple(_cell(cells[n]) if n in cells else None for n in range(len(names))))
        for (rung, arm), cells in merged.items()
    )
    return StabilityMap(tuple(names), tuple(rows))


def _counted(
    table: pd.DataFrame, choices: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str, float], Counter[str]]:
    """How many trials of each rung, arm and rate completed and diverged, and how their rate was come by."""
    counts: dict[tuple[str, str, float], Counter[str]] = defaultdict(Counter)
    of_rates = [choice for choice in choices if choice["field"] == "learning_rate"]
    # The record of tuning stands for its trials, which a kept table may lack.
    rows = comparison_rows(table) if of_rates else table
    if "learning_rate" in rows:
        known = rows[rows["status"].isin(HAS_RESULT) & rows["learning_rate"].notna()]
        statuses = known["lr_status"] if "lr_status" in known else [""] * len(known)
        places = (known[name] for name in ("n_params", "rung", "arm", "learning_rate", "status"))
        trials = sorted(zip(*places, statuses, strict=True), key=lambda trial: trial[0])
        for _, rung, arm, rate, status, how in trials:
            counts[str(rung), str(arm), _rounded(rate)].update([status, *([how] if how in _BESIDE else [])])
    for choice in of_rates:
        for rate, loss in zip(choice["grid"], choice["losses"], strict=True):
            key = (str(choice["rung"]), str(choice["arm"]), _rounded(rate))
            counts[key]["completed" if loss is not None else "diverged"] += len(choice["seeds"])
    return counts


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


def _columns(rates: Sequence[float]) -> tuple[dict[float, int], list[str]]:
    """The column of each of the ascending ``rates``, and the heading of each column."""
    parts = [part for part in np.array_split(np.array(rates), min(MOST_RATES, len(rates))) if len(part)]
    columns = {float(rate): number for number, part in enumerate(parts) for rate in part}
    ends = (dict.fromkeys((f"{part[0]:.3g}", f"{part[-1]:.3g}")) for part in parts)
    return columns, [" to ".join(names) for names in ends]


def _cell(counts: Counter[str]) -> RateCell:
    completed, diverged = counts["completed"], counts["diverged"]
    beside = [name for name in _BESIDE if counts[name]]
    number = str(completed + diverged)
    shown = f"{diverged} of {number} diverged" if diverged else number
    kind = "diverged" if diverged else beside[-1] if beside else "completed"
    return RateCell(kind, ", ".join([shown, *beside]))
