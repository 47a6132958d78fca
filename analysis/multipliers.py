"""Multipliers: how many times the compute (tokens, time) the reference needs for the arm's loss.

``CM(C) = C_ref(L_arm(C)) / C`` with both laws fitted to the complete pairs, so that the arms share rungs and
seeds. The interval is a t interval on ln CM: its standard error is the spread of ln CM when the seeds'
noise is drawn anew around both laws (normal, with the covariance of log losses pooled within cells, so that
pairs stay pairs) and both are refitted; its degrees of freedom are pairs minus cells. Where no seed repeats
and there are enough rungs, the covariance is that of the residuals of least-squares fits, which is the
weaker interval and says so. Where pairs are not independent, whole clusters' residuals get random signs, the
same on both sides. It covers the noise, not a law of the wrong form.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.data import DataError, FloatArray
from analysis.estimate import Estimated, estimated
from analysis.inference import FEWEST_RUNGS_WITHOUT_SEEDS
from analysis.intervals import FEWEST_CLUSTERS, FEWEST_RESIDUAL_FREEDOM, MOST_FAILED, residuals_left_out
from analysis.laws import law_named
from analysis.noise import are_copies, pooled_noise, redraw, t_quantile, within_cells
from analysis.pairs import Pairs, varying
from analysis.parametrisation import Options, Parametrisation, require_identifiable
from analysis.settings import FitSettings

ONE_LINE = 1.1
"""Tokens per parameter may vary by this factor (whole batches) and still be one line."""
FEWEST_RUNGS = 3
LARGEST_FACTOR = 1e6
"""Beyond this factor, up or down, a multiplier or the end of its interval says nothing."""


@dataclass(frozen=True)
class Multiplier:
    """A multiplier at ``at_flops``; above one the arm saves. ``at`` says which point of the range it is.

    ``extrapolated``: the reference would need compute that it was not run at. Where ``estimate`` or
    ``interval`` is None, ``note`` says why.
    """

    at: str
    at_flops: float
    estimate: float | None
    interval: tuple[float, float] | None
    extrapolated: bool
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def line_problem(pairs: Pairs, law: str) -> str:
    """Why these pairs lie on no single line in compute, as one sentence; empty where they do."""
    complete = pairs.complete
    settings = [name for name in pairs.cell_columns if name not in ("rung", "n_tokens")]
    several = varying(complete, settings)
    if law_named(law).variables != ("x",):
        return f"no multiplier: multipliers need a law in one variable, not {law}"
    if several:
        return f"no multiplier across several values of {', '.join(several)}: choose one with where"
    if complete["compute_reference"].nunique() < 2:
        return "no multiplier from one rung"
    ratio = complete["n_tokens"] / complete["n_params_reference"]
    if len(ratio) and ratio.max() > ONE_LINE * ratio.min():
        return "no multiplier across several numbers of tokens per parameter: choose one with where"
    return ""


def line_to_show_problem(pairs: Pairs, law: str) -> str:
    """The same for tables and figures, where a number stands alone: few rungs make no line."""
    n_rungs = pairs.complete["compute_reference"].nunique()
    if 1 < n_rungs < FEWEST_RUNGS:
        return f"no multiplier from {n_rungs} rungs, which cannot check the law"
    return line_problem(pairs, law)


def described(side: str, x: str, found: Estimated) -> dict[str, Any]:
    """A fitted law as plain JSON values; ``objective`` is a sum over points."""
    return {
        "side": side,
        "x": x,
        "parameters": found.parameters(),
        "n_points": len(found.y),
        "objective": found.objective,
        "optimality": found.optimality,
        "verified": bool(found.solution.optimal[0]),
        "starts_agreeing": found.starts_agreeing,
        "n_starts": len(found.solution.objective),
    }


class Lines:
    """The laws of reference and arm in one variable, and of repetitions of the noise, ``settings.bootstrap``.

    ``x`` is C (FLOPs) or D (tokens). Raises :class:`DataError` for points that leave a parameter free.
    """

    def __init__(self, pairs: Pairs, settings: FitSettings, x: str) -> None:
        complete = pairs.complete
        names = ("reference", "arm")
        self.law = law_named(settings.law)
        self.beyond = f"the reference's law never reaches this {settings.y}"
        self.x = [complete[f"compute_{s}" if x == "C" else "n_tokens"].to_numpy(float) for s in names]
        losses = [complete[f"loss_{side}"].to_numpy(float) for side in names]
        self.fits: list[Estimated] = []
        for side, values, loss in zip(names, self.x, losses, strict=True):
            points = Parametrisation(self.law, {"x": values})
            require_identifiable(points, side, x)
            self.fits.append(estimated(points, loss, settings.options))
        self.parameters = [fit.points.parameters(fit.theta) for fit in self.fits]
        drawn, self.df, self.remark = self._redrawn(pairs, settings)
        self.drawn = self.parameters
        if self.df:
            self._refit(drawn)
        if not all(fit.optimal for fit in self.fits):
            self.remark = "; ".join(filter(None, ["not from verified optima", self.remark]))

    def _refit(self, drawn: list[FloatArray]) -> None:
        """Fit the redrawn losses; redraws of which a side has no verified optimum are left out and said."""
        found = [fit.redone(y=noisy) for fit, noisy in zip(self.fits, drawn, strict=True)]
        verified = found[0].optimal & found[1].optimal
        failed, draws = int(np.sum(~verified)), len(verified)
        if failed > MOST_FAILED * draws:
            self.df, self.remark = 0, f"no interval: {failed} of {draws} redraws leave a parameter free"
            return
        if failed:
            said = f"{failed} of {draws} redraws, of no verified optimum, are left out"
            self.remark = "; ".join(filter(None, [self.remark, said]))
        self.drawn = [
            fit.points.parameters(side.theta[verified]) for fit, side in zip(self.fits, found, strict=True)
        ]

    def _redrawn(self, pairs: Pairs, settings: FitSettings) -> tuple[list[FloatArray], int, str]:
        """Losses drawn anew [draws, points] of each side, degrees of freedom (0: none), and a remark."""
        if settings.bootstrap == 0:
            return [], 0, "no interval: none was asked for"
        bases = [fit.predicted() for fit in self.fits]
        if pairs.dependent:
            return self._redrawn_clusters(bases, pairs.clusters, settings)
        logs = np.log(np.stack([fit.y for fit in self.fits]))
        if any(are_copies(side, pairs.cells) for side in logs):
            return [], 0, "no interval: seeds are exact copies, which carry no noise"
        covariance, df = within_cells(logs, pairs.cells)
        remark = ""
        if df == 0 and len(np.unique(pairs.cells)) >= FEWEST_RUNGS_WITHOUT_SEEDS:
            fits = self._squares(settings)
            residuals = np.stack([fit.residuals() for fit in fits])
            df = residuals.shape[1] - fits[0].theta.size
            covariance, remark = residuals @ residuals.T / df, "noise from the residuals: no seed repeats"
        if df == 0:
            return [], 0, "no interval: one seed a rung carries none"
        return redraw(bases, covariance, settings.bootstrap, settings.seed), df, remark

    def _redrawn_clusters(
        self, bases: list[FloatArray], clusters: npt.NDArray[np.intp], settings: FitSettings
    ) -> tuple[list[FloatArray], int, str]:
        codes = np.unique(clusters, return_inverse=True)[1]
        n_clusters, n_free = int(codes.max()) + 1, self.fits[0].theta.size
        if n_clusters < max(FEWEST_CLUSTERS, n_free + FEWEST_RESIDUAL_FREEDOM):
            return [], 0, f"no interval: {n_clusters} independent clusters, fewer than {FEWEST_CLUSTERS}"
        rng = np.random.default_rng(settings.seed)
        signs = rng.choice([-1.0, 1.0], (settings.bootstrap, n_clusters))[:, codes]
        noise = [residuals_left_out(fit, codes) for fit in self._squares(settings)]
        drawn = [base * np.exp(signs * own) for base, (own, _) in zip(bases, noise, strict=True)]
        unverified = "".join(said for _, said in noise)
        remark = f"noise from the residuals of {n_clusters} whole clusters{unverified}"
        return drawn, n_clusters - n_free, remark

    def _squares(self, settings: FitSettings) -> list[Estimated]:
        """Both laws by least squares on log loss: a fit with a small delta passes through points."""
        return [estimated(fit.points, fit.y, Options("l2", settings.delta, "log")) for fit in self.fits]

    def range(self) -> tuple[float, float]:
        """The reference's smallest and largest x."""
        return float(self.x[0].min()), float(self.x[0].max())

    def needed(self, at: float) -> tuple[FloatArray, FloatArray]:
        """x that the reference needs for the arm's loss at ``at``: [1], and [draws] with redrawn noise."""
        return (
            _needed(self.parameters[0], self.parameters[1], at),
            _needed(self.drawn[0], self.drawn[1], at),
        )

    def multiplier(self, name: str, at: float, at_flops: float, level: float) -> Multiplier:
        """The multiplier at x = ``at`` with its interval."""
        needed, redrawn = self.needed(at)
        low, high = self.range()
        value = float(needed[0])
        outside = not low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
        if not 1 / LARGEST_FACTOR <= value / at <= LARGEST_FACTOR:
            return Multiplier(name, at_flops, None, None, True, self.beyond)
        interval, note = self.interval(np.log(value / at), redrawn / at, level)
        return Multiplier(name, at_flops, value / at, interval, outside, note or self.remark)

    def inside(self, at: float) -> float:
        """The largest x at which the reference's law reaches the arm's loss without exceeding ``at``."""
        return float(_needed(self.parameters[1], self.parameters[0], at)[0])

    def change(self, low: float, high: float, level: float) -> dict[str, Any] | None:
        """The factor by which the multiplier changes with each decade of x, between ``low`` and ``high``."""
        if not high > low:
            return None
        (first, first_drawn), (last, last_drawn) = self.needed(low), self.needed(high)
        decades = float(np.log10(high / low))
        with np.errstate(invalid="ignore"):
            value = float((np.log(last / high) - np.log(first / low))[0]) / decades
            redrawn = np.exp((np.log(last_drawn / high) - np.log(first_drawn / low)) / decades)
        if not abs(value) <= np.log(LARGEST_FACTOR):
            return None
        interval, note = self.interval(value, redrawn, level)
        return {"estimate": float(np.exp(value)), "interval": interval, "note": note or self.remark}

    def interval(
        self, log_value: float, redrawn: FloatArray, level: float
    ) -> tuple[tuple[float, float] | None, str]:
        """The t interval around exp(log_value) from ``redrawn`` [draws], or None and why there is none."""
        if self.df == 0:
            return None, self.remark
        if len(np.unique(self.x[0])) < FEWEST_RUNGS:
            return None, f"no interval: fewer than {FEWEST_RUNGS} rungs cannot check the law"
        if not np.all(np.isfinite(redrawn) & (redrawn > 0)):
            return None, "no interval: within the noise the reference may never reach this loss"
        half = t_quantile(level, self.df) * float(np.std(np.log(redrawn)))
        if half > np.log(LARGEST_FACTOR):
            return None, "no interval: the noise leaves more than six orders of magnitude open"
        low, high = np.exp([log_value - half, log_value + half])
        return (float(low), float(high)), ""


