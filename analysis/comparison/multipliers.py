"""Multipliers: how many times the compute (tokens, time) the reference needs for the arm's loss.

``CM(C) = C_ref(L_arm(C)) / C`` with both laws fitted to the complete pairs, so that the arms share rungs and
seeds. The interval is a t interval on ln CM: its standard error is the spread of ln CM when the seeds'
noise is drawn around both laws (normal, with the covariance of log losses pooled within cells, so that
pairs stay pairs) and both are refitted; its degrees of freedom are pairs minus cells. Where no seed repeats
and there are enough rungs, the covariance is that of the residuals of least-squares fits, which is the
weaker interval and says so. Where pairs are not independent, whole clusters' residuals get random signs, the
same on both sides. It covers the noise, not a law of the wrong form.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.data.pairs import Pairs, varying
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.intervals import FEWEST_RESIDUAL_FREEDOM, MOST_FAILED, residuals_left_out
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw, fit_identified, fit_points
from scalevec.analysis.solver.design import DesignMatrix
from scalevec.analysis.statistics.noise import (
    FEWEST_CLUSTERS,
    are_copies,
    replicates_of,
    t_quantile,
    within_cells,
)
from scalevec.analysis.statistics.paired import FEWEST_RUNGS_WITHOUT_SEEDS

ONE_LINE = 1.1
"""Tokens per parameter may vary by this factor (whole batches) and still be one line."""
SIDES = ("reference", "arm")
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


def line_problem(pairs: Pairs, law: str) -> str:
    """Why these pairs lie on no single line in compute, as one sentence; empty where they do."""
    complete = pairs.complete
    several = varying(complete, pairs.settings)
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


def described(side: str, x: str, law: FittedLaw) -> dict[str, Any]:
    """A fitted law as plain JSON values; ``objective`` is a sum over points.

    ``equal_parameters`` is the range of each parameter that is not unique at the optimum.
    """
    return {
        "side": side,
        "x": x,
        "parameters": law.parameters(),
        "n_points": len(law.y),
        "objective": law.objective,
        "optimality": law.optimality,
        "verified": bool(law.solution.optimal[0]),
        "starts_agreeing": law.starts_agreeing,
        "n_starts": len(law.solution.objective),
        "equal_parameters": law.equal_parameters(),
    }


class ArmLaws:
    """The laws of reference and arm in one variable, and those of ``options.bootstrap`` replicates.

    ``x`` is C (FLOPs) or D (tokens). Raises :class:`DataError` for points that leave a parameter free.
    """

    def __init__(self, pairs: Pairs, options: AnalysisOptions, x: Literal["C", "D"]) -> None:
        complete, law = pairs.complete, law_named(options.law)
        self.options, self.variable = options, x
        self.x = [complete[f"compute_{s}" if x == "C" else "n_tokens"].to_numpy(float) for s in SIDES]
        self.fits: list[FittedLaw] = []
        for side, values in zip(SIDES, self.x, strict=True):
            points, loss = DesignMatrix(law, {"x": values}), complete[f"loss_{side}"].to_numpy(float)
            self.fits.append(fit_identified(points, loss, dataclasses.replace(options, x=x), side))
        self.parameters = [fit.points.parameters(fit.theta) for fit in self.fits]
        self.replicates = self.parameters
        losses, self.df, self.remark = self._replicate_losses(pairs)
        if self.df:
            self._refit(losses)
        if not all(fit.optimal for fit in self.fits):
            self.remark = "; ".join(filter(None, ["not from verified optima", self.remark]))

    def _refit(self, losses: list[FloatArray]) -> None:
        """Fit the replicates of the losses; those without a verified optimum on both sides are left out."""
        refits = [fit.redone(y=replicate) for fit, replicate in zip(self.fits, losses, strict=True)]
        verified = refits[0].optimal & refits[1].optimal
        failed, draws = int(np.sum(~verified)), len(verified)
        if failed > MOST_FAILED * draws:
            self.df = 0
            self.remark = f"no interval: {failed} of {draws} bootstrap replicates leave a parameter free"
            return
        if failed:
            left_out = f"{failed} of {draws} bootstrap replicates are left out: no verified optimum"
            self.remark = "; ".join(filter(None, [self.remark, left_out]))
        self.replicates = [
            fit.points.parameters(refit.theta[verified]) for fit, refit in zip(self.fits, refits, strict=True)
        ]

    def _replicate_losses(self, pairs: Pairs) -> tuple[list[FloatArray], int, str]:
        """Losses of replicates [draws, points] of each side, degrees of freedom (0: none), and a remark."""
        options = self.options
        if options.bootstrap == 0:
            return [], 0, "no interval: none was asked for"
        if pairs.is_interim:
            return [], 0, "no interval: planned pairs have no result yet"
        if pairs.dependent:
            return self._replicates_of_clusters(pairs.clusters)
        logs = np.log(np.stack([fit.y for fit in self.fits]))
        if any(are_copies(side, pairs.cells) for side in logs):
            return [], 0, "no interval: seeds are exact copies, which carry no noise"
        covariance, df = within_cells(logs, pairs.cells)
        remark = ""
        if df == 0 and len(np.unique(pairs.cells)) >= FEWEST_RUNGS_WITHOUT_SEEDS:
            residuals = np.stack([fit.residuals() for fit in self._squares()])
            df = residuals.shape[1] - self.fits[0].theta.size
            covariance, remark = residuals @ residuals.T / df, "noise from the residuals: no seed repeats"
        if df == 0:
            return [], 0, "no interval: one seed per rung carries none"
        bases = [fit.predicted() for fit in self.fits]
        return replicates_of(bases, covariance, options.bootstrap, options.seed), df, remark

    def _replicates_of_clusters(self, clusters: npt.NDArray[np.intp]) -> tuple[list[FloatArray], int, str]:
        codes = np.unique(clusters, return_inverse=True)[1]
        n_clusters, n_free = int(codes.max()) + 1, self.fits[0].theta.size
        if n_clusters < max(FEWEST_CLUSTERS, n_free + FEWEST_RESIDUAL_FREEDOM):
            return [], 0, f"no interval: {n_clusters} independent clusters, fewer than {FEWEST_CLUSTERS}"
        rng = np.random.default_rng(self.options.seed)
        signs = rng.choice([-1.0, 1.0], (self.options.bootstrap, n_clusters))[:, codes]
        noise = [residuals_left_out(fit, codes) for fit in self._squares()]
        losses = [
            fit.predicted() * np.exp(signs * residuals)
            for fit, (residuals, _) in zip(self.fits, noise, strict=True)
        ]
        unverified = "".join(remark for _, remark in noise)
        remark = f"noise from the residuals of {n_clusters} whole clusters{unverified}"
        return losses, n_clusters - n_free, remark

    def _squares(self) -> list[FittedLaw]:
        """Both laws by least squares on log loss: a fit with a small delta passes through points."""
        return [fit_points(fit.points, fit.y, AnalysisOptions(loss="l2")) for fit in self.fits]

    def described(self) -> list[dict[str, Any]]:
        """Both laws as plain JSON values."""
        return [described(side, self.variable, fit) for side, fit in zip(SIDES, self.fits, strict=True)]

    def range(self) -> tuple[float, float]:
        """The reference's smallest and largest x."""
        return float(self.x[0].min()), float(self.x[0].max())

    def needed(self, at: float) -> tuple[FloatArray, FloatArray]:
        """x that the reference needs for the arm's loss at ``at``: [1], and [draws] of the replicates."""
        return (
            _needed(self.parameters[0], self.parameters[1], at),
            _needed(self.replicates[0], self.replicates[1], at),
        )

    def is_beyond(self, needed: float) -> bool:
        """Whether ``needed`` lies outside of the x that the reference was run at."""
        low, high = self.range()
        return not low * (1 - 1e-9) <= needed <= high * (1 + 1e-9)

    def multiplier(self, name: str, at: float, at_flops: float) -> Multiplier:
        """The multiplier at x = ``at`` with its interval."""
        needed, replicates = self.needed(at)
        value = float(needed[0])
        if not 1 / LARGEST_FACTOR <= value / at <= LARGEST_FACTOR:
            never = f"the reference's law never reaches this {self.options.y}"
            return Multiplier(name, at_flops, None, None, True, never)
        interval, note = self.interval(np.log(value / at), replicates / at)
        return Multiplier(name, at_flops, value / at, interval, self.is_beyond(value), note or self.remark)

    def inside(self, at: float) -> float:
        """The largest x at which the reference's law reaches the arm's loss without exceeding ``at``."""
        return float(_needed(self.parameters[1], self.parameters[0], at)[0])

    def change(self, low: float, high: float) -> dict[str, Any] | None:
        """The factor by which the multiplier changes with each decade of x, between ``low`` and ``high``."""
        if not high > low:
            return None
        decades = float(np.log10(high / low))
        with np.errstate(invalid="ignore"):
            value, replicates = (
                (np.log(last / high) - np.log(first / low)) / decades
                for first, last in zip(self.needed(low), self.needed(high), strict=True)
            )
        if not abs(value[0]) <= np.log(LARGEST_FACTOR):
            return None
        interval, note = self.interval(float(value[0]), np.exp(replicates))
        error = float(np.std(replicates)) if interval else None
        return {
            "estimate": float(np.exp(value[0])),
            "interval": interval,
            "log_error": error,
            "df": self.df,
            "note": note or self.remark,
        }

    def interval(self, log_value: float, replicates: FloatArray) -> tuple[tuple[float, float] | None, str]:
        """The t interval around exp(log_value) from ``replicates`` [draws], or None and why there is none."""
        if self.df == 0:
            return None, self.remark
        if len(np.unique(self.x[0])) < FEWEST_RUNGS:
            return None, f"no interval: fewer than {FEWEST_RUNGS} rungs cannot check the law"
        if not np.all(np.isfinite(replicates) & (replicates > 0)):
            return None, "no interval: within the noise the reference may never reach this loss"
        half = t_quantile(self.options.level, self.df) * float(np.std(np.log(replicates)))
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


