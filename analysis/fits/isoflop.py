"""Compute-optimal sizes: the vertices of isoFLOP parabolas, or the lower envelope of training curves.

A vertex counts only where it is a minimum inside the sampled range; otherwise its budget is censored, and
the power law N*(C) is fitted to the others.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.data.runs import budgets_of
from scalevec.analysis.data.tidy import BoolArray, FloatArray, require_column
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.columns import variable_of
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions

SAME_BUDGET = 1.1
"""Without a column ``budget``, points whose C is within this factor of the next lie on one budget."""
WINDOW = 10.0
"""Sizes within this factor of the lowest enter the parabola: over more decades the loss is no parabola."""
ENVELOPE_BUDGETS = 1500
"""Budgets at which training curves are compared, as in Hoffmann et al. 2022, section 3.1."""
FEWEST_OPTIMA = 2


@dataclass(frozen=True)
class Optimum:
    """The best size at one budget. ``censored`` says why there is none; N*, D* and the loss are None then."""

    budget: float
    n_points: int
    n_star: float | None
    loss: float | None
    censored: str = ""
    d_star: float | None = None
    tokens_per_parameter: float | None = None


def optima(rows: pd.DataFrame, options: AnalysisOptions) -> list[Optimum]:
    """The optima of one arm's rows by the law's method, smallest budget first.

    Raises :class:`DataError` where fewer than two are left, since no power law goes through one.
    """
    law = law_named(options.law)
    all_optima = isoflop_optima(rows, options) if law.method == "isoflop" else envelope_optima(rows, options)
    left = [optimum for optimum in all_optima if not optimum.censored]
    if len(left) < FEWEST_OPTIMA:
        reasons = "; ".join(f"C {o.budget:.3g}: {o.censored}" for o in all_optima if o.censored)
        raise DataError(
            f"law {law.name} needs two budgets with an optimum inside their range, found {len(left)}"
            + (f" ({reasons[:400]})" if reasons else "")
        )
    return all_optima


def isoflop_optima(rows: pd.DataFrame, options: AnalysisOptions) -> list[Optimum]:
    """A parabola in ln N through the losses of each budget, and its vertex."""
    n_params, compute = variable_of(rows, "N", options), variable_of(rows, "C", options)
    loss = rows["loss"].to_numpy(float)
    tokens = _tokens(rows, n_params, compute)
    best_sizes = []
    for at in _budgets(rows, compute, options):
        optimum = _vertex(n_params[at], loss[at], float(np.exp(np.mean(np.log(compute[at])))))
        best_sizes.append(_with_tokens(optimum, n_params[at], tokens[at]))
    return best_sizes


def _tokens(rows: pd.DataFrame, n_params: FloatArray, compute: FloatArray) -> FloatArray:
    """D of each row; C / 6N where the table gives none."""
    return rows["n_tokens"].to_numpy(float) if "n_tokens" in rows else compute / 6 / n_params


def _with_tokens(optimum: Optimum, n_params: FloatArray, tokens: FloatArray) -> Optimum:
    """``optimum`` with its D*: along a budget ln D is a line in ln N, between the sizes next to N*."""
    if optimum.n_star is None:
        return optimum
    order = np.argsort(n_params, kind="stable")
    at = np.interp(np.log(optimum.n_star), np.log(n_params[order]), np.log(tokens[order]))
    d_star = float(np.exp(at))
    return replace(optimum, d_star=d_star, tokens_per_parameter=d_star / optimum.n_star)


def _budgets(
    rows: pd.DataFrame, compute: FloatArray, options: AnalysisOptions
) -> Iterator[npt.NDArray[np.intp]]:
    """Positions of the rows of each budget, smallest first."""
    planned: pd.Series[Any] | None = rows["budget"].astype(str) if "budget" in rows.columns else None
    if planned is None and options.c_convention == "given":
        planned = budgets_of(rows)
    if planned is not None:
        of_budget = rows.reset_index(drop=True).groupby(planned.to_numpy()).indices.values()
        yield from sorted(map(np.asarray, of_budget), key=lambda at: float(np.mean(compute[at])))
        return
    order = np.argsort(compute, kind="stable")
    gaps = np.flatnonzero(np.diff(np.log(compute[order])) > np.log(SAME_BUDGET))
    yield from np.split(order, gaps + 1)


def _vertex(n_params: FloatArray, loss: FloatArray, budget: float) -> Optimum:
    near = np.abs(np.log(n_params / n_params[np.argmin(loss)])) <= np.log(WINDOW)
    n_params, loss = n_params[near], loss[near]
    logs = np.log(n_params)
    n_sizes = len(np.unique(np.round(logs, 9)))
    if n_sizes < 3:
        return Optimum(budget, len(loss), None, None, f"{n_sizes} sizes carry no parabola")
    curve = np.polynomial.Polynomial.fit(logs, loss, 2).convert(domain=[-1, 1], window=[-1, 1])
    _, slope, curvature = (float(value) for value in np.pad(curve.coef, (0, 3 - len(curve.coef))))
    if curvature <= 0:
        return Optimum(budget, len(loss), None, None, "the parabola has a maximum, not a minimum")
    vertex = -slope / (2 * curvature)
    if not logs.min() < vertex < logs.max():
        sampled = f"sampled {n_params.min():.3g} to {n_params.max():.3g}"
        outside = f"vertex {np.exp(np.clip(vertex, -700, 700)):.3g} outside the sizes, {sampled}"
        return Optimum(budget, len(loss), None, None, outside)
    return Optimum(budget, len(loss), float(np.exp(vertex)), float(curve(vertex)))


def envelope_optima(rows: pd.DataFrame, options: AnalysisOptions) -> list[Optimum]:
    """Each run that is lowest somewhere, at the geometric middle of the budgets where it is lowest.

    ``rows`` are points of training curves, ``options.cluster`` names their run. Where the lowest run is
    the smallest or the largest of those that reach a budget, a better size may lie beyond: censored.
    """
    require_column(rows, options.cluster, "the envelope: it names the run of a training curve")
    runs = [_curve(of_run, options) for _, of_run in rows.groupby(options.cluster, sort=False)]
    if max(len(compute) for _, compute, _, _ in runs) < 2:
        raise DataError(
            f"column {options.cluster!r} names a run for each row; the envelope needs training curves: "
            "several rows per run, its tokens so far in n_tokens"
        )
    sizes = np.array([n for n, _, _, _ in runs])
    budgets = np.geomspace(
        min(c.min() for _, c, _, _ in runs), max(c.max() for _, c, _, _ in runs), ENVELOPE_BUDGETS
    )
    losses = np.array([_interpolated(budgets, c, y) for _, c, y, _ in runs])
    reached = np.isfinite(losses).sum(axis=0) > 0
    lowest = np.argmin(np.where(np.isfinite(losses), losses, np.inf), axis=0)
    there = np.where(np.isfinite(losses), sizes[:, None], np.nan)[:, reached]
    winner = sizes[lowest[reached]]
    inside = np.zeros(len(budgets), bool)
    inside[reached] = (winner > np.nanmin(there, axis=0)) & (winner < np.nanmax(there, axis=0))
    won_by = []
    for run in np.unique(lowest[reached]):
        won = reached & (lowest == run)
        optimum = _won(budgets, losses[run], won, inside, float(sizes[run]))
        won_by.append(_along(optimum, runs[run][1], runs[run][3]))
    return sorted(won_by, key=lambda optimum: optimum.budget)


def _along(optimum: Optimum, compute: FloatArray, tokens: FloatArray) -> Optimum:
    """``optimum`` with the tokens that its run had seen at the budget."""
    if optimum.n_star is None:
        return optimum
    d_star = float(np.exp(np.interp(np.log(optimum.budget), np.log(compute), np.log(tokens))))
    return replace(optimum, d_star=d_star, tokens_per_parameter=d_star / optimum.n_star)


def _won(
    budgets: FloatArray, losses: FloatArray, won: BoolArray, inside: BoolArray, n_params: float
) -> Optimum:
    bounded = bool(inside[won].all())
    middle = float(np.exp(np.mean(np.log(budgets[won][[0, -1]]))))
    loss = float(np.interp(np.log(middle), np.log(budgets[won]), losses[won]))
    if not bounded:
        return Optimum(middle, int(won.sum()), None, None, f"N {n_params:.3g} is at the edge of the sizes")
    return Optimum(middle, int(won.sum()), n_params, loss)


def _curve(rows: pd.DataFrame, options: AnalysisOptions) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """A run's N, and C, loss and tokens along its curve in the order of C."""
    compute, n_params = variable_of(rows, "C", options), variable_of(rows, "N", options)
    order = np.argsort(compute)
    tokens = _tokens(rows, n_params, compute)
    return float(n_params[0]), compute[order], rows["loss"].to_numpy(float)[order], tokens[order]


def _interpolated(budgets: FloatArray, compute: FloatArray, loss: FloatArray) -> FloatArray:
    """ln-linear interpolation, nan outside the curve."""
    return np.asarray(np.interp(np.log(budgets), np.log(compute), loss, left=np.nan, right=np.nan))
