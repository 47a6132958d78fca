"""Intervals of a fit: what the noise leaves open for any quantity of the law.

Each method makes fits to redrawn data; the interval of a quantity is the estimate plus and minus t times
their spread (on the logarithm of coefficients and predictions), or their percentiles. The redraws are around
the *law*: around the means of cells a fit with a small delta would see the cells' noise twice, and the
interval of a multiplier would cover 98 % instead of 95 %. ``benchmarks/calibration.py`` simulates what each
method covers, which is where the order in :func:`choose` comes from. No interval covers a law of the wrong
form.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.blocks import Blocks, blocks_of
from analysis.data import FloatArray
from analysis.estimate import Estimated, estimated
from analysis.noise import pooled_noise, t_quantile
from analysis.settings import FitSettings
from analysis.solver import Solution

FEWEST_CLUSTERS = 10
"""With fewer independent clusters an interval from clusters covers far less than it says: none is given."""
FEWEST_RESIDUAL_FREEDOM = 3
MANY_POINTS = 200
"""From this many independent points on, resampling them needs no assumption on their noise."""
LOGARITHMIC = ("A", "B", "G", "Nc", "Dc")
"""Coefficients, whose intervals are symmetric in the logarithm."""


@dataclass(frozen=True)
class Redraws:
    """Fits to redrawn data: ``df`` degrees of freedom of t; infinite means percentiles are read."""

    method: str
    df: float
    solution: Solution
    note: str

    def interval(self, estimate: float, values: FloatArray, level: float) -> tuple[float, float] | None:
        """The interval of a quantity whose redraws are ``values`` [draws]; None where they overflow."""
        if not np.all(np.isfinite(values)):
            return None
        if np.isinf(self.df):
            low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
            return float(low), float(high)
        half = t_quantile(level, self.df) * float(np.std(values))
        return estimate - half, estimate + half

    def log_interval(self, estimate: float, values: FloatArray, level: float) -> tuple[float, float] | None:
        """The same for a positive quantity, symmetric in its logarithm."""
        with np.errstate(divide="ignore", over="ignore"):
            found = self.interval(float(np.log(estimate)), np.log(values), level)
            bounds = None if found is None else np.exp(found)
        if bounds is None or not np.all(np.isfinite(bounds)):
            return None
        return float(bounds[0]), float(bounds[1])


def choose(
    n_points: int, n_free: int, cells: FloatArray, n_clusters: int, *, repeated: bool = False
) -> tuple[str, str]:
    """The method for a design, and why; "none" where it carries no interval.

    ``repeated``: whether its clusters repeat each other (``analysis.blocks``).
    """
    if repeated:
        return "seed-t", ""
    if n_clusters < n_points:
        if n_clusters < max(FEWEST_CLUSTERS, n_free + FEWEST_RESIDUAL_FREEDOM):
            return "none", (
                f"{n_clusters} independent runs hold {n_points} points; fewer than {FEWEST_CLUSTERS} runs "
                "cover far less than an interval says"
            )
        return "cluster-t", ""
    if n_points > len(np.unique(cells)):
        return "seed-t", ""
    if n_points >= MANY_POINTS:
        return "percentile", ""
    if n_points - n_free >= FEWEST_RESIDUAL_FREEDOM:
        return "residual-t", ""
    return "none", f"{n_points} points without a repeated seed for {n_free} parameters leave no noise figure"


def redraws(
    fit: Estimated, cells: FloatArray, clusters: "pd.Series[str]", settings: FitSettings
) -> Redraws | str:
    """Fits to redrawn data by ``settings.interval``, or the reason why there are none, as a sentence.

    ``cells`` [points] are equal where only the seed differs; ``clusters`` [points] name the runs.
    """
    codes, names = pd.factorize(clusters)
    if settings.bootstrap == 0 or settings.interval == "none":
        return "no interval was asked for"
    blocks = blocks_of(cells, codes) if len(names) < len(fit.y) else None
    method, reason = settings.interval, ""
    if method == "auto":
        method, reason = choose(
            len(fit.y), len(fit.points.free), cells, len(names), repeated=blocks is not None
        )
    problem = reason or _refusal(method, fit, cells, len(names), blocks)
    if problem:
        return f"no interval: {problem}"
    rng = np.random.default_rng(settings.seed)
    made = _MAKERS[method](_Design(fit, cells, codes, blocks, settings.bootstrap, rng))
    failed = int(np.sum(~made.solution.optimal))
    if failed > 0.05 * settings.bootstrap:
        return f"no interval: {failed} of the {settings.bootstrap} redraws leave a parameter free"
    return replace(made, solution=made.solution.rows(made.solution.optimal))


def _refusal(method: str, fit: Estimated, cells: FloatArray, n_clusters: int, blocks: Blocks | None) -> str:
    """Why the design cannot carry the method that was asked for; empty where it can."""
    n_points, n_free = len(fit.y), len(fit.points.free)
    if method in ("percentile", "cluster-t") and n_clusters < FEWEST_CLUSTERS:
        return (
            f"{n_clusters} independent runs; a bootstrap of fewer than {FEWEST_CLUSTERS} covers far less "
            "than it says"
        )
    if method == "cluster-t" and n_clusters < n_free + FEWEST_RESIDUAL_FREEDOM:
        return f"{n_clusters} independent runs for {n_free} parameters"
    if method == "seed-t" and n_points == len(np.unique(cells)):
        return "no rung has two seeds"
    if method == "residual-t" and n_points - n_free < FEWEST_RESIDUAL_FREEDOM:
        return f"{n_points} points for {n_free} parameters"
    if method == "seed-t" and blocks is not None:
        return ""
    if method in ("seed-t", "residual-t") and n_clusters < n_points:
        return f"{n_clusters} runs hold {n_points} points, which are not independent; use cluster-t"
    return ""


@dataclass(frozen=True)
class _Design:
    """A fit with the cells [points] and clusters [points] of its points, and how often to redraw them.

    ``blocks`` where points share clusters that repeat each other.
    """

    fit: Estimated
    cells: FloatArray
    codes: npt.NDArray[np.intp]
    blocks: Blocks | None
    draws: int
    rng: np.random.Generator

    @property
    def n_clusters(self) -> int:
        return int(self.codes.max()) + 1


def _shifted(fit: Estimated, noise: FloatArray) -> FloatArray:
    """The law's values plus ``noise`` [draws, points] on the scale of the residual."""
    base = fit.predicted()
    if fit.options.residual == "log":
        return np.asarray(base * np.exp(noise))
    return np.maximum(base + noise, 1e-6 * base)