def _needed(reference: dict[str, FloatArray], arm: dict[str, FloatArray], at: float) -> FloatArray:
    """Solve E + A / x^alpha = the arm's loss for x, row by row; infinite where there is no such x."""
    loss = arm["A"] * at ** -arm["alpha"] + arm.get("E", 0.0)
    above = loss - reference.get("E", np.zeros(1))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        needed = np.exp((np.log(reference["A"]) - np.log(above)) / reference["alpha"])
    return np.where((above > 0) & (reference["alpha"] > 0), needed, np.inf)


@dataclass(frozen=True)
class Multipliers:
    """The multipliers of one arm, and how the compute multiplier changes a decade; ``reason`` if none."""

    compute: list[Multiplier] = field(default_factory=list)
    token: list[Multiplier] = field(default_factory=list)
    time: list[Multiplier] = field(default_factory=list)
    per_decade: dict[str, Any] | None = None
    laws: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""


def multipliers(pairs: Pairs, settings: FitSettings) -> Multipliers:
    """Compute, token and time multipliers at the geometric middle and the largest shared compute.

    Where the largest needs more compute than the reference was run at, a third stands at the largest compute
    whose loss the reference reaches inside its range.
    """
    problem = line_problem(pairs, settings.law)
    if problem:
        return Multipliers(reason=problem)
    try:
        compute, tokens = (Lines(pairs, settings, x) for x in ("C", "D"))
    except DataError as error:
        return Multipliers(reason=f"no multiplier: {error}")
    points = _points(pairs.complete, compute)
    low, high = _shared(pairs.complete)
    return Multipliers(
        [compute.multiplier(name, c, c, settings.level) for name, c, _ in points],
        [tokens.multiplier(name, d, c, settings.level) for name, c, d in points],
        _time_multipliers(pairs, compute, points, settings),
        compute.change(low, high, settings.level),
        [
            described(side, x, fit)
            for x, lines in (("C", compute), ("D", tokens))
            for side, fit in zip(("reference", "arm"), lines.fits, strict=True)
        ],
    )


