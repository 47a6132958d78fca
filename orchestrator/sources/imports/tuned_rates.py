"""Grids of learning rates among imported runs: which runs tuned, and which are compared."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from scalevec.analysis.data.values import CELL_COLUMNS

RATE = "learning_rate"


@dataclass(frozen=True)
class RateGrid:
    """The learning rates of one arm in one cell, with the mean loss at each (None: diverged)."""

    arm: str
    rung: str
    n_params: int
    setting: dict[str, Any]
    grid: tuple[float, ...]
    losses: tuple[float | None, ...]
    seeds: tuple[int, ...]
    """Empty where seeds have names."""
    chosen: float
    status: Literal["tuned", "censored"]
    """Censored where the best lies at the edge."""


def staged(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[RateGrid], list[str]]:
    """``rows`` with their stage and ``lr_status`` where some are grids of rates; the grids, and notes.

    A grid is an arm's runs in one cell of which a seed was run at several rates. Seeds that were run at one
    rate alone are compared where all of them have the same; else the runs at the best rate are.
    """
    rows = rows.assign(
        arm=rows.get("arm", "all"), rung=rows.get("rung", rows["n_params"].map("{:.6g}".format))
    )
    grids: list[RateGrid] = []
    notes: list[str] = []
    stages = pd.DataFrame({"stage": "comparison", "lr_status": ""}, rows.index)
    for name, cell in _cells_with_grids(rows):
        if cell.assign(seed=_seeds(cell)).duplicated(["seed", RATE]).any():
            notes.append(f"{name}: several runs of one seed and learning rate, so they are no grid of rates")
            continue
        grid, is_compared = _grid(cell, _settings(rows))
        grids.append(grid)
        stages.loc[cell.index, "stage"] = np.where(is_compared, "comparison", "tuning")
        stages.loc[cell.index[is_compared], "lr_status"] = grid.status
        chosen = f"learning rate {grid.chosen:g} of {len(grid.grid)} ({grid.status})"
        notes.append(f"{name}: {chosen}; {int(is_compared.sum())} of {len(cell)} runs are compared")
    return (rows.join(stages) if grids else rows), grids, notes


def _settings(rows: pd.DataFrame) -> list[str]:
    """The columns that a cell has beside its rung; tokens only where a rung has several budgets."""
    has_budgets = (rows.groupby("rung")["n_tokens"].nunique() > 1).any()
    without = {"rung"} if has_budgets else {"rung", "n_tokens"}
    return [name for name in CELL_COLUMNS if name in rows and name not in without]


def _cells_with_grids(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The runs of an arm in a cell of which some seed has several rates, and their name."""
    if RATE not in rows:
        return
    columns = [name for name in ("arm", *CELL_COLUMNS) if name in rows]
    ran = rows[(rows[RATE] > 0) & np.isfinite(rows[RATE])]
    for values, cell in ran.groupby(columns, sort=False, dropna=False):
        if (cell.groupby(_seeds(cell))[RATE].nunique() > 1).any():
            names = (f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
            yield " ".join(names), cell


def _seeds(cell: pd.DataFrame) -> "pd.Series[Any]":
    """The seeds of a cell; runs without any are of one."""
    seeds = cell["seed"] if "seed" in cell else pd.Series(index=cell.index, dtype=object)
    return seeds.astype(object).where(seeds.notna(), "")


def _grid(cell: pd.DataFrame, settings: Sequence[str]) -> tuple[RateGrid, "pd.Series[bool]"]:
    """The grid of a cell, and which of its runs are compared."""
    seeds = _seeds(cell)
    n_rates = cell.groupby(seeds)[RATE].transform("nunique")
    tuning = n_rates > 1
    rates = np.sort(cell.loc[tuning, RATE].unique())
    # Means over other seeds at each rate would differ by the seeds too.
    counted = cell[n_rates == len(rates)] if (n_rates == len(rates)).any() else cell[tuning]
    losses = counted["loss"].where(counted["status"] == "completed", np.inf)
    means = losses.groupby(counted[RATE]).mean().reindex(rates, fill_value=np.inf)
    best = int(means.to_numpy().argmin())
    apart = cell.loc[~tuning, RATE].unique()
    chosen = float(apart[0] if len(apart) == 1 else rates[best])
    first = cell.astype(object).where(cell.notna(), None).to_dict("records")[0]
    is_bracketed = 0 < best < len(rates) - 1 and np.isfinite(means.iloc[best])
    # What was compared may stand elsewhere: then the grid says of it only that there are better rates.
    is_bracketed = is_bracketed and rates[best - 1] < chosen < rates[best + 1]
    names: list[Any] = sorted(set(seeds[counted.index]) - {""}, key=str)
    grid = RateGrid(
        arm=str(first["arm"]),
        rung=str(first["rung"]),
        n_params=int(first["n_params"]),
        setting={name: first[name] for name in settings},
        grid=tuple(means.index.tolist()),
        losses=tuple(loss if np.isfinite(loss) else None for loss in means.tolist()),
        seeds=tuple(names) if all(isinstance(name, int) for name in names) else (),
        chosen=chosen,
        status="tuned" if is_bracketed else "censored",
    )
    return grid, ~tuning if len(apart) == 1 else cell[RATE] == chosen
