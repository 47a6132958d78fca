"""The compute-optimal size of a budget: from a law in N and D, and from the vertices of isoFLOP parabolas."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.arm_data import ArmData, arm_data, fitted_laws
from scalevec.analysis.fits.columns import variable_of, with_given_compute
from scalevec.analysis.fits.intervals import MOST_FAILED, NoInterval, Replicates
from scalevec.analysis.fits.isoflop import has_budgets, vertex_replicates
from scalevec.analysis.fits.predicted_points import FittedArm, decades_beyond
from scalevec.analysis.options import AnalysisOptions

SIZES, ZOOMED, ZOOMS = 241, 41, 2
"""Sizes at which a law is compared along a budget, then between the neighbours of the best, so many times."""
BLOCK = 4000
"""Replicates that are searched at once."""
DISAGREE = 1.2
"""Surface and parabolas disagree where their N* differ by more than this factor."""
SMALLEST_BUDGET, LARGEST_BUDGET = 1e3, 1e60


def best_of_budgets(fitted: FittedArm, budgets: Sequence[float]) -> pd.DataFrame:
    """The best size of each of ``budgets`` (FLOPs); see :meth:`Fit.best`."""
    require_budgets(fitted)
    for flops in budgets:
        if not SMALLEST_BUDGET <= flops <= LARGEST_BUDGET:
            raise DataError(
                f"a budget is {flops:g}; allowed: FLOPs from {SMALLEST_BUDGET:g} to {LARGEST_BUDGET:g}"
            )
    methods, rows = [fitted, *_parabolas(fitted.data)], list[dict[str, Any]]()
    for flops in budgets:
        of_budget = [_best(method, flops) for method in methods]
        for other in of_budget[1:]:
            other["note"] = _disagreement(of_budget[0], other) or other["note"]
        rows += of_budget
    return pd.DataFrame(rows)


def require_budgets(fitted: FittedArm) -> None:
    """Raise :class:`DataError` unless the law says which N is best for a budget of 6 N D."""
    options, law = fitted.data.options, fitted.law.points.law
    if law.method == "points" and not {"N", "D"} <= set(law.variables) <= {"N", "D", "C"}:
        raise DataError(
            f"the best size of a budget needs a law in N and D; law {law.name} reads "
            f"{', '.join(options.x if name == 'x' else name for name in law.variables)}; take chinchilla, "
            "gadre, kaplan, overtraining, isoflop, envelope or a formula in N and D"
        )
    if options.c_convention == "counted" or (law.method == "points" and options.c_convention != "6nd"):
        raise DataError(f"c_convention is {options.c_convention!r}; a budget is 6 N D: allowed is '6nd'")


def _best(fitted: FittedArm, flops: float) -> dict[str, Any]:
    """The best size for ``flops`` FLOPs by the law of an arm.

    Raises :class:`DataError` where the law is lowest at the end of the budget, one parameter or one token.
    """
    theta = fitted.law.theta[None]
    if isinstance(fitted.uncertainty, Replicates):
        theta = np.concatenate([theta, fitted.uncertainty.solution.theta])
    if fitted.data.optima:
        n, loss = fitted.law.values_at(theta, {"C": flops}), None
    else:
        blocks = np.array_split(theta, -(-len(theta) // BLOCK))
        logs = np.concatenate([_lowest(_along(fitted, block, flops), len(block), flops) for block in blocks])
        n, loss = np.exp(logs), _along(fitted, theta, flops)(logs[:, None])[:, 0]
    if not np.isfinite(n[0]):
        raise DataError(
            f"arm {fitted.data.arm!r}: along C = {flops:g} the fitted law falls to the end, one parameter or "
            "one token: it has no best size there"
        )
    d = flops / 6 / n
    rows, options = fitted.data.rows, fitted.data.options
    seen = {"N": variable_of(rows, "N", options)}
    seen |= {"D": rows["n_tokens"].to_numpy(float)} if "n_tokens" in rows else {}
    beyond = decades_beyond(seen, pd.DataFrame({"N": n[:1], "D": d[:1]})).iloc[0]
    farthest = str(beyond.abs().idxmax())
    row: dict[str, Any] = {"flops": flops, "by": fitted.law.points.law.method if loss is None else "surface"}
    for name, values in (("N", n), ("D", d), ("tokens_per_parameter", d / n), ("value", loss)):
        row |= _estimate(fitted, name, values)
    silent = fitted.silent if beyond[farthest] else ""
    if silent:
        row |= dict.fromkeys([name for name in row if name.endswith(("_low", "_high"))], np.nan)
    reason = fitted.uncertainty.reason if isinstance(fitted.uncertainty, NoInterval) else ""
    return row | {
        "decades": float(beyond[farthest]),
        "beyond": str(farthest) if beyond[farthest] else "",
        "note": silent or reason,
    }


def _estimate(fitted: FittedArm, name: str, values: FloatArray | None) -> dict[str, float]:
    """The first of ``values`` [1 + draws] with the interval from the others."""
    if values is None:
        return {name: np.nan, f"{name}_low": np.nan, f"{name}_high": np.nan}
    drawn, ends = values[1:][np.isfinite(values[1:])], None
    if isinstance(fitted.uncertainty, Replicates) and len(drawn) >= (1 - MOST_FAILED) * (len(values) - 1):
        ends = fitted.uncertainty.log_interval(float(values[0]), drawn, fitted.data.options.level)
    low, high = ends or (np.nan, np.nan)
    return {name: float(values[0]), f"{name}_low": low, f"{name}_high": high}


def _parabolas(data: ArmData) -> list[FittedArm]:
    """The power law of N* through the vertices of the same rows; none where they lie on no isoFLOP lines."""
    same = {
        name: getattr(data.options, name)
        for name in ("level", "bootstrap", "seed", "cluster", "n_convention", "unit")
    }
    options = with_given_compute(AnalysisOptions(law="isoflop", **same), data.rows)
    if data.optima or data.options.y != "loss" or not has_budgets(data.rows, options):
        return []
    try:
        of_vertices = arm_data(data.rows, options)
        [law] = fitted_laws([of_vertices])
    except DataError:
        return []
    return [FittedArm((of_vertices,), law, 0, vertex_replicates(law, data.rows, options))]


def _disagreement(surface: dict[str, Any], other: dict[str, Any]) -> str:
    """How far N* of the parabolas lies from that of the surface, where that is too far."""
    factor = max(other["N"] / surface["N"], surface["N"] / other["N"])
    apart = surface["N_high"] < other["N_low"] or other["N_high"] < surface["N_low"]
    if factor <= DISAGREE and not apart:
        return ""
    return (
        f"C {surface['flops']:.3g}: N* {surface['N']:.3g} by the surface, {other['N']:.3g} by isoFLOPs, a "
        f"factor of {factor:.2f}{'; their intervals do not meet' if apart else ''}: a parabola errs where "
        "the loss is not symmetric in ln N, a surface where its form is wrong"
    )


def _along(fitted: FittedArm, theta: FloatArray, flops: float) -> Callable[[FloatArray], FloatArray]:
    """The losses [rows, sizes] of the laws ``theta`` [rows, parameters] at ln N [rows, sizes] of a budget."""
    law, columns = fitted.law.points.law, fitted.law.points.parameters(theta, fitted.number)
    parameters = {name: values[:, None] for name, values in columns.items()}

    def losses(logs: FloatArray) -> FloatArray:
        n = np.exp(logs)
        at = {"N": n, "D": flops / 6 / n, "C": np.full_like(n, flops)}
        with np.errstate(all="ignore"):
            return law.predict(parameters, {name: at[name] for name in law.variables})

    return losses


def _lowest(losses: Callable[[FloatArray], FloatArray], n_rows: int, flops: float) -> FloatArray:
    """ln N [rows] of the lowest loss between one parameter and one token; nan where it lies at an end."""
    logs = np.repeat(np.linspace(0.0, np.log(flops / 6), SIZES)[None], n_rows, axis=0)
    rows, is_inside = np.arange(n_rows), np.ones(n_rows, bool)
    for zoom in range(ZOOMS + 1):
        values = losses(logs)
        best, step = np.argmin(np.where(np.isfinite(values), values, np.inf), axis=1), logs[0, 1] - logs[0, 0]
        if zoom == 0:
            is_inside = (best > 0) & (best < SIZES - 1)
        centre = logs[rows, best]
        logs = centre[:, None] + np.linspace(-step, step, ZOOMED if zoom < ZOOMS else 3)
    # Far closer than this the losses of neighbours differ by their rounding: a parabola ends the search.
    left, middle, right = losses(logs).T
    bend = left - 2 * middle + right
    offset = step * (left - right) / (2 * np.where(bend > 0, bend, np.inf))
    return np.where(is_inside, centre + np.clip(offset, -step, step), np.nan)
