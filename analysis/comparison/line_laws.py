"""The laws of two arms on one line in compute, their replicates, and intervals of what follows from both.

An interval is a t interval; that of a ratio is on its logarithm. The standard error is the spread of the
quantity when noise is drawn around both laws and both are refitted. :class:`ArmLaws` draws, for arms with
pairs, the noise of each rung's seeds; degrees of freedom are Satterthwaite's over the rungs, whose shares
follow from what a small change of each rung's losses does to the quantity. Where no seed repeats and there
are enough rungs, the noise is that of the residuals of least-squares fits, which is the weaker interval and
says so. Clusters that do not repeat each other get random signs of their residuals. The test split's part is
the jackknife over its blocks. Arms without pairs: ``analysis.comparison.law_comparison``.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalevec.analysis.comparison.fairness import SIDES
from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.fits.intervals import MOST_FAILED, fewest_runs, residuals_left_out
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw, fit_points, laws_of_arms
from scalevec.analysis.solver.newton import Solution
from scalevec.analysis.statistics.noise import FEWEST_CLUSTERS, Component, RungNoise, are_copies, with_split
from scalevec.analysis.statistics.paired import FEWEST_RUNGS_WITHOUT_SEEDS, Estimate
from scalevec.analysis.statistics.sample import sample_of

FEWEST_RUNGS = 3
LARGEST_FACTOR = 1e6
"""Beyond this factor, up or down, a multiplier or the end of its interval says nothing."""
NUDGE = 1e-5
"""By this share losses are moved to see what a rung's noise does to a quantity."""
Rows = Mapping[str, FloatArray]
"""Parameters of one law: name -> [rows, 1]."""
Parameters = Sequence[Rows]
"""Those of both laws, the reference first."""
Statistic = Callable[[Parameters], FloatArray]
"""What follows from both laws [rows]: a difference, or the logarithm of a ratio."""


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


