"""Profile of the objective along any quantity of a law: how far it can move before the fit gets bad.

For each value of the quantity all other parameters are fitted again. The rise of the objective is judged by
``c/2 t^2`` with ``c = mean psi^2 / mean psi'`` (times n/(n - k)): for least squares that is the noise
variance, so this is the classical profile likelihood; for Huber's loss its robust form (Hampel et al. 1986,
chapter 7). A quantity whose rise stays below it on one side is unbounded there: the points leave it free.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError, require_choice
from scalevec.analysis.fits.arm_data import data_of_arms, fitted_laws
from scalevec.analysis.fits.intervals import FEWEST_RESIDUAL_FREEDOM, Bounds
from scalevec.analysis.options import AnalysisOptions, Interval, OptionChanges, chosen_options
from scalevec.analysis.solver.best_fit import FittedLaw
from scalevec.analysis.solver.law_points import solver_delta
from scalevec.analysis.solver.newton import newton
from scalevec.analysis.solver.objective import Block, Pull, evaluate, majorised_system, newton_system
from scalevec.analysis.statistics.noise import t_quantile

STEPS = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0, 40.0])
"""Where the profile is looked at, in standard errors on each side."""
_STRENGTH = 1e4
"""How firmly a walk holds its value; it need not arrive, since the pair (value, rise) is what is used."""
_SMALL = 1e-6
_OF_PAIRS = ("margin", "looks", "repeated_seeds", "settings")
_UNUSED = (*_OF_PAIRS, "hold_out", "interval", "bootstrap", "seed")
"""Options that a profile does not depend on."""


@dataclass(frozen=True)
class Profile:
    """The rise of the objective in units of the noise: sqrt(2 rise / c) is |t| at each value.

    ``low`` and ``high`` are None on a side where the points leave the quantity free.
    """

    name: str
    estimate: float
    values: FloatArray
    t: FloatArray
    low: float | None
    high: float | None
    level: float

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval, if it is bounded on both sides."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def note(self) -> str:
        """What is unbounded, as a sentence; empty where nothing is."""
        sides = [name for name, end in (("below", self.low), ("above", self.high)) if end is None]
        return f"the points leave {self.name} free {' and '.join(sides)}" if sides else ""


def profile(fit: FittedLaw, name: str, level: float = 0.95, arm: int = 0) -> Profile:
    """The profile of parameter ``name``, of ``arm`` where a joint fit gives each its own."""
    require_choice("parameter", name, fit.points.law.parameters)
    logarithmic = name in fit.points.law.logarithmic

    def value(theta: FloatArray) -> FloatArray:
        values = fit.points.parameters(theta, arm)[name]
        return np.log(np.maximum(values, 1e-300)) if logarithmic else values

    curve = profile_of(fit, value, name, level)
    curve = _exponential(curve) if logarithmic else curve
    # The objective may not rise enough before a bound: then the interval ends there.
    ends = zip((curve.low, curve.high), fit.points.law.ranges.get(name, (-np.inf, np.inf)), strict=True)
    low, high = (bound if end is None and 0 < abs(bound) < np.inf else end for end, bound in ends)
    return replace(curve, low=low, high=high)


def prediction_profile(fit: FittedLaw, at: Mapping[str, float], level: float = 0.95, arm: int = 0) -> Profile:
    """The profile of the law's value at one point, along its logarithm."""
    log_profile = profile_of(
        fit, lambda theta: np.log(fit.values_at(theta, at, arm)), "the prediction", level
    )
    return _exponential(log_profile)


@dataclass(frozen=True)
class ProfileIntervals:
    """Intervals that are read from the profile of the objective, which needs no bootstrap."""

    method: Interval = "profile"
    draws: int = 0

    def parameters(self, fit: FittedLaw, level: float, arm: int = 0) -> tuple[Bounds, str]:
        """The interval of each parameter that has one, and what the points leave free."""
        profiles = [profile(fit, name, level, arm) for name in fit.points.law.parameters]
        bounds = {curve.name: curve.interval for curve in profiles if curve.interval is not None}
        return bounds, "; ".join(
            ["profile of the objective", *(curve.note for curve in profiles if curve.note)]
        )