def compute_laws_to_show(pairs: Pairs, options: AnalysisOptions) -> tuple[ArmLaws | None, str]:
    """The laws in C for a table or a figure, or None and why: a number stands alone there, on a line."""
    n_rungs = pairs.complete["compute_reference"].nunique()
    if 1 < n_rungs < FEWEST_RUNGS:
        return None, f"no multiplier from {n_rungs} rungs, which cannot check the law"
    if problem := line_problem(pairs, options.law):
        return None, problem
    try:
        return ArmLaws(pairs, options, "C"), ""
    except DataError as error:
        return None, f"no multiplier: {error}"


@dataclass(frozen=True)
class Multipliers:
    """The multipliers of one arm, and how the compute multiplier changes per decade; ``reason`` if none."""

    compute: Sequence[Multiplier] = ()
    token: Sequence[Multiplier] = ()
    time: Sequence[Multiplier] = ()
    per_decade: dict[str, Any] | None = None
    laws: Sequence[dict[str, Any]] = ()
    reason: str = ""


def multipliers(pairs: Pairs, options: AnalysisOptions) -> Multipliers:
    """Compute, token and time multipliers at the geometric middle and the largest shared compute.

    Where the largest needs more compute than the reference was run at, a third stands at the largest compute
    whose loss the reference reaches inside its range.
    """
    if problem := line_problem(pairs, options.law):
        return Multipliers(reason=problem)
    try:
        compute, tokens = (ArmLaws(pairs, options, x) for x in ("C", "D"))
    except DataError as error:
        return Multipliers(reason=f"no multiplier: {error}")
    points = points_along(pairs.complete, compute)
    return Multipliers(
        [compute.multiplier(name, c, c) for name, c, _ in points],
        [tokens.multiplier(name, d, c) for name, c, d in points],
        _time_multipliers(pairs, compute, [(name, c) for name, c, _ in points]),
        compute.change(*_shared(pairs.complete)),
        [*compute.described(), *tokens.described()],
    )