def _shared(complete: pd.DataFrame) -> tuple[float, float]:
    """The range of compute that both arms were run at."""
    return (
        float(max(complete["compute_reference"].min(), complete["compute_arm"].min())),
        float(min(complete["compute_reference"].max(), complete["compute_arm"].max())),
    )


def _points(complete: pd.DataFrame, lines: Lines) -> list[tuple[str, float, float]]:
    """(name, C, D) of the geometric middle, the largest shared compute, and the largest inside the range."""
    low, high = _shared(complete)
    tokens = np.log([complete["n_tokens"].min(), complete["n_tokens"].max()])

    def along(compute: float) -> float:
        """Tokens on the line of the pairs."""
        share = np.log(compute / low) / np.log(high / low) if high > low else 1.0
        return float(np.exp(tokens[0] + share * (tokens[1] - tokens[0])))

    middle = float(np.sqrt(low * high))
    found = [("geometric middle", middle), ("largest", high)]
    inside = lines.inside(high)
    if low < inside < high * (1 - 1e-9):
        found.append(("largest inside the reference's range", inside))
    return [(name, compute, along(compute)) for name, compute in found]


class _Times:
    """ln wall time as a line in ln C of each side, and repetitions of its noise between seeds."""

    def __init__(self, pairs: Pairs, lines: Lines, settings: FitSettings) -> None:
        walls = np.log(pairs.complete[["wall_s_reference", "wall_s_arm"]].to_numpy(float)).T
        inverse = [np.linalg.pinv(np.stack([np.ones(len(x)), np.log(x)], axis=1)) for x in lines.x]
        self.best = [side @ wall for side, wall in zip(inverse, walls, strict=True)]
        covariance, self.df = within_cells(walls, pairs.cells)
        size = (max(settings.bootstrap, 1), walls.shape[1])
        noise = np.random.default_rng(settings.seed + 1).multivariate_normal(
            np.zeros(2), covariance, size, method="svd"
        )
        self.drawn = [best + noise[..., i] @ inverse[i].T for i, best in enumerate(self.best)]

    def ratio(self, needed: FloatArray, at: float, which: list[FloatArray]) -> FloatArray:
        """Time of the reference at ``needed`` [rows] over the arm's at ``at``."""
        reference, arm = (np.atleast_2d(side) for side in which)
        log_ratio = reference[:, 0] + reference[:, 1] * np.log(needed) - arm[:, 0] - arm[:, 1] * np.log(at)
        return np.asarray(np.exp(log_ratio))


