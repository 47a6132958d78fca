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

from scalevec.analysis.data.runs import budgets_of, checkpoints
from scalevec.analysis.data.tidy import BoolArray, FloatArray, require_column
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.columns import variable_of
from scalevec.analysis.fits.intervals import FEWEST_RESIDUAL_FREEDOM, MOST_FAILED, NoInterval, Replicates
from scalevec.analysis.formatting import degrees
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw
from scalevec.analysis.statistics.noise import FEWEST_CLUSTERS

SAME_BUDGET = 1.1
"""Without a column ``budget``, points whose C is within this factor of the next lie on one budget."""
WINDOW = 10.0
"""Sizes within this factor of the lowest enter the parabola: over more decades the loss is no parabola."""
ENVELOPE_BUDGETS = 1500
"""Budgets at which training curves are compared, as in Hoffmann et al. 2022, section 3.1."""
FEWEST_OPTIMA = 2
IntArray = npt.NDArray[np.intp]


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
    tokens = _tokens(rows, n_params, compute)
    return [
        _with_tokens(_vertex(budget, n_params[near], loss[near]), n_params[at], tokens[at])
        for budget, at, near, loss in _lines(rows, options)
    ]


def has_budgets(rows: pd.DataFrame, options: AnalysisOptions) -> bool:
    """Whether the rows lie on isoFLOP lines: two budgets or more of three sizes, each far from the next."""
    n_params, compute = variable_of(rows, "N", options), variable_of(rows, "C", options)
    if "budget" in rows.columns or options.c_convention == "given":
        return True
    lines = [at for at in _budgets(rows, compute, options) if len(np.unique(n_params[at])) >= 3]
    return len(lines) > 1 and all(np.ptp(np.log(compute[at])) < 2 * np.log(SAME_BUDGET) for at in lines)


def _lines(
    rows: pd.DataFrame, options: AnalysisOptions
) -> Iterator[tuple[float, IntArray, IntArray, FloatArray]]:
    """Yield of each budget its C, the positions of its rows and of those near its lowest, and all losses."""
    n_params, compute = variable_of(rows, "N", options), variable_of(rows, "C", options)
    loss = rows["loss"].to_numpy(float)
    for at in _budgets(rows, compute, options):
        lowest = n_params[at][np.argmin(loss[at])]
        near = at[np.abs(np.log(n_params[at] / lowest)) <= np.log(WINDOW)]
        yield float(np.exp(np.mean(np.log(compute[at])))), at, near, loss


def vertex_replicates(
    law: FittedLaw, rows: pd.DataFrame, options: AnalysisOptions
) -> Replicates | NoInterval:
    """The law of N* refitted to vertices that the noise of whole runs moves.

    All parabolas are fitted again under noise: where every point is a run, normal noise of the residuals'
    size; where runs hold several points, each run's residuals from fits without them, with one random sign.
    t has the points less three for each parabola as its degrees of freedom, fewer where runs hold several.
    """
    if options.bootstrap == 0:
        return NoInterval("no interval was asked for")
    if dependent := checkpoints(rows, options.cluster):
        return NoInterval(f"no interval: {dependent}")
    parabolas = [
        _Parabola.through(near, variable_of(rows, "N", options)[near], loss[near])
        for budget, _, near, loss in _lines(rows, options)
        if np.any(np.isclose(budget, law.points.variables["C"], rtol=1e-12))
    ]
    used = np.concatenate([parabola.at for parabola in parabolas])
    codes, runs = pd.factorize(rows[options.cluster].iloc[used])
    df = (len(used) - 3 * len(parabolas)) * len(runs) / len(used)
    if len(runs) < FEWEST_CLUSTERS or df < FEWEST_RESIDUAL_FREEDOM:
        return NoInterval(
            f"no interval: {len(runs)} independent runs for {len(parabolas)} parabolas leave no noise figure"
        )
    rng = np.random.default_rng(options.seed)
    fitted, residuals, left = (
        np.concatenate(part)
        for part in zip(*((p.fitted, p.residuals, p.left) for p in parabolas), strict=True)
    )
    # In proportion to the loss: noise is alike in log loss, and larger budgets have the lower losses.
    sd = fitted * np.sqrt(np.sum((residuals / fitted) ** 2) / (len(used) - 3 * len(parabolas)))
    if len(runs) == len(used):
        noise = sd * rng.standard_normal((options.bootstrap, len(used)))
    else:
        # A parabola through three sizes leaves no residuals: its points have the noise of the others.
        of_point = np.where(left > 1e-6, residuals / np.maximum(left, 1e-6), sd)
        noise = rng.choice([-1.0, 1.0], (options.bootstrap, len(runs)))[:, codes] * of_point
    parts = np.split(noise, np.cumsum([len(p.at) for p in parabolas])[:-1], axis=1)
    moved = np.stack([p.vertices(of_one) for p, of_one in zip(parabolas, parts, strict=True)], axis=1)
    kept = np.all(np.isfinite(moved), axis=1)
    if np.mean(~kept) > MOST_FAILED:
        return NoInterval("no interval: the noise of the runs turns a parabola over")
    note = f"t with {degrees(df)}, from the residuals of {len(runs)} whole runs around the parabolas"
    return Replicates("cluster-t", df, law.redone(y=np.exp(moved[kept])), note)


@dataclass(frozen=True)
class _Parabola:
    """A parabola in ln N - ``centre`` through the points ``at``: coefficients are ``inverse`` @ losses.

    ``left`` [points] is the share of its own noise that each point's residual keeps.
    """

    at: IntArray
    centre: float
    inverse: FloatArray
    fitted: FloatArray
    residuals: FloatArray
    left: FloatArray

    @classmethod
    def through(cls, at: IntArray, n_params: FloatArray, loss: FloatArray) -> "_Parabola":
        logs = np.log(n_params)
        design = np.vander(logs - logs.mean(), 3, increasing=True)
        inverse = np.linalg.pinv(design)
        fitted = design @ (inverse @ loss)
        left = 1 - np.einsum("ij,ji->i", design, inverse)
        return cls(at, float(logs.mean()), inverse, fitted, loss - fitted, left)

    def vertices(self, noise: FloatArray) -> FloatArray:
        """ln N of the vertex [draws] under ``noise`` [draws, points]; nan for a maximum."""
        _, slope, curvature = self.inverse @ (self.fitted + noise).T
        return np.asarray(self.centre - slope / (2 * np.where(curvature > 0, curvature, np.nan)))


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


def _budgets(rows: pd.DataFrame, compute: FloatArray, options: AnalysisOptions) -> Iterator[IntArray]:
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


def _vertex(budget: float, n_params: FloatArray, loss: FloatArray) -> Optimum:
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
