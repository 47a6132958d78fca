"""Intervals of a fit: what the noise leaves open for any quantity of the law.

Each method fits bootstrap replicates of the data; the interval of a quantity is the estimate plus and minus t
times their spread (on the logarithm of coefficients and predictions). Replicates are drawn
around the *law*: around the means of cells a fit with a small delta would see the cells' noise twice,
and the interval of a multiplier would cover 98 % instead of 95 %. ``benchmarks/calibration.py`` simulates
what each method covers, which is where the order in :func:`choose` comes from. No interval covers a law of
the wrong form.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.options import AnalysisOptions, Interval
from scalevec.analysis.solver.best_fit import FittedLaw, fit_points
from scalevec.analysis.solver.newton import Solution
from scalevec.analysis.statistics.noise import FEWEST_CLUSTERS, are_copies, pooled_noise, t_quantile
from scalevec.analysis.statistics.rung_noise import Blocks, blocks_of

FEWEST_RESIDUAL_FREEDOM = 3
MOST_FAILED = 0.05
"""The share of replicates without a verified optimum above which there is no interval."""
BLOCK_ELEMENTS = 4_000_000
"""Replicates x points of what is drawn and fitted at once, so that a long table does not exhaust memory."""
Bounds = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Replicates:
    """Fits to bootstrap replicates, and the degrees of freedom ``df`` of their noise."""

    method: Interval
    df: float
    solution: Solution
    note: str
    run_sd: float = np.nan
    """sd of one run's noise on the scale of the residual."""

    @property
    def draws(self) -> int:
        """How many replicates are used."""
        return len(self.solution.theta)

    def interval(self, estimate: float, values: FloatArray, level: float) -> tuple[float, float] | None:
        """The interval of a quantity whose replicates are ``values`` [draws]; None where they overflow."""
        if not np.all(np.isfinite(values)):
            return None
        half = t_quantile(level, self.df) * float(np.std(values))
        return estimate - half, estimate + half

    def log_interval(self, estimate: float, values: FloatArray, level: float) -> tuple[float, float] | None:
        """The same for a positive quantity, symmetric in its logarithm."""
        with np.errstate(divide="ignore", over="ignore"):
            bounds = self.interval(float(np.log(estimate)), np.log(values), level)
            ends = (np.nan, np.nan) if bounds is None else np.exp(bounds)
        return (float(ends[0]), float(ends[1])) if np.all(np.isfinite(ends)) else None

    def parameters(self, fit: FittedLaw, level: float, arm: int = 0) -> tuple[Bounds, str]:
        """The interval of each parameter that has one, E not below zero; and what they are."""
        bounds: Bounds = {}
        estimates = fit.parameters(arm)
        for name, values in fit.points.parameters(self.solution.theta, arm).items():
            symmetric = self.log_interval if name in fit.points.law.logarithmic else self.interval
            if ends := symmetric(estimates[name], values, level):
                low, high = fit.points.law.ranges.get(name, (-np.inf, np.inf))
                bounds[name] = (max(ends[0], low), min(ends[1], high))
        held = [name for name in fit.at_bounds(arm) if name in bounds]
        missing = [name for name in fit.points.law.parameters if name not in bounds]
        notes = [f"; none for {', '.join(missing)}, which the noise leaves free" if missing else ""]
        notes += [f"; none for {', '.join(held)}, at its bound" if held else ""]
        return {name: ends for name, ends in bounds.items() if name not in held}, self.note + "".join(notes)


@dataclass(frozen=True)
class NoInterval:
    """Why a design carries no interval, or none was asked for, as a sentence."""

    reason: str
    method: Interval = "none"
    draws: int = 0

    def parameters(self, fit: FittedLaw, level: float, arm: int = 0) -> tuple[Bounds, str]:  # noqa: ARG002
        """No interval, and why."""
        return {}, self.reason


def choose(
    n_points: int,
    cells: FloatArray,
    n_clusters: int,
    *,
    repeated: bool = False,
    seeded: bool = True,
    weighed: bool = False,
) -> Interval:
    """The method for a design, which may still carry none.

    ``repeated``: whether its clusters repeat each other (:class:`Blocks`); ``seeded``: whether points of one
    cell are told apart by seeds; ``weighed``: whether points have weights, which says that their noise may
    differ, as only whole runs' own residuals allow.
    """
    if repeated and not weighed:
        return "seed-t"
    if n_clusters < n_points or weighed:
        return "cluster-t"
    return "seed-t" if seeded and n_points > len(np.unique(cells)) else "residual-t"


