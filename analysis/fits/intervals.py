"""Intervals of a fit: what the noise leaves open for any quantity of the law.

Each method fits bootstrap replicates of the data; the interval of a quantity is the estimate plus and minus t
times their spread (on the logarithm of coefficients and predictions). Replicates are drawn
around the *law*: around the means of cells a fit with a small delta would see the cells' noise twice,
and the interval of a multiplier would cover 98 % instead of 95 %. ``benchmarks/calibration.py`` simulates
what each method covers, which is where the order in :func:`choose` comes from. No interval covers a law of
the wrong form.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.options import AnalysisOptions, Interval
from scalevec.analysis.solver.best_fit import FittedLaw, fit_points
from scalevec.analysis.solver.newton import Solution
from scalevec.analysis.statistics.noise import (
    FEWEST_CLUSTERS,
    Blocks,
    are_copies,
    blocks_of,
    noise_by_mean,
    pooled_noise,
    t_quantile,
)

FEWEST_RESIDUAL_FREEDOM = 3
"""Degrees of freedom below which residuals are no noise figure."""
MOST_FAILED = 0.05
"""The share of replicates without a verified optimum above which there is no interval."""
BLOCK_ELEMENTS = 4_000_000
"""Replicates x points of what is drawn and fitted at once, so that a long table does not exhaust memory."""
Bounds = dict[str, tuple[float, float]]
NoiseOfRun = Callable[[FloatArray], FloatArray]


def _always(sd: float) -> NoiseOfRun:
    return lambda losses: np.full_like(losses, sd)


_UNKNOWN = _always(np.nan)


@dataclass(frozen=True)
class Replicates:
    """Fits to bootstrap replicates, and the degrees of freedom ``df`` of their noise.

    Where a design carries no interval there are none of them, and ``note`` says why.
    """

    method: Interval
    df: float
    solution: Solution
    note: str
    run_sd: NoiseOfRun = _UNKNOWN
    """sd of the noise of one run by its expected loss, on the scale of the residual."""

    @property
    def draws(self) -> int:
        """How many replicates are used."""
        return len(self.solution.theta)

    def interval(
        self, estimate: float, values: FloatArray, level: float, more: float = 0.0, *, log: bool = True
    ) -> tuple[float, float] | None:
        """The interval of a quantity whose replicates are ``values`` [draws]; None where they overflow.

        It is symmetric in the logarithm of a positive quantity, or, without ``log``, in the quantity itself.
        ``more`` is a further standard error on that scale, added in quadrature.
        """
        with np.errstate(divide="ignore", over="ignore"):
            middle, drawn = (np.log(estimate), np.log(values)) if log else (estimate, values)
            if not self.draws or not np.all(np.isfinite(drawn)):
                return None
            half = t_quantile(level, self.df) * float(np.hypot(np.std(drawn), more))
            low, high = (float(np.exp(end) if log else end) for end in (middle - half, middle + half))
        return (low, high) if np.isfinite([low, high]).all() else None

    def parameters(self, fit: FittedLaw, level: float, arm: int = 0) -> tuple[Bounds, str]:
        """The interval of each parameter that has one, E not below zero; and what they are."""
        if not self.draws:
            return {}, self.note
        bounds: Bounds = {}
        estimates, law = fit.parameters(arm), fit.points.law
        for name, values in fit.points.parameters(self.solution.theta, arm).items():
            # That of a coefficient is symmetric in its logarithm, that of the floor is not.
            log = name in law.positive and name != law.floor
            if ends := self.interval(estimates[name], values, level, log=log):
                low, high = law.ranges.get(name, (-np.inf, np.inf))
                bounds[name] = (max(ends[0], low), min(ends[1], high))
        held = [name for name in fit.at_bounds(arm) if name in bounds]
        missing = [name for name in law.parameters if name not in bounds]
        note = self.note
        note += f"; none for {', '.join(missing)}, which the noise leaves free" if missing else ""
        note += f"; none for {', '.join(held)}, at its bound" if held else ""
        return {name: ends for name, ends in bounds.items() if name not in held}, note


def no_interval(fit: FittedLaw, reason: str) -> Replicates:
    """No replicates, and why, as a sentence."""
    return Replicates("none", np.nan, fit.solution.rows(np.arange(0)), reason)


def replicates(
    fit: FittedLaw, clusters: "pd.Series[str]", options: AnalysisOptions, *, seeded: bool = True
) -> Replicates:
    """Fits to bootstrap replicates by ``options.interval``; none, and why, where the design carries none.

    ``clusters`` [points] name the runs; ``seeded``: whether points of one cell are told apart by seeds.
    """
    codes, names = pd.factorize(clusters)
    if options.bootstrap == 0 or options.interval == "none":
        return no_interval(fit, "no interval was asked for")
    blocks = blocks_of(fit.points.cells, codes) if seeded and len(names) < len(fit.y) else None
    method: Interval = options.interval
    if method == "auto":
        method = _suitable(fit, len(names), repeated=blocks is not None, seeded=seeded)
    if method == "seed-t" and not seeded:
        return no_interval(fit, "no interval: rows of one point are told apart by no seed")
    if problem := _refusal(method, fit, len(names), blocks):
        return no_interval(fit, f"no interval: {problem}")
    rng = np.random.default_rng(options.seed)
    noise = _run_noise(fit, codes, rng) if method == "cluster-t" else _noise(method, fit, blocks, rng)
    blocks_of_rows = _blocks(options.bootstrap, len(fit.y))
    refits = [fit.redone(y=shifted(fit, noise.draw(len(rows)))) for rows in blocks_of_rows]
    solution = Solution(*map(np.concatenate, zip(*refits, strict=True)))
    note = f"t with {noise.df} degrees of freedom, from {noise.source}"
    failed = int(np.sum(~solution.optimal))
    of_all = f"{failed} of the {options.bootstrap} bootstrap replicates"
    if failed > MOST_FAILED * options.bootstrap:
        return no_interval(fit, f"no interval: {of_all} leave a parameter free")
    if failed:
        note += f"; {of_all} are left out: no verified optimum"
    return Replicates(method, noise.df, solution.rows(solution.optimal), note, noise.run_sd)


def fewest_runs(n_free: float) -> float:
    """How many independent runs an interval from whole runs' residuals around ``n_free`` parameters needs."""
    return max(FEWEST_CLUSTERS, n_free + FEWEST_RESIDUAL_FREEDOM)