class TwoLaws(ABC):
    """The laws of reference and arm with replicates; a maker of these is a class of its own.

    ``sides`` are the fit of each and, in a law of several arms, the side's number in it; ``best`` has their
    parameters, ``draws`` those of the replicates. Without these ``remark`` says why.
    """

    draws: Parameters | None = None
    remark: str = ""
    compute: FloatArray

    def __init__(self, sides: Sequence[tuple[FittedLaw, int]], options: AnalysisOptions) -> None:
        self.sides, self.options = tuple(sides), options
        reference, arm = (fit for fit, _ in sides)
        self.fits = [reference] if reference is arm else [reference, arm]
        self.law = reference.points.law
        self.best = self.rows([fit.theta[None] for fit in self.fits])

    def rows(self, thetas: Sequence[FloatArray]) -> Parameters:
        """The parameters of both sides from rows of theta [rows, parameters] of each fit."""
        of_sides = zip(self.sides, (thetas[0], thetas[-1]), strict=True)
        values = [fit.points.parameters(theta, number) for (fit, number), theta in of_sides]
        return [{name: of_name[:, None] for name, of_name in side.items()} for side in values]

    def draw(self, refits: Sequence[Solution]) -> None:
        """Take the replicates of which all ``refits``, one of each fit, are verified optima."""
        verified = np.all([refit.optimal for refit in refits], axis=0)
        failed, draws = int(np.sum(~verified)), len(verified)
        if failed > MOST_FAILED * draws:
            self.remark = f"no interval: {failed} of {draws} bootstrap replicates leave a parameter free"
            return
        if failed:
            self.add_remark(f"{failed} of {draws} bootstrap replicates are left out: no verified optimum")
        self.draws = self.rows([refit.theta[verified] for refit in refits])

    def add_remark(self, text: str) -> None:
        """Say this beside the intervals too."""
        self.remark = "; ".join(filter(None, [self.remark, text]))

    def range(self) -> tuple[float, float]:
        """The smallest and the largest compute at which the reference was run."""
        return float(self.compute.min()), float(self.compute.max())

    @abstractmethod
    def variance(self, statistic: Statistic, drawn: FloatArray) -> Component:
        """The variance of a quantity with these ``drawn`` values [draws]; nan where the noise leaves none."""

    def variables(self, compute: FloatArray) -> Mapping[str, FloatArray]:
        """What the law reads at ``compute`` [points] of the line."""
        return {"x": compute}

    def estimated(self, statistic: Statistic) -> tuple[Estimate, str]:
        """A quantity of both laws with its standard error, and what is to be said of that, or why none is."""
        value = float(statistic(self.best)[0])
        without = Estimate(value, float("nan"), 0)
        if self.draws is None:
            return without, self.remark
        if len(np.unique(self.compute)) < FEWEST_RUNGS:
            return without, f"no interval: fewer than {FEWEST_RUNGS} rungs cannot check the law"
        with np.errstate(all="ignore"):
            drawn = statistic(self.draws)
            known = np.all(np.isfinite(drawn))
            error = self.variance(statistic, drawn) if known else Component(np.nan, 0)
        if not np.isfinite(error.variance):
            return without, "no interval: within the noise the reference may never reach this loss"
        return Estimate(value, error.standard_error, error.df), self.remark

    def interval_of_ratio(self, estimate: Estimate, note: str) -> tuple[tuple[float, float] | None, str]:
        """The interval of a ratio whose logarithm is the ``estimate``, and what is to be said of it."""
        ends = estimate.interval(self.options.level)
        if ends is None:
            return None, note
        if ends[1] - ends[0] > 2 * np.log(LARGEST_FACTOR):
            return None, "no interval: the noise leaves more than six orders of magnitude open"
        return (float(np.exp(ends[0])), float(np.exp(ends[1]))), note

    def needed(self, laws: Parameters, at: float) -> FloatArray:
        """FLOPs [rows] at which the reference has the arm's loss at ``at``; infinite where it never has."""
        reference, arm = laws

        def loss_at(side: Rows, compute: FloatArray) -> FloatArray:
            variables = {name: np.reshape(of, (-1, 1)) for name, of in self.variables(compute).items()}
            return self.law.predict(side, variables)[:, 0]

        n_rows = max(len(values) for side in laws for values in side.values())
        loss, reach = np.broadcast_to(loss_at(arm, np.array([at])), n_rows), np.log(10 * LARGEST_FACTOR)
        low, high = np.full(n_rows, np.log(at) - reach), np.full(n_rows, np.log(at) + reach)
        with np.errstate(all="ignore"):
            is_inside = loss_at(reference, np.exp(low)) >= loss
            is_inside &= loss_at(reference, np.exp(high)) <= loss
            for _ in range(60):
                middle = (low + high) / 2
                above = loss_at(reference, np.exp(middle)) > loss
                low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.where(is_inside, np.exp((low + high) / 2), np.inf)

    def log_multiplier(self, laws: Parameters, at: float) -> FloatArray:
        """The logarithm of the multiplier [rows] at ``at`` FLOPs."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.needed(laws, at) / at))

    def multiplier(self, name: str, at: float) -> Multiplier:
        """The multiplier at ``at`` FLOPs, a place that is called ``name``, with its interval."""
        estimate, note = self.estimated(lambda laws: self.log_multiplier(laws, at))
        if not abs(estimate.value) <= np.log(LARGEST_FACTOR):
            never = f"the reference's law never reaches this {self.options.y}"
            return Multiplier(name, at, None, None, True, never)
        (low, high), factor = self.range(), float(np.exp(estimate.value))
        is_beyond = not low * (1 - 1e-9) <= factor * at <= high * (1 + 1e-9)
        interval, note = self.interval_of_ratio(estimate, note)
        return Multiplier(name, at, factor, interval, is_beyond, note)

    def change(self, low: float, high: float) -> dict[str, Any] | None:
        """The factor by which the multiplier changes with each decade of C, between ``low`` and ``high``."""
        if not high > low:
            return None

        def log_factor(laws: Parameters) -> FloatArray:
            with np.errstate(invalid="ignore", over="ignore"):
                ends = [self.log_multiplier(laws, at) for at in (high, low)]
                return np.asarray((ends[0] - ends[1]) / float(np.log10(high / low)))

        estimate, note = self.estimated(log_factor)
        if not abs(estimate.value) <= np.log(LARGEST_FACTOR):
            return None
        interval, note = self.interval_of_ratio(estimate, note)
        error = estimate.standard_error if interval else None
        shown = {"estimate": float(np.exp(estimate.value)), "interval": interval, "note": note}
        return {**shown, "log_error": error, "df": estimate.df if interval else 0}

    def described(self, names: Sequence[str] = SIDES, x: str = "C") -> list[dict[str, Any]]:
        """Both laws as plain JSON values; ``objective`` is a sum over points.

        ``equal_parameters`` is the range of each parameter that is not unique at the optimum.
        """
        return [
            {
                "side": name,
                "x": x,
                "parameters": fit.parameters(number),
                "n_points": len(fit.y),
                "objective": fit.objective,
                "optimality": fit.optimality,
                "verified": fit.optimal,
                "starts_agreeing": fit.starts_agreeing,
                "n_starts": len(fit.solution.objective),
                "equal_parameters": fit.equal_parameters(number),
            }
            for name, (fit, number) in zip(names, self.sides, strict=True)
        ]


class ArmLaws(TwoLaws):
    """The laws in C (FLOPs) of the complete pairs, with ``options.bootstrap`` replicates.

    A law whose floor the arms share is one joint fit, any other a fit of each. Raises :class:`DataError` for
    points that leave a parameter free.
    """

    noise: RungNoise | None = None
    left_out: Parameters | None = None

    def __init__(self, pairs: Pairs, options: AnalysisOptions) -> None:
        complete = pairs.complete
        self.x = [complete[f"compute_{side}"].to_numpy(float) for side in SIDES]
        self.compute = self.x[0]
        losses = [complete[f"loss_{side}"].to_numpy(float) for side in SIDES]
        points = {side: ({"x": x}, loss) for side, x, loss in zip(SIDES, self.x, losses, strict=True)}
        laws = laws_of_arms(points, dataclasses.replace(options, x="C"))
        super().__init__(list(zip(laws, range(len(SIDES)), strict=True)), options)
        # The parameters of one side; a shared one counts as half of one.
        self.n_free = sum(fit.theta.size for fit in self.fits) / len(SIDES)
        self.sample = sample_of(pairs)
        replicates, self.df, self.remark = self._replicate_losses(interim=pairs.is_interim)
        if self.df:
            self.draw(self._redone(replicates))
        self.nudged = self._nudged() if self.noise and self.draws else self.best
        if self.draws and self.sample.split is not None:
            self.left_out = self._without_blocks()
        if not all(fit.optimal for fit in self.fits):
            self.add_remark("not from verified optima")

    def _redone(self, losses: FloatArray, fits: Sequence[FittedLaw] = ()) -> list[Solution]:
        """Each fit (or other ``fits`` of the same points) redone on ``losses`` [rows, sides, points]."""
        parts = np.split(losses.reshape(len(losses), -1), len(self.fits), axis=1)
        return [fit.redone(y=part) for fit, part in zip(fits or self.fits, parts, strict=True)]

    def _replicate_losses(self, *, interim: bool) -> tuple[FloatArray, float, str]:
        """Losses of replicates [draws, sides, points], degrees of freedom (0: none), and a remark."""
        options, sample, none = self.options, self.sample, np.empty(0)
        if options.bootstrap == 0:
            return none, 0, "no interval: none was asked for"
        if interim:
            return none, 0, "no interval: planned pairs have no result yet"
        logs = np.log(_by_side([fit.y for fit in self.fits]))
        if any(are_copies(side, sample.cells) for side in logs):
            return none, 0, "no interval: seeds are copies, which carry no noise"
        noise = RungNoise(logs, sample.cells, sample.clusters, sample.rungs)
        bases = _by_side([fit.predicted() for fit in self.fits])
        if noise.df:
            self.noise = noise
            drawn = noise.draws(options.bootstrap, np.random.default_rng(options.seed))
            return bases * np.exp(drawn), noise.df, ""
        if sample.dependent:
            return self._replicates_of_clusters(bases)
        if len(np.unique(sample.cells)) < FEWEST_RUNGS_WITHOUT_SEEDS:
            return none, 0, "no interval: one seed per rung carries none"
        residuals = _by_side([fit.residuals() for fit in self._squares()])
        df = residuals.shape[1] - self.n_free
        rng, size = np.random.default_rng(options.seed), (options.bootstrap, bases.shape[1])
        # svd: sides that agree exactly make the covariance singular, which Cholesky refuses.
        drawn = rng.multivariate_normal(np.zeros(2), residuals @ residuals.T / df, size, method="svd")
        return bases * np.exp(np.moveaxis(drawn, -1, 1)), df, "noise from the residuals: no seed repeats"

    def _replicates_of_clusters(self, bases: FloatArray) -> tuple[FloatArray, float, str]:
        codes = np.unique(self.sample.clusters, return_inverse=True)[1]
        n_clusters, n_free = int(codes.max()) + 1, self.n_free
        if n_clusters < fewest_runs(n_free):
            few = f"no interval: {n_clusters} independent clusters, fewer than {FEWEST_CLUSTERS}"
            return np.empty(0), 0, few
        rng = np.random.default_rng(self.options.seed)
        signs = rng.choice([-1.0, 1.0], (self.options.bootstrap, n_clusters))[:, codes]
        of_fit = np.tile(codes, len(SIDES) // len(self.fits))
        noise = [residuals_left_out(fit, of_fit) for fit in self._squares()]
        residuals = _by_side([residuals for residuals, _ in noise])
        unverified = "".join(remark for _, remark in noise)
        remark = f"noise from the residuals of {n_clusters} whole clusters{unverified}"
        return bases * np.exp(signs[:, None] * residuals), n_clusters - n_free, remark

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
        losses = _by_side([fit.y for fit in squares]) * np.exp(NUDGE * steps)
        return self.rows([refit.theta for refit in self._redone(losses, squares)])

    def _slopes(self, statistic: Statistic) -> FloatArray:
        """How a quantity follows the log loss of each point [sides, points]."""
        values, slopes = statistic(self.nudged), []
        moved = np.split((values[1:] - values[0]) / NUDGE, [len(np.unique(self.x[0]))])
        for x, of_side in zip(self.x, moved, strict=True):
            _, index, counts = np.unique(x, return_inverse=True, return_counts=True)
            slopes.append((of_side / counts)[index])
        return np.stack(slopes)

    def _without_blocks(self) -> Parameters | None:
        """Both laws without each block of the test split; None where they are no verified optima."""
        refits = self._redone(self.sample.split.without_each()) if self.sample.split else []
        if not all(refit.optimal.all() for refit in refits):
            self.add_remark(
                "the test split's own error is left out: refits without a block are no verified optima"
            )
            return None
        return self.rows([refit.theta for refit in refits])

    def variance(self, statistic: Statistic, drawn: FloatArray) -> Component:
        """That from seeds with the test split's; nan where a law without a block never gets there."""
        split = []
        if self.left_out is not None and self.sample.split is not None:
            split = [Component(*self.sample.split.jackknife(statistic(self.left_out)))]
            if not np.isfinite(split[0].variance):
                return Component(np.nan, 0)
        return with_split(self.variances_of_seeds(statistic, drawn), split)[0]

    def variances_of_seeds(self, statistic: Statistic, drawn: FloatArray) -> list[Component]:
        """By rung, and with noise pooled over rungs: their quotient is that of the linear parts."""
        spread = float(np.var(drawn))
        if self.noise is not None:
            with np.errstate(all="ignore"):
                slopes = self._slopes(statistic)
            if np.all(np.isfinite(slopes)) and np.any(slopes):
                by_rung, pooled = self.noise.errors(slopes)
                quotient = pooled.variance / by_rung.variance
                return [Component(spread, by_rung.df), Component(spread * quotient, pooled.df)]
        return [Component(spread, self.df)]

    def needed(self, laws: Parameters, at: float) -> FloatArray:
        """Solved for C where the law is E + A / C^alpha; a page of many arms asks thousands of times."""
        if self.law.name not in ("power", "power-floor", "power-floor-shared") or self.law.fixed:
            return super().needed(laws, at)
        reference, arm = ({name: values[:, 0] for name, values in side.items()} for side in laws)
        loss = arm["A"] * at ** -arm["alpha"] + arm.get("E", 0.0)
        above = loss - reference.get("E", np.zeros(1))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            needed = np.exp((np.log(reference["A"]) - np.log(above)) / reference["alpha"])
        return np.where((above > 0) & (reference["alpha"] > 0), needed, np.inf)


def _by_side(values: Sequence[FloatArray]) -> FloatArray:
    """``values`` of the points of each fit as [sides, points]."""
    return np.concatenate(values).reshape(len(SIDES), -1)