def replicates(
    fit: FittedLaw,
    cells: FloatArray,
    clusters: "pd.Series[str]",
    options: AnalysisOptions,
    *,
    seeded: bool = True,
) -> Replicates | NoInterval:
    """Fits to bootstrap replicates by ``options.interval``, or why there are none.

    ``cells`` [points] are equal where the law's variables are, and differ by a seed alone where ``seeded``;
    ``clusters`` [points] name the runs.
    """
    codes, names = pd.factorize(clusters)
    if options.bootstrap == 0 or options.interval == "none":
        return NoInterval("no interval was asked for")
    blocks = blocks_of(cells, codes) if seeded and len(names) < len(fit.y) else None
    method: Interval = options.interval
    if method == "auto":
        repeated, weighed = blocks is not None, fit.points.weights is not None
        method = choose(len(fit.y), cells, len(names), repeated=repeated, seeded=seeded, weighed=weighed)
    if method == "seed-t" and not seeded:
        return NoInterval("no interval: rows of one point are told apart by no seed")
    if problem := _refusal(method, fit, cells, len(names), blocks):
        return NoInterval(f"no interval: {problem}")
    rng = np.random.default_rng(options.seed)
    drawn = _MAKERS[method](_Design(fit, cells, codes, blocks, options.bootstrap, rng))
    failed = int(np.sum(~drawn.solution.optimal))
    if failed > MOST_FAILED * options.bootstrap:
        return NoInterval(
            f"no interval: {failed} of the {options.bootstrap} bootstrap replicates leave a parameter free"
        )
    note = drawn.note
    if failed:
        note += (
            f"; {failed} of the {options.bootstrap} bootstrap replicates are left out: no verified optimum"
        )
    return replace(drawn, solution=drawn.solution.rows(drawn.solution.optimal), note=note)


def _refusal(method: str, fit: FittedLaw, cells: FloatArray, n_clusters: int, blocks: Blocks | None) -> str:
    """Why the design cannot carry the method; empty where it can."""
    n_points, n_free, n_cells = len(fit.y), len(fit.points.free), len(np.unique(cells))
    if n_cells <= n_free:
        return f"{n_cells} distinct points for {n_free} parameters cannot check the law"
    if method == "cluster-t" and n_clusters < max(FEWEST_CLUSTERS, n_free + FEWEST_RESIDUAL_FREEDOM):
        return (
            f"{n_clusters} independent runs hold {n_points} points for {n_free} parameters; fewer than "
            f"{FEWEST_CLUSTERS} runs, or {FEWEST_RESIDUAL_FREEDOM} more than parameters, cover far less than "
            "an interval says"
        )
    if method == "seed-t" and n_points == n_cells:
        return "no rung has two seeds"
    if method == "seed-t" and _repeats_are_copies(fit, cells, blocks):
        return "repeated points are exact copies, which carry no noise"
    if method == "residual-t" and n_points - n_free < FEWEST_RESIDUAL_FREEDOM:
        return f"{n_points} points without a repeated seed for {n_free} parameters leave no noise figure"
    if method == "seed-t" and blocks is not None:
        return ""
    if method in ("seed-t", "residual-t") and n_clusters < n_points:
        return f"{n_clusters} runs hold {n_points} points, which are not independent; use cluster-t"
    return ""


def _repeats_are_copies(fit: FittedLaw, cells: FloatArray, blocks: Blocks | None) -> bool:
    """Whether the points that seed noise is measured on never differ from each other."""
    measured = np.ones(len(fit.y), bool) if blocks is None else blocks.whole[blocks.cluster]
    return are_copies(_scale(fit, fit.y)[measured], cells[measured])


@dataclass(frozen=True)
class _Design:
    """A fit with the cells [points] and clusters [points] of its points, and how many replicates to draw.

    ``blocks`` where points share clusters that repeat each other.
    """

    fit: FittedLaw
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
        sizes = _block_sizes(self.draws, len(self.fit.y))
        return Solution.joined([self.fit.redone(y=shifted(self.fit, noise(rows))) for rows in sizes])


