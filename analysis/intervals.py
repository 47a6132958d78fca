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
from analysis.noise import are_copies, pooled_noise, t_quantile
from analysis.settings import FitSettings
from analysis.solver import Solution

FEWEST_CLUSTERS = 10
"""With fewer independent clusters an interval from clusters covers far less than it says: none is given."""
FEWEST_RESIDUAL_FREEDOM = 3
MOST_FAILED = 0.05
"""The share of redraws without a verified optimum above which there is no interval."""
MANY_POINTS = 200
"""From this many independent points on, resampling them needs no assumption on their noise."""
BLOCK_ELEMENTS = 4_000_000
"""Redraws x points of what is drawn and fitted at once, so that a long table does not exhaust memory."""
LOGARITHMIC = ("A", "B", "G", "Nc", "Dc")
"""Coefficients, whose intervals are symmetric in the logarithm."""


@dataclass(frozen=True)
class Redraws:
    """Fits to redrawn data: ``df`` degrees of freedom of t; infinite means percentiles are read."""

    method: str
    df: float
    solution: Solution
    note: str

    @property
    def draws(self) -> int:
        """How many redraws are used."""
        return len(self.solution.theta)

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
    if failed > MOST_FAILED * settings.bootstrap:
        return f"no interval: {failed} of the {settings.bootstrap} redraws leave a parameter free"
    note = made.note
    if failed:
        note += f"; {failed} of the {settings.bootstrap} redraws, of no verified optimum, are left out"
    return replace(made, solution=made.solution.rows(made.solution.optimal), note=note)


def _refusal(method: str, fit: Estimated, cells: FloatArray, n_clusters: int, blocks: Blocks | None) -> str:
    """Why the design cannot carry the method that was asked for; empty where it can."""
    n_points, n_free, n_cells = len(fit.y), len(fit.points.free), len(np.unique(cells))
    if n_cells <= n_free:
        return f"{n_cells} distinct points for {n_free} parameters cannot check the law"
    if method in ("percentile", "cluster-t") and n_clusters < FEWEST_CLUSTERS:
        return (
            f"{n_clusters} independent runs; a bootstrap of fewer than {FEWEST_CLUSTERS} covers far less "
            "than it says"
        )
    if method == "cluster-t" and n_clusters < n_free + FEWEST_RESIDUAL_FREEDOM:
        return f"{n_clusters} independent runs for {n_free} parameters"
    if method == "seed-t" and n_points == n_cells:
        return "no rung has two seeds"
    if method == "seed-t" and _repeats_are_copies(fit, cells, blocks):
        return "repeated points are exact copies, which carry no noise"
    if method == "residual-t" and n_points - n_free < FEWEST_RESIDUAL_FREEDOM:
        return f"{n_points} points for {n_free} parameters"
    if method == "seed-t" and blocks is not None:
        return ""
    if method in ("seed-t", "residual-t") and n_clusters < n_points:
        return f"{n_clusters} runs hold {n_points} points, which are not independent; use cluster-t"
    return ""


def _repeats_are_copies(fit: Estimated, cells: FloatArray, blocks: Blocks | None) -> bool:
    """Whether the points that seed noise is measured on never differ from each other."""
    measured = np.ones(len(fit.y), bool) if blocks is None else blocks.whole[blocks.cluster]
    return are_copies(_scale(fit, fit.y)[measured], cells[measured])


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

    def refitted(self, noise: Callable[[int], FloatArray]) -> Solution:
        """The fits to the law's values plus ``noise(rows)`` [rows, points], the next rows at each call."""
        return self._in_blocks(lambda rows: self.fit.redone(y=_shifted(self.fit, noise(rows))))

    def resampled(self, copies: Callable[[int], FloatArray]) -> Solution:
        """The fits to ``copies(rows)`` [rows, points] of each point."""
        return self._in_blocks(lambda rows: self.fit.redone(weights=copies(rows)))

    def _in_blocks(self, fitted: Callable[[int], Solution]) -> Solution:
        """``fitted(rows)`` for all draws, a block at a time; the generator goes on where it was."""
        return Solution.joined([fitted(rows) for rows in _block_sizes(self.draws, len(self.fit.y))])


def _block_sizes(n_rows: int, n_points: int) -> list[int]:
    """``n_rows`` in parts of at most :data:`BLOCK_ELEMENTS` elements (one row at least)."""
    most = max(1, BLOCK_ELEMENTS // n_points)
    return [min(most, n_rows - first) for first in range(0, n_rows, most)]


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
    values = _scale(fit, fit.y)
    if (blocks := design.blocks) is not None:
        df = blocks.covariance(values)[1]
        note = (
            f"t with {df} degrees of freedom, from seed noise of {design.n_clusters} whole clusters of points"
        )
        found = design.refitted(lambda rows: blocks.redraw(values, rows, design.rng)[0])
        return Redraws("seed-t", df, found, note)
    noise = pooled_noise(values, design.cells)
    note = f"t with {noise.df} degrees of freedom, from seed noise pooled within rungs (sd {noise.sd:.2g})"
    return Redraws("seed-t", noise.df, _normal(design, noise.sd), note)


def _normal(design: _Design, sd: float) -> Solution:
    """The fits to the law with independent normal noise."""
    n_points = len(design.fit.y)
    return design.refitted(lambda rows: sd * design.rng.standard_normal((rows, n_points)))


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
    note = f"t with {df} degrees of freedom, from the residuals (sd {sd:.2g}), since no seed repeats"
    return Redraws("residual-t", df, _normal(design, sd), note)


def _cluster_t(design: _Design) -> Redraws:
    """Each run's residuals, from a least-squares fit without that run, with one random sign a run."""
    fit, n_clusters = design.fit, design.n_clusters
    df = n_clusters - len(fit.points.free)
    residuals, unverified = residuals_left_out(fit, design.codes)
    note = f"t with {df} degrees of freedom, from the residuals of {n_clusters} whole runs{unverified}"

    def noise(rows: int) -> FloatArray:
        signs = design.rng.choice([-1.0, 1.0], (rows, n_clusters))
        return np.asarray(signs[:, design.codes] * residuals)

    return Redraws("cluster-t", df, design.refitted(noise), note)


def residuals_left_out(fit: Estimated, codes: npt.NDArray[np.intp]) -> tuple[FloatArray, str]:
    """Residual of each point from the least-squares fit to all other runs [points].

    With how many of those fits are no verified optima, as the end of a sentence; empty where all are.
    """
    squares = _least_squares(fit)
    n_runs, first, parts = int(codes.max()) + 1, 0, []
    for rows in _block_sizes(n_runs, len(codes)):
        runs = np.arange(first, first + rows)
        parts.append(squares.redone(weights=(codes[None] != runs[:, None]).astype(float)))
        first += rows
    found = Solution.joined(parts)
    result = np.empty(len(fit.y))
    for run, theta in enumerate(found.theta):
        own = codes == run
        result[own] = squares.at(theta).residuals()[own]
    failed = int(np.sum(~found.optimal))
    return result, f" ({failed} of the {n_runs} fits without one are no verified optimum)" if failed else ""


def _percentile(design: _Design) -> Redraws:
    n = design.n_clusters
    chances = np.full(n, 1 / n)
    found = design.resampled(
        lambda rows: design.rng.multinomial(n, chances, rows)[:, design.codes].astype(float)
    )
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
