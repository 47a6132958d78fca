"""A cell's number is one run's loss at its planned end: no mean over checkpoints or learning rates.

Of checkpoints of one run the last counts. Where an arm was run at several learning rates the one with the
lowest validation loss counts, as a tuner would choose it; without a validation loss the best would be chosen
on the loss that is compared, which is too low, and the table is refused.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import ONE_RUN, names_a_run
from scalevec.analysis.data.tidy import CELL_COLUMNS
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import joined

RATES = ("learning_rate", "lr", "peak_lr", "max_lr", "base_lr", "peak_learning_rate", "max_learning_rate")
"""What the column of learning rates is called."""
STEPS = ("step", "steps", "global_step", "_step", "iteration", "iter")
"""What a column of steps is called."""
VALIDATION = "loss_validation"
FEWEST_IN_A_GRID = 3
"""Of two rates each is at an edge, and no optimum shows."""


def last_of_each_run(rows: pd.DataFrame, cluster: str) -> tuple[pd.DataFrame, int]:
    """``rows`` with the last row of every run alone, and how many checkpoints before it were left out.

    Rows are checkpoints where ``cluster`` names runs (or was guessed to) and one of them has several numbers
    of tokens at one seed and size, and where rows that are equal else differ in a column of steps. Budgets
    that share a trunk are runs of their own: their column is called ``cluster``, or each has its trial.
    """
    if "trial_id" in rows:
        return rows, 0
    keep = np.ones(len(rows), bool)
    along = names_a_run(cluster) | rows[cluster].astype(str).str.endswith(ONE_RUN).to_numpy(bool)
    if along.any():
        last = rows.groupby([cluster, "arm", "n_params", "seed"], dropna=False)["n_tokens"].transform("max")
        keep &= ~along | (rows["n_tokens"] >= last).to_numpy(bool)
    if step := next((name for name in STEPS if name in rows), None):
        names = ("arm", "n_params", "seed", *CELL_COLUMNS, *RATES)
        key = [name for name in names if name in rows]
        numbers = pd.to_numeric(rows[step], errors="coerce").fillna(-1)
        last = numbers.groupby([rows[name] for name in key], dropna=False).transform("max")
        keep &= (numbers >= last).to_numpy(bool)
    return rows[keep].reset_index(drop=True), int((~keep).sum())


def best_rate_of_each_cell(rows: pd.DataFrame, settings: Sequence[str] = ()) -> tuple[pd.DataFrame, str]:
    """``rows`` with one learning rate for each arm and cell, and what was chosen as a sentence.

    A rate that was chosen from three or more is ``tuned``, at the edge of them ``censored``; an arm that was
    run at one where another was chosen is ``fixed``.

    Raises:
        DataError: Rates vary within an arm's cell, and there is no validation loss to choose by.
    """
    column = next((name for name in RATES if name in rows and rows[name].nunique() > 1), None)
    if column is None:
        return rows, ""
    cell = ["arm", *dict.fromkeys(name for name in (*CELL_COLUMNS, *settings) if name in rows.columns)]
    cell = [name for name in cell if name != column]
    n_rates = rows.groupby(cell, dropna=False)[column].transform("nunique")
    # A tuned arm may have another rate at each seed's trial of a cell only by its own tuning.
    swept = n_rates > 1
    if "lr_status" in rows:
        swept &= rows["lr_status"].isin(("fixed", "")) | rows["lr_status"].isna()
    if not swept.any():
        return rows, ""
    arms = joined(list(dict.fromkeys(rows.loc[swept, "arm"].astype(str))))
    if VALIDATION not in rows or rows.loc[swept & (rows["status"] == "completed"), VALIDATION].isna().any():
        raise DataError(
            f"{column} varies inside {arms} at one size: a mean over rates compares grids, not arms, and the "
            f"lowest test loss of several is too low. Add a column {VALIDATION}, by which the best rate is "
            f"chosen, or choose one rate for each arm and size by --where"
        )
    parts = [_of_best_rate(of_cell, column) for _, of_cell in rows[swept].groupby(cell, dropna=False)]
    others = rows[~swept]
    if "lr_status" not in rows:
        others = others.assign(lr_status="fixed")
    chosen = pd.concat([others, *parts]).sort_index().reset_index(drop=True)
    return chosen, f"the best {column} of {arms} at each size is chosen by {VALIDATION}"


def _of_best_rate(of_cell: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rows of one arm and cell at the rate with the lowest mean validation loss over its seeds."""
    completed = of_cell[of_cell["status"] == "completed"]
    if completed.empty:
        first: pd.DataFrame = of_cell[of_cell[column] == of_cell[column].iloc[0]]
        return first.assign(lr_status="fixed")
    # A rate at which some seed diverged is not chosen for the mean of the others.
    bad = set(of_cell.loc[of_cell["status"] == "diverged", column])
    means = completed.groupby(column)[VALIDATION].mean()
    means = means.drop(labels=[rate for rate in bad if rate in means.index and len(means) > len(bad)])
    best, grid = means.idxmin(), np.sort(of_cell[column].dropna().unique())
    at_edge = len(grid) < FEWEST_IN_A_GRID or best in (grid[0], grid[-1])
    chosen: pd.DataFrame = of_cell[of_cell[column] == best]
    return chosen.assign(lr_status="censored" if at_edge else "tuned")