def _shared(complete: pd.DataFrame) -> tuple[float, float]:
    """The range of compute that both arms were run at."""
    return (
        float(max(complete["compute_reference"].min(), complete["compute_arm"].min())),
        float(min(complete["compute_reference"].max(), complete["compute_arm"].max())),
    )


def points_along(complete: pd.DataFrame, laws: ArmLaws) -> list[tuple[str, float, float]]:
    """(name, C, D) of the geometric middle, the largest shared compute, and the largest inside the range."""
    low, high = _shared(complete)
    tokens = np.log([complete["n_tokens"].min(), complete["n_tokens"].max()])

    def along(compute: float) -> float:
        """Tokens on the line of the pairs."""
        share = np.log(compute / low) / np.log(high / low) if high > low else 1.0
        return float(np.exp(tokens[0] + share * (tokens[1] - tokens[0])))

    points = {"geometric middle": float(np.sqrt(low * high)), "largest": high}
    inside = laws.inside(high)
    if low < inside < high * (1 - 1e-9):
        points["largest inside the reference's range"] = inside
    return [(name, compute, along(compute)) for name, compute in points.items()]


class _Times:
    """ln wall time as a line in ln C of each side, and replicates of it with the noise between seeds."""

    def __init__(self, pairs: Pairs, laws: ArmLaws) -> None:
        walls = np.log(pairs.complete[["wall_s_reference", "wall_s_arm"]].to_numpy(float)).T
        inverse = [np.linalg.pinv(np.stack([np.ones(len(x)), np.log(x)], axis=1)) for x in laws.x]
        self.best = [side @ wall for side, wall in zip(inverse, walls, strict=True)]
        covariance, self.df = within_cells(walls, pairs.cells)
        size = (max(laws.options.bootstrap, 1), walls.shape[1])
        noise = np.random.default_rng(laws.options.seed + 1).multivariate_normal(
            np.zeros(2), covariance, size, method="svd"
        )
        self.replicates = [best + noise[..., i] @ inverse[i].T for i, best in enumerate(self.best)]

    def ratio(self, needed: FloatArray, at: float, lines: list[FloatArray]) -> FloatArray:
        """Time of the reference at ``needed`` [rows] over the arm's at ``at``."""
        reference, arm = (np.atleast_2d(side) for side in lines)
        log_ratio = reference[:, 0] + reference[:, 1] * np.log(needed) - arm[:, 0] - arm[:, 1] * np.log(at)
        return np.asarray(np.exp(log_ratio))


