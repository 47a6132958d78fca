"""The compute-optimal size of a budget: that at which a law in N and D is lowest, or N*(C) of isoFLOPs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray, variable_of
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.hold_out import decades_beyond, farthest
from scalevec.analysis.fits.intervals import MOST_FAILED
from scalevec.analysis.fits.predicted_points import FittedArm, positive_numbers

SIZES, ZOOMED, ZOOMS = 241, 41, 2
"""Sizes at which a law is compared along a budget, then between the neighbours of the best, so many times."""
BLOCK = 4000
"""Replicates that are searched at once."""


def best_of_budgets(fitted: FittedArm, budgets: Sequence[float]) -> pd.DataFrame:
    """The best size of each of ``budgets`` (FLOPs); see :meth:`Fit.best`."""
    options, law = fitted.data.options, fitted.law.points.law
    if law.method == "points" and not {"N", "D"} <= set(law.variables) <= {"N", "D", "C"}:
        raise DataError(
            f"the best size of a budget needs a law in N and D; law {law.name} reads "
            f"{', '.join(map(fitted.shown, law.variables))}; take chinchilla, gadre, kaplan, isoflop "
            "or a formula in N and D"
        )
    if options.c_convention == "counted" or (law.method == "points" and options.c_convention != "6nd"):
        raise DataError(f"c_convention is {options.c_convention!r}; a budget is 6 N D: allowed is '6nd'")
    flops = positive_numbers(pd.DataFrame({"C": budgets}), "C")
    if (flops <= 6).any():
        raise DataError(f"a budget is {flops.min():g} FLOPs, less than one parameter on one token takes")
    return pd.DataFrame([_best(fitted, float(budget)) for budget in flops])


def _best(fitted: FittedArm, flops: float) -> dict[str, Any]:
    """The best size for ``flops`` FLOPs by the law of an arm.

    Raises :class:`DataError` where the law is lowest at the end of the budget, one parameter or one token.
    """
    theta = np.concatenate([fitted.law.theta[None], fitted.uncertainty.solution.theta])
    if fitted.data.optima:
        n = fitted.values(theta, {"C": np.array([flops])})[:, 0]
        loss = np.full(len(n), np.nan)
    else:
        blocks = np.array_split(theta, -(-len(theta) // BLOCK))
        logs = np.concatenate([_lowest(fitted, block, flops) for block in blocks])
        n, loss = np.exp(logs), _losses(fitted, theta, flops, logs[:, None])[:, 0]
    if not np.isfinite(n[0]):
        raise DataError(
            f"arm {fitted.data.arm!r}: along C = {flops:g} the fitted law falls to the end, one parameter or "
            "one token: it has no best size there"
        )
    d = flops / 6 / n
    rows, options = fitted.data.rows, fitted.data.options
    seen = {"N": variable_of(rows, "N", options)}
    seen |= {"D": rows["n_tokens"].to_numpy(float)} if "n_tokens" in rows else {}
    [decades], [beyond] = farthest(decades_beyond(seen, pd.DataFrame({"N": n[:1], "D": d[:1]})))
    silent = fitted.silent if beyond else ""
    row: dict[str, Any] = {"flops": flops}
    for name, values in (("N", n), ("D", d), ("tokens_per_parameter", d / n), ("value", loss)):
        drawn, ends = values[1:][np.isfinite(values[1:])], None
        if not silent and len(drawn) >= (1 - MOST_FAILED) * (len(values) - 1):
            ends = fitted.uncertainty.interval(float(values[0]), drawn, options.level)
        row[name] = float(values[0])
        row[f"{name}_low"], row[f"{name}_high"] = ends or (np.nan, np.nan)
    reason = "" if fitted.uncertainty.draws else fitted.uncertainty.note
    return row | {"decades": float(decades), "beyond": beyond, "note": silent or reason}


def _losses(fitted: FittedArm, theta: FloatArray, flops: float, logs: FloatArray) -> FloatArray:
    """The losses of the laws ``theta`` [rows, parameters] at ln N of a budget, both [rows, sizes]."""
    n = np.exp(logs)
    return fitted.values(theta, {"N": n, "D": flops / 6 / n, "C": np.full_like(n, flops)})


def _lowest(fitted: FittedArm, theta: FloatArray, flops: float) -> FloatArray:
    """ln N [rows] of the lowest loss between one parameter and one token; nan where it lies at an end."""
    logs = np.repeat(np.linspace(0.0, np.log(flops / 6), SIZES)[None], len(theta), axis=0)
    rows, is_inside = np.arange(len(theta)), np.ones(len(theta), bool)
    for zoom in range(ZOOMS + 1):
        values = _losses(fitted, theta, flops, logs)
        best, step = np.argmin(np.where(np.isfinite(values), values, np.inf), axis=1), logs[0, 1] - logs[0, 0]
        if zoom == 0:
            is_inside = (best > 0) & (best < SIZES - 1)
        centre = logs[rows, best]
        logs = centre[:, None] + np.linspace(-step, step, ZOOMED if zoom < ZOOMS else 3)
    # Far closer than this the losses of neighbours differ by their rounding: a parabola ends the search.
    left, middle, right = _losses(fitted, theta, flops, logs).T
    bend = left - 2 * middle + right
    offset = step * (left - right) / (2 * np.where(bend > 0, bend, np.inf))
    return np.where(is_inside, centre + np.clip(offset, -step, step), np.nan)
