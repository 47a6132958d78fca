"""Laws of two arms fitted to all their runs, in N and D too, on a line of sizes with one D/N.

Replicates of all arms are drawn together, whole runs' residuals with random signs: a run that several arms
share (the same cluster), or the two sides of a pair, have the same sign, so that what they have in common
goes out of a difference. Residuals are those of a fit without the run (for the signs: Cameron, Gelbach &
Miller 2008), as a run may draw the law to itself.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.differences import RungDifference
from scalevec.analysis.comparison.line_laws import Statistic, TwoLaws
from scalevec.analysis.data.tidy import FloatArray, pooled_settings, variable_of
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.arm_data import ArmData, fitted_laws
from scalevec.analysis.fits.intervals import Replicates, fewest_runs, no_interval, residuals_left_out, shifted
from scalevec.analysis.fits.predicted_points import FittedArm
from scalevec.analysis.formatting import count, joined
from scalevec.analysis.solver.best_fit import FittedLaw
from scalevec.analysis.statistics.noise import Component, satterthwaite
from scalevec.analysis.statistics.paired import Estimate

POINTS_ON_THE_LINE = 5


def laws_of(arms: Sequence[ArmData]) -> dict[str, FittedArm]:
    """Return the law of each arm with replicates that are drawn together, unverified ones among them.

    Raises :class:`DataError` where the points of an arm leave a parameter free.
    """
    laws, options = fitted_laws(arms), arms[0].options
    runs = np.unique(np.concatenate([data.clusters.to_numpy(str) for data in arms]))
    signs = np.random.default_rng(options.seed).choice([-1.0, 1.0], (options.bootstrap, len(runs)))
    families = [arms] if laws[0].points.law.per_arm else [[data] for data in arms]
    fitted: dict[str, FittedArm] = {}
    for law, family in zip(laws, families, strict=False):
        codes = np.searchsorted(runs, np.concatenate([data.clusters.to_numpy(str) for data in family]))
        of_cluster = np.unique(codes, return_inverse=True)[1]
        n_runs = int(of_cluster.max()) + 1
        drawn = no_interval(law, _problem(family, law, n_runs))
        if not drawn.note:
            refits = law.redone(y=shifted(law, signs[:, codes] * residuals_left_out(law, of_cluster)[0]))
            drawn = Replicates("cluster-t", n_runs - law.theta.size, refits, "")
        fitted |= {data.arm: FittedArm(tuple(family), law, n, drawn) for n, data in enumerate(family)}
    return fitted


def _problem(arms: Sequence[ArmData], law: FittedLaw, n_runs: int) -> str:
    """Why the runs carry no interval, as a sentence; empty where they do."""
    needed = fewest_runs(law.theta.size)
    several = pooled_settings(pd.concat([data.rows for data in arms]), arms[0].options.settings)
    if arms[0].options.bootstrap == 0:
        return "no interval was asked for"
    if several:
        return f"no interval: values of {joined(several)} differ at one rung, by more than seed noise"
    if n_runs < needed:
        return f"no interval: {n_runs} independent runs for {law.theta.size} parameters, fewer than {needed}"
    return next((data.doubt for data in arms if data.doubt), "")


class LawsOnLine(TwoLaws):
    """The laws of reference and arm on the line of ``ratio`` tokens per parameter, over ``compute`` [points].

    Raises :class:`DataError` where both were run at no size in common.
    """

    def __init__(self, reference: FittedArm, arm: FittedArm, ratio: float) -> None:
        super().__init__([(side.law, side.number) for side in (reference, arm)], arm.data.options)
        self.arms, self.ratio, self.names = (reference, arm), ratio, (reference.data.arm, arm.data.arm)
        self.compute = self._line()
        self.remark = reference.uncertainty.note or arm.uncertainty.note
        if not self.remark:
            self.draw([side.uncertainty.solution for side in self.arms[: len(self.fits)]])

    def _line(self) -> FloatArray:
        """Compute along the sizes and tokens that both were run at."""
        rows = [side.data.rows for side in self.arms]
        sizes = [variable_of(of_arm, "N", self.options) for of_arm in rows]
        tokens = [of_arm["n_tokens"].to_numpy(float) for of_arm in rows]
        at_ratio = [*sizes, *(of_arm / self.ratio for of_arm in tokens)]
        low, high = max(values.min() for values in at_ratio), min(values.max() for values in at_ratio)
        if not low < high:
            spans = " and ".join(
                f"N {count(n.min())} to {count(n.max())}, D {count(d.min())} to {count(d.max())}"
                for n, d in zip(sizes, tokens, strict=True)
            )
            names, at = " and ".join(map(repr, self.names)), f"{self.ratio:.3g} tokens per parameter"
            raise DataError(f"{names} ({spans}) have no size in common at {at}")
        return np.asarray(6 * self.ratio * np.geomspace(low, high, POINTS_ON_THE_LINE) ** 2)

    def places(self, compute: FloatArray) -> dict[str, FloatArray]:
        """N, D and C at ``compute`` on the line."""
        size = np.sqrt(compute / (6 * self.ratio))
        return {"N": size, "D": self.ratio * size, "C": compute}

    def variables(self, compute: FloatArray) -> Mapping[str, FloatArray]:
        """What the law reads at ``compute`` on the line."""
        known = self.places(compute)
        return {name: known[self.options.x if name == "x" else name] for name in self.law.variables}

    def variance(self, statistic: Statistic, drawn: FloatArray) -> Component:
        """Degrees of freedom are Satterthwaite's over the arms' parts; the fewer where runs are shared."""
        spread, (reference, arm) = float(np.var(drawn)), self.arms
        freedom = [side.uncertainty.df for side in self.arms]
        if len(self.fits) == 1 or {*reference.data.clusters} & {*arm.data.clusters}:
            return Component(spread, min(freedom))
        drawn_laws, best = self.draws or self.best, self.best
        one_at_a_time = zip(([drawn_laws[0], best[1]], [best[0], drawn_laws[1]]), freedom, strict=True)
        parts = [Component(float(np.var(statistic(laws))), df) for laws, df in one_at_a_time]
        if not all(np.isfinite(part.variance) for part in parts):
            return Component(float("nan"), 0)
        return Component(spread, satterthwaite(parts).df)

    def difference(self, compute: FloatArray) -> tuple[Estimate, str]:
        """The mean difference, arm minus reference, at ``compute`` [points] of the line."""
        at = {name: values[None] for name, values in self.variables(compute).items()}

        def mean(laws: Sequence[Mapping[str, FloatArray]]) -> FloatArray:
            reference, arm = (self.law.predict(side, at) for side in laws)
            return np.asarray(np.mean(arm - reference, axis=1))

        return self.estimated(mean)

    def along_the_line(self) -> tuple[RungDifference, ...]:
        """The difference at each point of the line."""
        points = []
        for compute in self.compute[:, None]:
            size, tokens, _ = (float(of[0]) for of in self.places(compute).values())
            mean = self.difference(compute)[0]
            ends = mean.interval(self.options.level)
            points.append(RungDifference(f"N {count(size)}", size, tokens, {}, (), (), 0, mean.value, ends))
        return tuple(points)
