"""Compute-optimal sizes: the vertices of isoFLOP parabolas.

A vertex counts only where it is a minimum inside the sampled range; otherwise its budget is censored, and
the power law N*(C) is fitted to the others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import budgets_of, checkpoints
from scalevec.analysis.data.tidy import FloatArray, variable_of
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.intervals import FEWEST_RESIDUAL_FREEDOM, MOST_FAILED, Replicates, no_interval
from scalevec.analysis.formatting import degrees
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw
from scalevec.analysis.statistics.noise import FEWEST_CLUSTERS, IntArray

SAME_BUDGET = 1.1
"""Where C is 6ND, points whose C is within this factor of the next lie on one budget."""
WINDOW = 10.0
"""Sizes within this factor of the lowest enter the parabola: over more decades the loss is no parabola."""


@dataclass(frozen=True)
class Optimum:
    """The best size at one budget. ``censored`` says why there is none; N*, D* and the loss are None then."""

    budget: float
    n_points: int
    n_star: float | None = None
    loss: float | None = None
    censored: str = ""
    d_star: float | None = None
    tokens_per_parameter: float | None = None


def optima(rows: pd.DataFrame, options: AnalysisOptions) -> list[Optimum]:
    """The vertex of a parabola in ln N through the losses of each budget, smallest budget first.

    Raises :class:`DataError` where fewer than two are left, since no power law goes through one.
    """
    of_budgets = [line.optimum() for line in budget_lines(rows, options)]
    n_left = sum(not optimum.censored for optimum in of_budgets)
    if n_left < 2:
        reasons = "; ".join(f"C {o.budget:.3g}: {o.censored}" for o in of_budgets if o.censored)
        raise DataError(
            f"law {options.law} needs two budgets with an optimum inside their range, found {n_left}"
            + (f" ({reasons[:400]})" if reasons else "")
        )
    return of_budgets


@dataclass(frozen=True)
class BudgetLine:
    """One budget C: the rows ``at`` that are near its lowest loss, and the parabola through them.

    ``logs`` are ln N and ``loss`` the losses of those rows; ``sizes`` and ``tokens`` N and D of all its rows.
    """

    budget: float
    at: IntArray
    logs: FloatArray
    loss: FloatArray
    sizes: FloatArray
    tokens: FloatArray

    @cached_property
    def _design(self) -> FloatArray:
        return np.vander(self.logs - self.logs.mean(), 3, increasing=True)

    @cached_property
    def _inverse(self) -> FloatArray:
        return np.asarray(np.linalg.pinv(self._design), float)

    @property
    def bends(self) -> bool:
        """Whether it has the three sizes that a parabola needs."""
        return len(np.unique(np.round(self.logs, 9))) > 2

    def parabola(self, logs: FloatArray) -> FloatArray:
        """The loss at ln N [points]."""
        return np.asarray(
            np.vander(logs - self.logs.mean(), 3, increasing=True) @ (self._inverse @ self.loss)
        )

    @property
    def left(self) -> FloatArray:
        """The share of its own noise that each row's residual keeps."""
        return np.asarray(1 - np.einsum("ij,ji->i", self._design, self._inverse))

    def vertices(self, noise: FloatArray) -> FloatArray:
        """ln N of the vertex [draws] under ``noise`` [draws, rows]; nan for a maximum."""
        _, slope, curvature = self._inverse @ (self.parabola(self.logs) + noise).T
        return np.asarray(self.logs.mean() - slope / (2 * np.where(curvature > 0, curvature, np.nan)))

    def optimum(self) -> Optimum:
        """The vertex with its D*, or why the budget is censored."""
        if not self.bends:
            return Optimum(self.budget, len(self.at), censored="fewer than 3 sizes carry no parabola")
        _, slope, curvature = self._inverse @ self.loss
        if curvature <= 0:
            reason = "the parabola has a maximum, not a minimum"
            return Optimum(self.budget, len(self.at), censored=reason)
        offset = -slope / (2 * curvature)
        n_star = float(np.exp(np.clip(self.logs.mean() + offset, -700, 700)))
        low, high = np.exp(self.logs.min()), np.exp(self.logs.max())
        if not low < n_star < high:
            reason = f"vertex {n_star:.3g} outside the sizes, sampled {low:.3g} to {high:.3g}"
            return Optimum(self.budget, len(self.at), censored=reason)
        # Along a budget ln D is a line in ln N.
        order = np.argsort(self.sizes, kind="stable")
        logs_of_d = np.interp(np.log(n_star), np.log(self.sizes[order]), np.log(self.tokens[order]))
        d_star, loss = float(np.exp(logs_of_d)), float(offset ** np.arange(3) @ self._inverse @ self.loss)
        return Optimum(self.budget, len(self.at), n_star, loss, "", d_star, d_star / n_star)