def _time_multipliers(pairs: Pairs, laws: ArmLaws, points: Sequence[tuple[str, float]]) -> list[Multiplier]:
    """Time of the reference for the arm's loss over the arm's time; none without comparable wall times.

    The interval holds the noise of losses and of wall times between seeds, taken as independent.
    """
    if "wall_s_reference" not in pairs.complete or not _timed_alike(pairs.complete):
        return []
    times = _Times(pairs, laws)
    result = []
    for name, at in points:
        needed, replicates = laws.needed(at)
        if not 1 / LARGEST_FACTOR <= needed[0] / at <= LARGEST_FACTOR:
            continue
        value = float(times.ratio(needed, at, times.best)[0])
        interval, note = None, "no interval: wall times without a second seed have no noise figure"
        if times.df and not pairs.dependent:
            # Wall times have noise of their own: as many replicates as there are of the laws.
            lines = [side[: len(replicates)] for side in times.replicates] if laws.df else times.best
            interval, note = laws.interval(float(np.log(value)), times.ratio(replicates, at, lines))
            note = note or "seed noise only; machine load is not modelled"
        result.append(Multiplier(name, at, value, interval, laws.is_beyond(float(needed[0])), note))
    return result


def _timed_alike(complete: pd.DataFrame) -> bool:
    walls = complete[["wall_s_reference", "wall_s_arm"]].to_numpy(float)
    devices = complete[[name for name in complete if name in ("device_reference", "device_arm")]]
    one_device = len(pd.unique(devices.to_numpy().ravel())) <= 1
    return bool(np.all(np.isfinite(walls) & (walls > 0))) and one_device