def _exponential(curve: Profile) -> Profile:
    """The profile of a quantity from that of its logarithm."""
    low, high = (None if end is None else float(np.exp(end)) for end in (curve.low, curve.high))
    values = np.exp(np.clip(curve.values, -700, 700))
    return replace(curve, estimate=float(np.exp(curve.estimate)), values=values, low=low, high=high)


def refusal(fit: FittedLaw, n_clusters: int) -> str:
    """Why the design cannot carry a profile, as a sentence; empty where it can."""
    n_points, n_free = len(fit.y), fit.theta.size
    n_cells = len(np.unique(fit.points.cells))
    if n_cells <= n_free:
        return f"no interval: {n_cells} distinct points for {n_free} parameters cannot check the law"
    if n_clusters < n_points:
        return (
            f"no interval: {n_clusters} runs hold {n_points} points, which are not independent, as a profile "
            "takes them to be; use cluster-t"
        )
    if n_points - n_free < FEWEST_RESIDUAL_FREEDOM:
        return f"no interval: {n_points} points for {n_free} parameters leave no noise figure for a profile"
    return ""


def profile_of(
    fit: FittedLaw, value: Callable[[FloatArray], FloatArray], name: str, level: float = 0.95
) -> Profile:
    """The profile of any quantity ``value``: theta [rows, parameters] -> [rows]."""
    df = len(fit.y) - fit.theta.size
    if df < 1:
        raise DataError(f"{len(fit.y)} points for {fit.theta.size} parameters have no profile")
    quantity = _with_slope(value)
    estimate = float(value(fit.theta[None])[0])
    scale = noise_scale(fit)
    error = _standard_error(fit, quantity, scale)
    critical = t_quantile(level, df)
    steps = np.concatenate([-STEPS[::-1], STEPS])
    values, t = _walk(fit, quantity, estimate + error * steps, error, scale)
    ends = []
    for sign in (-1.0, 1.0):
        end = _crossing(values, t, estimate, critical, sign)
        if end is not None:
            more = _walk(fit, quantity, np.array([end]), error, scale)
            values, t = np.concatenate([values, more[0]]), np.concatenate([t, more[1]])
            end = _crossing(values, t, estimate, critical, sign)
        ends.append(end)
    order = np.argsort(values)
    return Profile(name, estimate, values[order], t[order], ends[0], ends[1], level)


def noise_scale(fit: FittedLaw) -> float:
    """c of the module's text, for the fit's own loss."""
    n, k = len(fit.y), fit.theta.size
    residual = fit.residuals()
    weights = fit.points.weighed(None)[0]
    delta = solver_delta(fit.options)
    psi = np.clip(residual, -delta, delta)
    inside = max(float(np.mean(np.abs(residual) <= delta)), 1 / n)
    return max(float(np.mean(weights * psi**2)) / inside * n / (n - k), 1e-30)