def _block_sizes(n_rows: int, n_points: int) -> list[int]:
    """``n_rows`` in parts of at most :data:`BLOCK_ELEMENTS` elements (one row at least)."""
    most = max(1, BLOCK_ELEMENTS // n_points)
    return [min(most, n_rows - first) for first in range(0, n_rows, most)]


def shifted(fit: FittedLaw, noise: FloatArray) -> FloatArray:
    """The law's values plus ``noise`` [draws, points] on the scale of the residual."""
    base = fit.predicted()
    if fit.options.residual == "log":
        return np.asarray(base * np.exp(noise))
    # A loss stays above zero, whatever noise is drawn.
    return np.maximum(base + noise, 1e-6 * base)


def _scale(fit: FittedLaw, y: FloatArray) -> FloatArray:
    return np.log(y) if fit.options.residual == "log" else y


def _seed_t(design: _Design) -> Replicates:
    fit = design.fit
    values = _scale(fit, fit.y)
    if (blocks := design.blocks) is not None:
        covariance, df = blocks.covariance(values)
        note = (
            f"t with {df} degrees of freedom, from seed noise of {design.n_clusters} whole clusters of points"
        )
        solution = design.refitted(lambda rows: blocks.noise(values, rows, design.rng))
        return Replicates("seed-t", df, solution, note, float(np.sqrt(np.mean(np.diag(covariance)))))
    noise = pooled_noise(values, design.cells)
    note = f"t with {noise.df} degrees of freedom, from seed noise pooled within rungs (sd {noise.sd:.2g})"
    return Replicates("seed-t", noise.df, _normal(design, noise.sd), note, noise.sd)


def _normal(design: _Design, sd: float) -> Solution:
    """The fits to the law with independent normal noise."""
    n_points = len(design.fit.y)
    return design.refitted(lambda rows: sd * design.rng.standard_normal((rows, n_points)))


def _least_squares(fit: FittedLaw) -> FittedLaw:
    """The same points fitted by least squares."""
    if fit.options.loss == "l2":
        return fit
    return fit_points(fit.points, fit.y, replace(fit.options, loss="l2"))


def residual_noise(fit: FittedLaw) -> tuple[float, int]:
    """sd of the residuals of a least-squares fit and its degrees of freedom.

    A fit with a small delta passes through points, so that its own residuals say too much and too little.
    """
    squares = _least_squares(fit)
    df = len(fit.y) - len(fit.points.free)
    return float(np.sqrt(np.sum(squares.residuals() ** 2) / df)), df


def _residual_t(design: _Design) -> Replicates:
    sd, df = residual_noise(design.fit)
    note = f"t with {df} degrees of freedom, from the residuals (sd {sd:.2g}), since no seed repeats"
    return Replicates("residual-t", df, _normal(design, sd), note, sd)


def _cluster_t(design: _Design) -> Replicates:
    """Each run's residuals, from a least-squares fit without that run, with one random sign per run."""
    fit, n_clusters = design.fit, design.n_clusters
    df = n_clusters - len(fit.points.free)
    residuals, unverified = residuals_left_out(fit, design.codes)
    note = f"t with {df} degrees of freedom, from the residuals of {n_clusters} whole runs{unverified}"

    def noise(rows: int) -> FloatArray:
        # The wild cluster bootstrap (Cameron, Gelbach & Miller 2008) with Rademacher signs.
        signs = design.rng.choice([-1.0, 1.0], (rows, n_clusters))
        return np.asarray(signs[:, design.codes] * residuals)

    run_sd = float(np.sqrt(np.mean(residuals**2)))
    return Replicates("cluster-t", df, design.refitted(noise), note, run_sd)


def residuals_left_out(fit: FittedLaw, codes: npt.NDArray[np.intp]) -> tuple[FloatArray, str]:
    """Residual of each point from the least-squares fit to all other runs [points].

    With how many of those fits are no verified optima, as the end of a sentence; empty where all are.
    """
    squares = _least_squares(fit)
    n_runs, first, parts = int(codes.max()) + 1, 0, []
    for rows in _block_sizes(n_runs, len(codes)):
        runs = np.arange(first, first + rows)
        parts.append(squares.redone(weights=(codes[None] != runs[:, None]).astype(float)))
        first += rows
    solution = Solution.joined(parts)
    result = np.empty(len(fit.y))
    for run, theta in enumerate(solution.theta):
        of_run = codes == run
        result[of_run] = squares.at(theta).residuals()[of_run]
    failed = int(np.sum(~solution.optimal))
    return result, f" ({failed} of the {n_runs} fits without one are no verified optimum)" if failed else ""


_MAKERS: dict[str, Callable[[_Design], Replicates]] = {
    "seed-t": _seed_t,
    "residual-t": _residual_t,
    "cluster-t": _cluster_t,
}
