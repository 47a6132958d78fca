"""The laws of several arms and their replicates, drawn together: whole runs' residuals with random signs.

A run that several arms share (the same value in the cluster column) has the same sign in each of them, so
that what it has in common goes out of a difference. Residuals are those of a fit without the run (for the
signs: Cameron, Gelbach & Miller 2008), so that a run which draws the law to itself does not hide its noise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.data.pairs import pooled_settings
from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.fits.arm_data import ArmData, fitted_laws
from scalevec.analysis.fits.intervals import FEWEST_RESIDUAL_FREEDOM, MOST_FAILED, residuals_left_out, shifted
from scalevec.analysis.formatting import joined
from scalevec.analysis.solver.best_fit import FittedLaw
from scalevec.analysis.solver.newton import Solution
from scalevec.analysis.statistics.noise import FEWEST_CLUSTERS
from scalevec.analysis.statistics.paired import Estimate

Rows = Mapping[str, FloatArray]
"""Parameters of a law: name -> [rows, 1]."""
Statistic = Callable[[Rows, Rows], FloatArray]
"""What follows from the laws of reference and arm [rows]."""


@dataclass(frozen=True)
class Surface:
    """The law of one arm; ``replicates`` are fits to bootstrap replicates, with ``df`` degrees of freedom.

    Without replicates ``reason`` says why. ``number`` is the arm's own in a law of several arms.
    """

    data: ArmData
    law: FittedLaw
    number: int
    replicates: Solution | None
    df: float
    reason: str = ""

    def rows(self, keep: BoolArray | None = None) -> Rows:
        """The best parameters [1, 1]; those of the replicates ``keep`` [draws] where these are given."""
        drawn = (
            self.law.theta[None] if keep is None or self.replicates is None else self.replicates.theta[keep]
        )
        values = self.law.points.parameters(drawn, self.number)
        return {name: of_name[:, None] for name, of_name in values.items()}

    @property
    def runs(self) -> frozenset[str]:
        """Its independent runs."""
        return frozenset(self.data.clusters)


def surfaces_of(arms: Sequence[ArmData]) -> dict[str, Surface]:
    """Return the law of each arm with replicates that are drawn together.

    Raises :class:`DataError` where the points of an arm leave a parameter free.
    """
    laws, draws = fitted_laws(arms), arms[0].options.bootstrap
    jointly = bool(laws[0].points.law.per_arm)
    runs = np.unique(np.concatenate([data.clusters.to_numpy(str) for data in arms]))
    signs = np.random.default_rng(arms[0].options.seed).choice([-1.0, 1.0], (draws, len(runs)))
    surfaces: list[Surface] = []
    for number, (data, law) in enumerate(zip(arms, laws, strict=True)):
        if jointly and surfaces:
            surfaces.append(replace(surfaces[0], data=data, law=law, number=number))
            continue
        of_law = arms if jointly else [data]
        codes = np.searchsorted(runs, np.concatenate([member.clusters.to_numpy(str) for member in of_law]))
        reason = _problem(of_law, law, len(np.unique(codes)))
        drawn = None if reason else replicates(law, codes, signs)
        df = len(np.unique(codes)) - law.theta.size
        surfaces.append(Surface(data, law, number if jointly else 0, drawn, df, reason))
    return {surface.data.arm: surface for surface in surfaces}


def replicates(law: FittedLaw, clusters: npt.NDArray[np.intp], signs: FloatArray) -> Solution:
    """The fits to the law's values plus each run's residuals times its sign [draws, runs]."""
    residuals, _ = residuals_left_out(law, np.unique(clusters, return_inverse=True)[1])
    return law.redone(y=shifted(law, signs[:, clusters] * residuals))


def _problem(arms: Sequence[ArmData], law: FittedLaw, n_runs: int) -> str:
    """Why the runs carry no interval, as a sentence; empty where they do."""
    needed = max(FEWEST_CLUSTERS, law.theta.size + FEWEST_RESIDUAL_FREEDOM)
    doubts = [data.doubt for data in arms if data.doubt]
    several = pooled_settings(pd.concat([data.rows for data in arms]), arms[0].options.settings)
    if arms[0].options.bootstrap == 0:
        return "no interval was asked for"
    if several:
        return f"no interval: values of {joined(several)} differ at one rung, by more than seed noise"
    if n_runs < needed:
        return f"no interval: {n_runs} independent runs for {law.theta.size} parameters, fewer than {needed}"
    return doubts[0] if doubts else ""


def estimated(statistic: Statistic, reference: Surface, arm: Surface) -> tuple[Estimate, str]:
    """A quantity of both laws with its standard error, and why it has none (empty where it has).

    Degrees of freedom are Satterthwaite's over the arms' parts; the fewer of the two where runs are shared.
    """
    value = float(statistic(reference.rows(), arm.rows())[0])
    without = Estimate(value, float("nan"), 0)
    if reference.replicates is None or arm.replicates is None:
        return without, reference.reason or arm.reason
    keep = reference.replicates.optimal & arm.replicates.optimal
    if np.mean(~keep) > MOST_FAILED:
        return without, f"no interval: {int(np.sum(~keep))} of {len(keep)} replicates leave a parameter free"
    both = reference.rows(keep), arm.rows(keep)
    values = statistic(*both)
    parts = [np.var(statistic(both[0], arm.rows())), np.var(statistic(reference.rows(), both[1]))]
    if not np.all(np.isfinite([*values, *parts])):
        return without, "no interval: within the noise the reference may never reach this loss"
    shared = reference.law is arm.law or bool(reference.runs & arm.runs)
    df = min(reference.df, arm.df)
    if not shared and np.sum(parts) > 0:
        of_arms = zip(parts, (reference, arm), strict=True)
        df = float(np.sum(parts) ** 2 / np.sum([part**2 / side.df for part, side in of_arms]))
    return Estimate(value, float(np.std(values)), df), ""