def _suitable(fit: FittedLaw, n_clusters: int, *, repeated: bool, seeded: bool) -> Interval:
    """The method for a design, which may still carry none; ``repeated``: its clusters repeat each other."""
    n_points = len(fit.y)
    if repeated:
        return "seed-t"
    if n_clusters < n_points:
        return "cluster-t"
    return "seed-t" if seeded and n_points > len(np.unique(fit.points.cells)) else "residual-t"


def _refusal(method: str, fit: FittedLaw, n_clusters: int, blocks: Blocks | None) -> str:
    """Why the design cannot carry the method; empty where it can."""
    n_points, n_free, n_cells = len(fit.y), len(fit.points.free), len(np.unique(fit.points.cells))
    if n_cells <= n_free:
        return f"{n_cells} distinct points for {n_free} parameters cannot check the law"
    if method == "cluster-t" and n_clusters < fewest_runs(n_free):
        return (
            f"{n_clusters} independent runs hold {n_points} points for {n_free} parameters; fewer than "
            f"{FEWEST_CLUSTERS} runs, or {FEWEST_RESIDUAL_FREEDOM} more than parameters, cover far less than "
            "an interval says"
        )
    if method == "seed-t" and n_points == n_cells:
        return "no rung has two seeds"
    # Where clusters repeat each other, seed noise is measured on whole ones.
    measured = np.ones(n_points, bool) if blocks is None else blocks.whole[blocks.cluster]
    if method == "seed-t" and are_copies(_scale(fit, fit.y)[measured], fit.points.cells[measured]):
        return "repeated points are copies, which carry no noise"
    if method == "residual-t" and n_points - n_free < FEWEST_RESIDUAL_FREEDOM:
        return f"{n_points} points without a repeated seed for {n_free} parameters leave no noise figure"
    if method != "cluster-t" and blocks is None and n_clusters < n_points:
        return f"{n_clusters} runs hold {n_points} points, which are not independent; use cluster-t"
    return ""


def values_of(
    fit: FittedLaw, theta: FloatArray, variables: Mapping[str, FloatArray], arm: int = 0
) -> FloatArray:
    """The laws ``theta`` [rows, parameters] at ``variables`` ([points] or [rows, points]): [rows, points]."""
    rows = {name: values[:, None] for name, values in fit.points.parameters(theta, arm).items()}
    with np.errstate(all="ignore"):
        return fit.points.law.predict(rows, variables)