def _scale(fit: Estimated, y: FloatArray) -> FloatArray:
    return np.log(y) if fit.options.residual == "log" else y


def _seed_t(design: _Design) -> Redraws:
    fit = design.fit
    if design.blocks is not None:
        drawn, df = design.blocks.redraw(_scale(fit, fit.y), design.draws, design.rng)
        note = (
            f"t with {df} degrees of freedom, from seed noise of {design.n_clusters} whole clusters of points"
        )
        return Redraws("seed-t", df, fit.redone(y=_shifted(fit, drawn)), note)
    noise = pooled_noise(_scale(fit, fit.y), design.cells)
    drawn = _shifted(fit, noise.sd * design.rng.standard_normal((design.draws, len(fit.y))))
    note = f"t with {noise.df} degrees of freedom, from seed noise pooled within rungs (sd {noise.sd:.2g})"
    return Redraws("seed-t", noise.df, fit.redone(y=drawn), note)


def _least_squares(fit: Estimated) -> Estimated:
    """The same points fitted by least squares."""
    if fit.options.loss == "l2":
        return fit
    return estimated(fit.points, fit.y, replace(fit.options, loss="l2"))


def residual_noise(fit: Estimated) -> tuple[float, int]:
    """sd of the residuals of a least-squares fit and its degrees of freedom.

    A fit with a small delta passes through points, so that its own residuals say too much and too little.
    """
    squares = _least_squares(fit)
    df = len(fit.y) - len(fit.points.free)
    return float(np.sqrt(np.sum(squares.residuals() ** 2) / df)), df