def _with_slope(
    value: Callable[[FloatArray], FloatArray],
) -> Callable[[FloatArray], tuple[FloatArray, FloatArray]]:
    """The quantity with its gradient by central differences, exact enough to steer by."""

    def both(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        rows, columns = theta.shape
        steps = _SMALL * np.eye(columns)[:, None]
        around = np.concatenate([theta[None], theta + steps, theta - steps])
        values = value(around.reshape(-1, columns)).reshape(-1, rows)
        above, below = values[1 : columns + 1], values[columns + 1 :]
        return values[0], ((above - below) / (2 * _SMALL)).T

    return both


def _standard_error(
    fit: FittedLaw, quantity: Callable[[FloatArray], tuple[FloatArray, FloatArray]], scale: float
) -> float:
    """From the curvature at the best theta: only the unit of the walk."""
    block = Block.of(fit.problem(), np.arange(1))
    state = evaluate(block, fit.theta[None])
    matrix = newton_system(block, state, np.zeros(1))[1][0]
    if np.linalg.eigvalsh(matrix)[0] <= 0:
        matrix = majorised_system(block, state)[1][0]
    slope = quantity(fit.theta[None])[1][0]
    error = float(np.sqrt(max(scale * slope @ np.linalg.pinv(matrix, hermitian=True) @ slope, 0.0)))
    return min(max(error, 1e-9), 3.0)


def _walk(
    fit: FittedLaw,
    quantity: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    targets: FloatArray,
    error: float,
    scale: float,
) -> tuple[FloatArray, FloatArray]:
    """The value that was reached and |t| there, for each target."""
    pull = Pull(quantity, targets, np.full(len(targets), _STRENGTH * scale / error**2))
    problem = replace(fit.problem(), pull=pull)
    reached = newton(problem, np.repeat(fit.theta[None], len(targets), axis=0))
    values = quantity(reached.theta)[0]
    spent = 0.5 * pull.strength * (values - targets) ** 2
    rise = np.maximum(reached.objective - spent - fit.objective, 0.0)
    return values, np.sqrt(2 * rise / scale)


def _crossing(
    values: FloatArray, t: FloatArray, estimate: float, critical: float, sign: float
) -> float | None:
    """The value nearest to the estimate on one side at which |t| reaches ``critical``."""
    distance = (values - estimate) * sign
    order = np.argsort(distance)
    order = order[distance[order] > 0]
    distance, height = (np.concatenate([[0.0], of_side[order]]) for of_side in (distance, t))
    above = np.flatnonzero(height >= critical)
    if not len(above):
        return None
    last = int(above[0])
    share = (critical - height[last - 1]) / (height[last] - height[last - 1])
    return float(estimate + sign * (distance[last - 1] + share * (distance[last] - distance[last - 1])))


def profiles(
    results: pd.DataFrame, options: AnalysisOptions | None = None, **changes: Unpack[OptionChanges]
) -> pd.DataFrame:
    """Profile the objective: how far each parameter can move before the fit gets bad.

    Source: profile likelihood, for Huber's loss its robust form (Hampel et al. 1986, chapter 7); see
    the module's text.

    Args:
        results: Tidy rows, one per trial, as for :func:`fit`.
        options: How to fit; by default :class:`AnalysisOptions` with all its defaults.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        One row for each ``value`` of a ``parameter`` of an ``arm`` at which the others were fitted again:
        ``estimate`` is the best value, ``t`` the root of twice the objective's rise in units of the noise,
        ``low`` and ``high`` the interval at ``level``, nan on a side where the points leave it free.

    Raises:
        DataError: Bad values, a design that carries no profile.

    >>> compute = np.geomspace(1e12, 1e15, 12)
    >>> noise = np.random.default_rng(0).normal(0, 1e-3, 12)
    >>> table = pd.DataFrame({"n_params": compute**0.5, "n_tokens": compute**0.5 / 6})
    >>> table["loss"] = 40 * compute**-0.1 * np.exp(noise)
    >>> curves = profiles(table, law="power", x="C")
    >>> curves = curves[curves.parameter == "alpha"]
    >>> bool((curves.low < 0.1).all() and (curves.high > 0.1).all())
    True
    """
    arms = data_of_arms(results, chosen_options(options, changes, unused=_UNUSED))
    laws = fitted_laws(arms)
    jointly = bool(laws[0].points.law.per_arm)
    n_clusters = [data.clusters.nunique() for data in arms]
    curves = []
    for number, (data, law) in enumerate(zip(arms, laws, strict=True)):
        if reason := data.doubt or refusal(law, sum(n_clusters) if jointly else n_clusters[number]):
            raise DataError(reason)
        for name in law.points.law.parameters:
            curve = profile(law, name, data.options.level, number if jointly else 0)
            low, high = (np.nan if end is None else end for end in (curve.low, curve.high))
            columns = {"arm": data.arm, "parameter": name, "estimate": curve.estimate}
            columns |= {"value": curve.values, "t": curve.t, "low": low, "high": high}
            curves.append(pd.DataFrame(columns))
    return pd.concat(curves, ignore_index=True)