def _blocks(n_rows: int, n_points: int) -> list[npt.NDArray[np.intp]]:
    """The numbers of the rows in parts of at most :data:`BLOCK_ELEMENTS` elements (one row at least)."""
    n_parts = min(n_rows, -(-n_rows * n_points // BLOCK_ELEMENTS))
    return np.array_split(np.arange(n_rows), n_parts)


def shifted(fit: FittedLaw, noise: FloatArray) -> FloatArray:
    """The law's values plus ``noise`` [draws, points] on the scale of the residual."""
    base = fit.predicted()
    if fit.options.residual == "log":
        return np.asarray(base * np.exp(noise))
    # A loss stays above zero, whatever noise is drawn.
    return np.maximum(base + noise, 1e-6 * base)


def _scale(fit: FittedLaw, y: FloatArray) -> FloatArray:
    return np.log(y) if fit.options.residual == "log" else y


class _Noise(NamedTuple):
    """The noise of points: ``draw(rows)`` is [rows, points]; ``run_sd`` that of one run, by its loss."""

    df: float
    source: str
    run_sd: NoiseOfRun
    draw: Callable[[int], FloatArray]


def _noise(method: Interval, fit: FittedLaw, blocks: Blocks | None, rng: np.random.Generator) -> _Noise:
    """Normal noise of the seeds, or of the residuals where none repeats."""
    values = _scale(fit, fit.y)
    if method == "seed-t" and blocks is not None:
        covariance, df = blocks.covariance(values)
        clusters = f"seed noise of {len(blocks.block)} whole clusters of points"
        sd = float(np.sqrt(np.mean(np.diag(covariance))))
        return _Noise(df, clusters, _always(sd), lambda rows: blocks.noise(values, rows, rng))
    if method == "seed-t":
        pooled = pooled_noise(values, fit.points.cells)
        run_sd = noise_by_mean(values, fit.points.cells, means := fit.predicted())
        sds = run_sd(means)
        source = f"seed noise pooled within rungs (sd {pooled.sd:.2g}"
        source += f", up to {sds.max():.2g} where it goes with the loss)" if np.ptp(sds) else ")"
        return _Noise(pooled.df, source, run_sd, lambda n: sds * rng.standard_normal((n, len(fit.y))))
    # Of few points each pulls the law to itself: the residual is that from a fit to the others.
    df = len(fit.y) - len(fit.points.free)
    residuals, unverified = residuals_left_out(fit, np.arange(len(fit.y)))
    sd = float(np.sqrt(np.mean(residuals**2)))
    source = f"the residuals (sd {sd:.2g}), since no seed repeats{unverified}"
    return _Noise(df, source, _always(sd), lambda rows: sd * rng.standard_normal((rows, len(fit.y))))


def _least_squares(fit: FittedLaw) -> FittedLaw:
    """The same points fitted by least squares.

    A fit with a small delta passes through points, so that its own residuals say too much and too little.
    """
    if fit.options.loss == "l2":
        return fit
    return fit_points(fit.points, fit.y, replace(fit.options, loss="l2"))


def _run_noise(fit: FittedLaw, codes: npt.NDArray[np.intp], rng: np.random.Generator) -> _Noise:
    """Each run's residuals, from a least-squares fit without that run, with one random sign per run."""
    n_runs = int(codes.max()) + 1
    residuals, unverified = residuals_left_out(fit, codes)

    def draw(rows: int) -> FloatArray:
        # The wild cluster bootstrap (Cameron, Gelbach & Miller 2008) with Rademacher signs.
        return np.asarray(rng.choice([-1.0, 1.0], (rows, n_runs))[:, codes] * residuals)

    source, sd = f"the residuals of {n_runs} whole runs{unverified}", float(np.sqrt(np.mean(residuals**2)))
    return _Noise(n_runs - len(fit.points.free), source, _always(sd), draw)


def residuals_left_out(fit: FittedLaw, codes: npt.NDArray[np.intp]) -> tuple[FloatArray, str]:
    """Residual of each point from the least-squares fit to all other runs [points].

    With how many of those fits are no verified optima, as the end of a sentence; empty where all are.
    """
    squares = _least_squares(fit)
    n_runs, failed, predicted = int(codes.max()) + 1, 0, np.empty(len(codes))
    for runs in _blocks(n_runs, len(codes)):
        solution = squares.redone(weights=(codes[None] != runs[:, None]).astype(float))
        failed += int(np.sum(~solution.optimal))
        at = np.flatnonzero(np.isin(codes, runs))
        predicted[at] = squares.points.predicted(solution.theta)[codes[at] - runs[0], at]
    unverified = f" ({failed} of the {n_runs} fits without one are no verified optimum)" if failed else ""
    return squares.away_from(predicted), unverified