def _residual_t(design: _Design) -> Redraws:
    sd, df = residual_noise(design.fit)
    drawn = _shifted(design.fit, sd * design.rng.standard_normal((design.draws, len(design.fit.y))))
    note = f"t with {df} degrees of freedom, from the residuals (sd {sd:.2g}), since no seed repeats"
    return Redraws("residual-t", df, design.fit.redone(y=drawn), note)


def _cluster_t(design: _Design) -> Redraws:
    """Each run's residuals, from a least-squares fit without that run, with one random sign a run."""
    fit, n_clusters = design.fit, design.n_clusters
    df = n_clusters - len(fit.points.free)
    signs = design.rng.choice([-1.0, 1.0], (design.draws, n_clusters))[:, design.codes]
    noise = signs * residuals_left_out(fit, design.codes)
    note = f"t with {df} degrees of freedom, from the residuals of {n_clusters} whole runs"
    return Redraws("cluster-t", df, fit.redone(y=_shifted(fit, noise)), note)


def residuals_left_out(fit: Estimated, codes: npt.NDArray[np.intp]) -> FloatArray:
    """Residual of each point from the least-squares fit to all other runs [points]."""
    squares = _least_squares(fit)
    others = (codes[None] != np.arange(codes.max() + 1)[:, None]).astype(float)
    found = squares.redone(weights=others)
    result = np.empty(len(fit.y))
    for run, theta in enumerate(found.theta):
        own = codes == run
        result[own] = squares.at(theta).residuals()[own]
    return result


def _percentile(design: _Design) -> Redraws:
    n = design.n_clusters
    copies = design.rng.multinomial(n, np.full(n, 1 / n), design.draws)
    found = design.fit.redone(weights=copies[:, design.codes].astype(float))
    return Redraws("percentile", np.inf, found, f"percentile bootstrap over {n} independent runs")


_MAKERS: dict[str, Callable[[_Design], Redraws]] = {
    "seed-t": _seed_t,
    "residual-t": _residual_t,
    "cluster-t": _cluster_t,
    "percentile": _percentile,
}


def parameter_intervals(
    fit: Estimated, made: Redraws, level: float, arm: int = 0
) -> dict[str, tuple[float, float]]:
    """The interval of each parameter that has one: E not below zero, coefficients on the log scale."""
    found = {}
    estimates = fit.parameters(arm)
    for name, values in fit.points.parameters(made.solution.theta, arm).items():
        if name in LOGARITHMIC:
            bounds = made.log_interval(estimates[name], values, level)
        else:
            bounds = made.interval(estimates[name], values, level)
            if name == "E" and bounds is not None:
                bounds = max(bounds[0], 0.0), bounds[1]
        if bounds is not None:
            found[name] = bounds
    return found


def prediction_interval(
    fit: Estimated, made: Redraws, variables: Mapping[str, float], level: float, arm: int = 0
) -> tuple[float, float] | None:
    """The interval of the law's value at one point, symmetric in the logarithm."""
    at = {name: np.array([value]) for name, value in variables.items()}
    law = fit.points.law
    each = {name: values[:, None] for name, values in fit.points.parameters(made.solution.theta, arm).items()}
    estimate = float(law.predict(fit.parameters(arm), at)[0])
    rows = {name: np.broadcast_to(value, (len(made.solution.theta), 1)) for name, value in at.items()}
    return made.log_interval(estimate, law.predict(each, rows)[:, 0], level)  # type: ignore[arg-type]
