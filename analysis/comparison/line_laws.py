"""The laws of both arms on one line in compute, their replicates, and intervals of what follows from them.

The interval of a ratio is a t interval on its logarithm. The standard error from seeds is the spread of the
logarithm when the noise of each rung's seeds is drawn around both laws (normal in log loss, pairs and whole
clusters together) and both are refitted; the degrees of freedom are Satterthwaite's over the rungs, whose
shares follow from what a small change of each rung's losses does to the ratio. Where no seed repeats and
there are enough rungs, the noise is that of the residuals of least-squares fits, which is the weaker interval
and says so. Clusters that do not repeat each other get random signs of their residuals. The test split's
part is the jackknife over its blocks, with both laws refitted. It covers the noise, not a law of the wrong
form.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.fits.intervals import FEWEST_RESIDUAL_FREEDOM, MOST_FAILED, residuals_left_out
from scalevec.analysis.laws import Law, law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw, fit_identified, fit_points, joint_fit
from scalevec.analysis.solver.law_points import points_of
from scalevec.analysis.solver.newton import Solution
from scalevec.analysis.statistics.noise import FEWEST_CLUSTERS, are_copies, replicates_of
from scalevec.analysis.statistics.paired import FEWEST_RUNGS_WITHOUT_SEEDS
from scalevec.analysis.statistics.rung_noise import Component, Error, RungNoise, with_split
from scalevec.analysis.statistics.sample import sample_of

SIDES = ("reference", "arm")
FEWEST_RUNGS = 3
LARGEST_FACTOR = 1e6
"""Beyond this factor, up or down, a multiplier or the end of its interval says nothing."""
NUDGE = 1e-5
"""By this share losses are moved to see what a rung's noise does to a ratio."""
Parameters = list[dict[str, FloatArray]]
"""Rows of parameters of both laws, the reference first: name -> [rows]."""
Statistic = Callable[[Parameters], FloatArray]
"""A positive ratio [rows] that follows from both laws."""


@dataclass(frozen=True)
class Multiplier:
    """A multiplier at ``at_flops``; above one the arm saves. ``at`` says which point of the range it is.

    ``extrapolated``: the reference would need compute that it was not run at. Where ``estimate`` or
    ``interval`` is None, ``note`` says why. ``seeds_error`` and ``split_error`` are the parts of the standard
    error of its logarithm from seeds and from the test split.
    """

    at: str
    at_flops: float
    estimate: float | None
    interval: tuple[float, float] | None
    extrapolated: bool
    note: str = ""
    seeds_error: float | None = None
    split_error: float | None = None


@dataclass(frozen=True)
class RatioInterval:
    """The interval of a ratio, or None and the ``note`` that says why; errors are of its logarithm."""

    ends: tuple[float, float] | None
    note: str = ""
    log_error: float | None = None
    df: float = 0
    seeds_error: float | None = None
    split_error: float | None = None


def described(side: str, x: str, law: FittedLaw, arm: int = 0) -> dict[str, Any]:
    """A fitted law as plain JSON values; ``objective`` is a sum over points.

    ``equal_parameters`` is the range of each parameter that is not unique at the optimum; ``arm`` is the
    arm's number in a law of several.
    """
    return {
        "side": side,
        "x": x,
        "parameters": law.parameters(arm),
        "n_points": len(law.y),
        "objective": law.objective,
        "optimality": law.optimality,
        "verified": bool(law.solution.optimal[0]),
        "starts_agreeing": law.starts_agreeing,
        "n_starts": len(law.solution.objective),
        "equal_parameters": law.equal_parameters(arm),
    }