def _time_multipliers(
    pairs: Pairs, lines: Lines, points: list[tuple[str, float, float]], settings: FitSettings
) -> list[Multiplier]:
    """Time of the reference for the arm's loss over the arm's time; none without comparable wall times.

    The interval holds the noise of losses and of wall times between seeds, taken as independent.
    """
    complete = pairs.complete
    if "wall_s_reference" not in complete or not _timed_alike(complete):
        return []
    times = _Times(pairs, lines, settings)
    low, high = lines.range()
    result = []
    for name, at, _ in points:
        needed, redrawn = lines.needed(at)
        if not 1 / LARGEST_FACTOR <= needed[0] / at <= LARGEST_FACTOR:
            continue
        value = float(times.ratio(needed, at, times.best)[0])
        interval, note = None, "no interval: wall times without a second seed have no noise figure"
        if times.df and not pairs.dependent:
            # Wall times are noise of their own: as many repetitions as there are of the laws.
            drawn = [side[: len(redrawn)] for side in times.drawn]
            ratios = times.ratio(redrawn, at, drawn if lines.df else times.best)
            interval, note = lines.interval(float(np.log(value)), ratios, settings.level)
            note = note or "from noise between seeds; a machine's load that favours one arm is not in it"
        outside = not low * (1 - 1e-9) <= float(needed[0]) <= high * (1 + 1e-9)
        result.append(Multiplier(name, at, value, interval, outside, note))
    return result


def _timed_alike(complete: pd.DataFrame) -> bool:
    walls = complete[["wall_s_reference", "wall_s_arm"]].to_numpy(float)
    devices = complete[[name for name in complete if name in ("device_reference", "device_arm")]]
    one_device = len(pd.unique(devices.to_numpy().ravel())) <= 1
    return bool(np.all(np.isfinite(walls) & (walls > 0))) and one_device


def pair_noise(pairs: Pairs) -> float:
    """Standard deviation of a pair's difference, pooled within cells, nats a token; nan without repeats."""
    return pooled_noise(pairs.differences, pairs.cells).sd


def multipliers_at(pairs: Pairs, settings: FitSettings, at: Sequence[float]) -> tuple[list[Multiplier], str]:
    """The compute multiplier at each C of ``at``, FLOPs; or none, and why there are none."""
    problem = line_problem(pairs, settings.law)
    if problem:
        return [], problem
    try:
        lines = Lines(pairs, settings, "C")
    except DataError as error:
        return [], f"no multiplier: {error}"
    return [lines.multiplier("chosen", compute, compute, settings.level) for compute in at], ""