def budget_lines(rows: pd.DataFrame, options: AnalysisOptions) -> Iterator[BudgetLine]:
    """The budgets of one arm's rows, smallest first."""
    n_params, compute = variable_of(rows, "N", options), variable_of(rows, "C", options)
    tokens = rows["n_tokens"].to_numpy(float) if "n_tokens" in rows else compute / 6 / n_params
    loss = rows["loss"].to_numpy(float)
    planned = budgets_of(rows) if options.c_convention == "given" else None
    if planned is None:
        order = np.argsort(compute, kind="stable")
        gaps = np.flatnonzero(np.diff(np.log(compute[order])) > np.log(SAME_BUDGET))
        budgets = np.split(order, gaps + 1)
    else:
        budgets = [np.flatnonzero(planned == budget) for budget in np.unique(planned)]
    for at in budgets:
        lowest = n_params[at][np.argmin(loss[at])]
        near = at[np.abs(np.log(n_params[at] / lowest)) <= np.log(WINDOW)]
        budget = float(np.exp(np.mean(np.log(compute[at]))))
        yield BudgetLine(budget, near, np.log(n_params[near]), loss[near], n_params[at], tokens[at])


def vertex_replicates(law: FittedLaw, rows: pd.DataFrame, options: AnalysisOptions) -> Replicates:
    """The law of N* refitted to vertices that the noise of whole runs moves.

    All parabolas are fitted again under noise: where every point is a run, normal noise of the residuals'
    size; where runs hold several points, each run's residuals from fits without them, with one random sign.
    t has the points less three for each parabola as its degrees of freedom, fewer where runs hold several.
    """
    if options.bootstrap == 0:
        return no_interval(law, "no interval was asked for")
    if dependent := checkpoints(rows, options.cluster):
        return no_interval(law, f"no interval: {dependent}")
    kept = law.points.variables["C"]
    lines = [line for line in budget_lines(rows, options) if np.isclose(line.budget, kept, rtol=1e-12).any()]
    used = np.concatenate([line.at for line in lines])
    codes, runs = pd.factorize(rows[options.cluster].iloc[used])
    df = (len(used) - 3 * len(lines)) * len(runs) / len(used)
    if len(runs) < FEWEST_CLUSTERS or df < FEWEST_RESIDUAL_FREEDOM:
        few = f"{len(runs)} independent runs for {len(lines)} parabolas"
        return no_interval(law, f"no interval: {few} leave no noise figure")
    rng = np.random.default_rng(options.seed)
    of_lines = [(line.parabola(line.logs), line.loss, line.left) for line in lines]
    fitted, loss, left = map(np.concatenate, zip(*of_lines, strict=True))
    residuals = loss - fitted
    # In proportion to the loss: noise is alike in log loss, and larger budgets have the lower losses.
    sd = fitted * np.sqrt(np.sum((residuals / fitted) ** 2) / (len(used) - 3 * len(lines)))
    if len(runs) == len(used):
        noise = sd * rng.standard_normal((options.bootstrap, len(used)))
    else:
        # A parabola through three sizes leaves no residuals: its points have the noise of the others.
        of_point = np.where(left > 1e-6, residuals / np.maximum(left, 1e-6), sd)
        noise = rng.choice([-1.0, 1.0], (options.bootstrap, len(runs)))[:, codes] * of_point
    parts = np.split(noise, np.cumsum([len(line.at) for line in lines])[:-1], axis=1)
    moved = np.stack([line.vertices(part) for line, part in zip(lines, parts, strict=True)], axis=1)
    defined = np.all(np.isfinite(moved), axis=1)
    if np.mean(~defined) > MOST_FAILED:
        return no_interval(law, "no interval: the noise of the runs turns a parabola over")
    note = f"t with {degrees(df)}, from the residuals of {len(runs)} whole runs around the parabolas"
    return Replicates("cluster-t", df, law.redone(y=np.exp(moved[defined])), note)