class ArmLaws:
    """The laws of reference and arm in one variable, and those of ``options.bootstrap`` replicates.

    ``x`` is C (FLOPs) or D (tokens). A law whose floor the arms share is one joint fit, any other a fit of
    each. Raises :class:`DataError` for points that leave a parameter free.
    """

    def __init__(self, pairs: Pairs, options: AnalysisOptions, x: Literal["C", "D"]) -> None:
        complete, law = pairs.complete, law_named(options.law)
        self.options, self.variable, self.law = options, x, law
        self.x = [complete[f"compute_{s}" if x == "C" else "n_tokens"].to_numpy(float) for s in SIDES]
        losses = [complete[f"loss_{side}"].to_numpy(float) for side in SIDES]
        self.fits = _fits(law, self.x, losses, dataclasses.replace(options, x=x))
        self.parameters = self._rows([fit.theta[None] for fit in self.fits])
        self.replicates, self.sample = self.parameters, sample_of(pairs)
        self.noise: RungNoise | None = None
        replicates, self.df, self.remark = self._replicate_losses(interim=pairs.is_interim)
        if self.df:
            self._refit(replicates)
        self.nudged = self._nudged() if self.noise else self.parameters
        self.left_out = self._without_blocks() if self.df else None
        if not all(fit.optimal for fit in self.fits):
            self.remark = "; ".join(filter(None, ["not from verified optima", self.remark]))

    def _rows(self, thetas: Sequence[FloatArray]) -> Parameters:
        """The parameters of both sides from rows of theta [rows, parameters] of each fit."""
        if len(thetas) == 1:
            return [self.fits[0].points.parameters(thetas[0], arm) for arm in (0, 1)]
        return [fit.points.parameters(theta) for fit, theta in zip(self.fits, thetas, strict=True)]

    def _redone(self, losses: FloatArray, fits: Sequence[FittedLaw] = ()) -> list[Solution]:
        """Each fit (or other ``fits`` of the same points) redone on ``losses`` [rows, sides, points]."""
        parts = np.split(losses.reshape(len(losses), -1), len(self.fits), axis=1)
        return [fit.redone(y=part) for fit, part in zip(fits or self.fits, parts, strict=True)]

    @staticmethod
    def _by_side(values: Sequence[FloatArray]) -> FloatArray:
        """``values`` of the points of each fit as [sides, points]."""
        return np.concatenate(values).reshape(len(SIDES), -1)

    @property
    def _n_free(self) -> float:
        """The parameters of one side; a shared one counts as half of one."""
        return sum(fit.theta.size for fit in self.fits) / len(SIDES)

    def _refit(self, losses: FloatArray) -> None:
        """Fit the replicates of the losses; those without a verified optimum on both sides are left out."""
        refits = self._redone(losses)
        verified = np.all([refit.optimal for refit in refits], axis=0)
        failed, draws = int(np.sum(~verified)), len(verified)
        if failed > MOST_FAILED * draws:
            self.df = 0
            self.remark = f"no interval: {failed} of {draws} bootstrap replicates leave a parameter free"
            return
        if failed:
            left_out = f"{failed} of {draws} bootstrap replicates are left out: no verified optimum"
            self.remark = "; ".join(filter(None, [self.remark, left_out]))
        self.replicates = self._rows([refit.theta[verified] for refit in refits])

    def _replicate_losses(self, *, interim: bool) -> tuple[FloatArray, float, str]:
        """Losses of replicates [draws, sides, points], degrees of freedom (0: none), and a remark."""
        options, sample, none = self.options, self.sample, np.empty(0)
        if options.bootstrap == 0:
            return none, 0, "no interval: none was asked for"
        if interim:
            return none, 0, "no interval: planned pairs have no result yet"
        logs = np.log(self._by_side([fit.y for fit in self.fits]))
        if any(are_copies(side, sample.cells) for side in logs):
            return none, 0, "no interval: seeds are exact copies, which carry no noise"
        noise = RungNoise(logs, sample.cells, sample.clusters, sample.rungs)
        bases = self._by_side([fit.predicted() for fit in self.fits])
        if noise.df:
            self.noise = noise
            drawn = noise.draws(options.bootstrap, np.random.default_rng(options.seed))
            return bases * np.exp(drawn), noise.df, ""
        if sample.dependent:
            return self._replicates_of_clusters(sample.clusters)
        if len(np.unique(sample.cells)) < FEWEST_RUNGS_WITHOUT_SEEDS:
            return none, 0, "no interval: one seed per rung carries none"
        residuals = self._by_side([fit.residuals() for fit in self._squares()])
        df = residuals.shape[1] - self._n_free
        losses = replicates_of(list(bases), residuals @ residuals.T / df, options.bootstrap, options.seed)
        return np.stack(losses, axis=1), df, "noise from the residuals: no seed repeats"

    def _replicates_of_clusters(self, clusters: npt.NDArray[Any]) -> tuple[FloatArray, float, str]:
        codes = np.unique(clusters, return_inverse=True)[1]
        n_clusters, n_free = int(codes.max()) + 1, self._n_free
        if n_clusters < max(FEWEST_CLUSTERS, n_free + FEWEST_RESIDUAL_FREEDOM):
            few = f"no interval: {n_clusters} independent clusters, fewer than {FEWEST_CLUSTERS}"
            return np.empty(0), 0, few
        rng = np.random.default_rng(self.options.seed)
        signs = rng.choice([-1.0, 1.0], (self.options.bootstrap, n_clusters))[:, codes]
        of_fit = np.tile(codes, len(SIDES) // len(self.fits))
        noise = [residuals_left_out(fit, of_fit) for fit in self._squares()]
        residuals = self._by_side([residuals for residuals, _ in noise])
        losses = self._by_side([fit.predicted() for fit in self.fits]) * np.exp(signs[:, None] * residuals)
        unverified = "".join(remark for _, remark in noise)
        remark = f"noise from the residuals of {n_clusters} whole clusters{unverified}"
        return losses, n_clusters - n_free, remark

    def _squares(self) -> list[FittedLaw]:
        """Both laws by least squares on log loss: a fit with a small delta passes through points."""
        squares = AnalysisOptions(loss="l2")
        if all((fit.options.loss, fit.options.residual) == ("l2", "log") for fit in self.fits):
            return self.fits
        return [fit_points(fit.points, fit.y, squares) for fit in self.fits]

    def _nudged(self) -> Parameters:
        """Laws by least squares: the first row as they are, then with one x of one side moved a little.

        Row 1 + k has the k-th x of the reference moved, and those of the arm follow.
        """
        moved = [np.unique(values)[:, None] == values for values in self.x]
        steps = np.zeros((1 + sum(map(len, moved)), len(SIDES), len(self.x[0])))
        steps[1 : 1 + len(moved[0]), 0] = moved[0]
        steps[1 + len(moved[0]) :, 1] = moved[1]
        squares = self._squares()
        losses = self._by_side([fit.y for fit in squares]) * np.exp(NUDGE * steps)
        return self._rows([refit.theta for refit in self._redone(losses, squares)])

    def _slopes(self, statistic: Statistic) -> FloatArray:
        """How the logarithm of a ratio follows the log loss of each point [sides, points]."""
        logs = np.log(statistic(self.nudged))
        moved = np.split((logs[1:] - logs[0]) / NUDGE, [len(np.unique(self.x[0]))])
        slopes = []
        for values, of_side in zip(self.x, moved, strict=True):
            _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
            slopes.append((of_side / counts)[index])
        return np.stack(slopes)

    def _without_blocks(self) -> Parameters | None:
        """Both laws without each block of the test split; None where that is not known."""
        if self.sample.split is None:
            return None
        refits = self._redone(self.sample.split.without_each())
        if not all(refit.optimal.all() for refit in refits):
            unknown = "the test split's own error is left out: refits without a block are no verified optima"
            self.remark = "; ".join(filter(None, [self.remark, unknown]))
            return None
        return self._rows([refit.theta for refit in refits])

    def described(self) -> list[dict[str, Any]]:
        """Both laws as plain JSON values."""
        return [
            described(side, self.variable, fit, arm)
            for side, (fit, arm) in zip(SIDES, self.sides, strict=True)
        ]

    @property
    def sides(self) -> list[tuple[FittedLaw, int]]:
        """The fit of each side, and the side's number in it."""
        return [(fit, arm) for fit in self.fits for arm in range(fit.points.n_arms)]

    def range(self) -> tuple[float, float]:
        """The reference's smallest and largest x."""
        return float(self.x[0].min()), float(self.x[0].max())

    def needed(self, at: float) -> tuple[FloatArray, FloatArray]:
        """x that the reference needs for the arm's loss at ``at``: [1], and [draws] of the replicates."""
        return needed_of(self.parameters, at, self.law), needed_of(self.replicates, at, self.law)

    def is_beyond(self, needed: float) -> bool:
        """Whether ``needed`` lies outside of the x that the reference was run at."""
        low, high = self.range()
        return not low * (1 - 1e-9) <= needed <= high * (1 + 1e-9)

    def multiplier(self, name: str, at: float, at_flops: float) -> Multiplier:
        """The multiplier at x = ``at`` with its interval."""
        value = float(needed_of(self.parameters, at, self.law)[0])
        if not 1 / LARGEST_FACTOR <= value / at <= LARGEST_FACTOR:
            never = f"the reference's law never reaches this {self.options.y}"
            return Multiplier(name, at_flops, None, None, True, never)
        return self.ratio(
            name, at_flops, lambda laws: needed_of(laws, at, self.law) / at, self.is_beyond(value)
        )

    def ratio(
        self,
        name: str,
        at_flops: float,
        statistic: Statistic,
        extrapolated: bool,
    ) -> Multiplier:
        """A multiplier that is this ``statistic`` of both laws."""
        bounds = self.interval(statistic)
        value, note = float(statistic(self.parameters)[0]), bounds.note or self.remark
        errors = bounds.seeds_error, bounds.split_error
        return Multiplier(name, at_flops, value, bounds.ends, extrapolated, note, *errors)

    def law_losses(self, rows: Mapping[str, FloatArray], x: FloatArray) -> FloatArray:
        """The losses of rows of a law's parameters at ``x`` [points]: [rows, points]."""
        return self.law.predict(_columns(rows), {"x": x[None]})

    def change(self, low: float, high: float) -> dict[str, Any] | None:
        """The factor by which the multiplier changes with each decade of x, between ``low`` and ``high``."""
        if not high > low:
            return None
        decades = float(np.log10(high / low))

        def factor(laws: Parameters) -> FloatArray:
            with np.errstate(invalid="ignore", over="ignore"):
                ends = [np.log(needed_of(laws, at, self.law) / at) for at in (high, low)]
                change = ends[0] - ends[1]
                return np.asarray(np.exp(change / decades))

        value = float(factor(self.parameters)[0])
        if not 1 / LARGEST_FACTOR <= value <= LARGEST_FACTOR:
            return None
        bounds = self.interval(factor)
        errors = {name: getattr(bounds, name) for name in ("log_error", "df", "seeds_error", "split_error")}
        return {"estimate": value, "interval": bounds.ends, "note": bounds.note or self.remark, **errors}

    def interval(self, statistic: Statistic) -> RatioInterval:
        """The t interval of a ratio, or None and why there is none."""
        if self.df == 0:
            return RatioInterval(None, self.remark)
        if len(np.unique(self.x[0])) < FEWEST_RUNGS:
            return RatioInterval(None, f"no interval: fewer than {FEWEST_RUNGS} rungs cannot check the law")
        drawn = statistic(self.replicates)
        without = np.ones(1) if self.left_out is None else statistic(self.left_out)
        if not all(np.all(np.isfinite(rows) & (rows > 0)) for rows in (drawn, without)):
            return RatioInterval(
                None, "no interval: within the noise the reference may never reach this loss"
            )
        known = self.sample.split if self.left_out is not None else None
        split = [Component(*known.jackknife(np.log(without)))] if known else []
        error, from_seeds = self.error(statistic, float(np.std(np.log(drawn))), split)
        half = error.half(self.options.level)
        if half > np.log(LARGEST_FACTOR):
            return RatioInterval(None, "no interval: the noise leaves more than six orders of magnitude open")
        value = float(np.log(statistic(self.parameters)[0]))
        low, high = np.exp([value - half, value + half])
        from_split = float(np.sqrt(split[0].variance)) if split else None
        return RatioInterval((float(low), float(high)), "", *error, from_seeds, from_split)

    def error(self, statistic: Statistic, spread: float, split: list[Component]) -> tuple[Error, float]:
        """The error of a ratio's logarithm whose replicates have this ``spread``, and its part from seeds.

        By rung, or with noise pooled over rungs where that is longer: their quotient is that of the linear
        parts.
        """
        plain = [Error(spread, self.df)]
        if self.noise is not None:
            with np.errstate(all="ignore"):
                slopes = self._slopes(statistic)
            if np.all(np.isfinite(slopes)) and np.any(slopes):
                by_rung, pooled = self.noise.errors(slopes)
                quotient = pooled.standard_error / by_rung.standard_error
                plain = [Error(spread, by_rung.df), Error(spread * quotient, pooled.df)]
        return with_split(plain, split)


def _fits(
    law: Law, x: Sequence[FloatArray], losses: Sequence[FloatArray], options: AnalysisOptions
) -> list[FittedLaw]:
    """The law of each side; one fit of both where they share parameters."""
    variables = [{"x": values} for values in x]
    if law.per_arm:
        return [joint_fit(list(zip(variables, losses, strict=True)), law, options)]
    return [
        fit_identified(points_of(law, of_side), loss, options, side)
        for side, of_side, loss in zip(SIDES, variables, losses, strict=True)
    ]


def needed_of(laws: Parameters, at: float, law: Law) -> FloatArray:
    """x at which the reference has the arm's loss at ``at``, row by row; infinite where it never has."""
    reference, arm = laws
    if law.name not in ("power", "power-floor", "power-floor-shared") or law.fixed:
        loss = law.predict(_columns(arm), {"x": np.array([[at]])})[:, 0]
        return reached(lambda x: law.predict(_columns(reference), {"x": x[:, None]})[:, 0], loss, at)
    # E + A / x^alpha = the loss, solved for x.
    loss = arm["A"] * at ** -arm["alpha"] + arm.get("E", 0.0)
    above = loss - reference.get("E", np.zeros(1))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        needed = np.exp((np.log(reference["A"]) - np.log(above)) / reference["alpha"])
    return np.where((above > 0) & (reference["alpha"] > 0), needed, np.inf)


def _columns(parameters: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    return {name: values[:, None] for name, values in parameters.items()}


def reached(loss_at: Callable[[FloatArray], FloatArray], loss: FloatArray, near: float) -> FloatArray:
    """x [rows] at which a falling ``loss_at`` (x [rows] to losses [rows]) is ``loss`` [rows], by bisection.

    Sought within ten times :data:`LARGEST_FACTOR` of ``near``; infinite where it is not reached there.
    """
    reach = np.log(10 * LARGEST_FACTOR)
    low, high = np.full(loss.shape, np.log(near) - reach), np.full(loss.shape, np.log(near) + reach)
    with np.errstate(all="ignore"):
        is_inside = (loss_at(np.exp(low)) >= loss) & (loss_at(np.exp(high)) <= loss)
        for _ in range(60):
            middle = (low + high) / 2
            above = loss_at(np.exp(middle)) > loss
            low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(is_inside, np.exp((low + high) / 2), np.inf)
