"""Seed noise, pooled within cells of equal N and tokens, and whether points can tell an irreducible loss."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import fit_points
from scalevec.analysis.solver.law_points import points_of

FEWEST_CLUSTERS = 10
"""With fewer independent clusters an interval from clusters covers far less than it says: none is given."""
FEWEST_SIZES = 4
"""A law with a floor has three parameters: fewer sizes cannot tell whether it is needed."""
HIGH_FLOOR = 0.9
"""The high irreducible loss that is tried, as a share of the lowest loss seen."""
NO_NOISE = 1e-12
"""A spread below this share of the values is a rounding error: the repeats are copies of each other."""


@dataclass(frozen=True)
class Pooled:
    """A standard deviation pooled within cells, and its degrees of freedom (values minus cells)."""

    sd: float
    df: int


@dataclass(frozen=True)
class FloorProfile:
    """The fit with E = 0 and with E = 0.9 of the lowest loss, each in standard errors worse than the best."""

    zero: float
    high: float
    critical: float
    identified: bool

    @property
    def warning(self) -> str:
        """One sentence for people who would quote the exponent."""
        if not np.isfinite(self.critical):
            return (
                "fewer than four sizes or no noise figure: the irreducible loss cannot be identified; "
                "compare levels, not exponents"
            )
        return (
            f"the irreducible loss is not identified: E = 0 fits within {self.zero:.1f} and "
            f"E = {HIGH_FLOOR:g} min(loss) within {self.high:.1f} SE of the best fit "
            f"({self.critical:.1f} would exclude it); compare levels, not exponents"
        )


def t_quantile(level: float, df: float) -> float:
    """Half the width of a two-sided ``level`` t interval, in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.5 + level / 2))


def pooled_noise(values: FloatArray, cells: FloatArray) -> Pooled:
    """The sd of ``values`` [points] within ``cells`` [points of labels]; nan where no cell repeats."""
    covariance, df = within_cells(values[None], cells)
    return Pooled(float(np.sqrt(covariance[0, 0])) if df else float("nan"), df)


def are_copies(values: FloatArray, cells: FloatArray) -> bool:
    """Whether ``values`` [points] repeat within ``cells`` [points] and never differ there."""
    noise = pooled_noise(values, cells)
    return noise.df > 0 and noise.sd <= NO_NOISE * float(np.max(np.abs(values)))


def copied_seeds(losses: Mapping[str, Sequence[tuple[Hashable, float]]]) -> str | None:
    """Return what is said of the arms whose seeds have no effect, None where there is no such arm.

    Args:
        losses: By arm, the cell and the loss (nats/token) of each of its trials.
    """
    names = []
    for arm, trials in losses.items():
        numbers = {cell: number for number, cell in enumerate(dict.fromkeys(cell for cell, _ in trials))}
        cells = np.array([numbers[cell] for cell, _ in trials])
        if trials and are_copies(np.array([loss for _, loss in trials]), cells):
            names.append(arm)
    text = (
        "the seed has no effect: repeated seeds are exact copies, which carry no noise and count as one seed"
    )
    return f"{', '.join(names)}: {text}" if names else None


def within_cells(logs: FloatArray, cells: FloatArray) -> tuple[FloatArray, int]:
    """Covariance [sides, sides] of ``logs`` [sides, points] within cells, and its degrees of freedom."""
    _, index, counts = np.unique(cells, return_inverse=True, return_counts=True)
    df = logs.shape[1] - len(counts)
    means = np.stack([(np.bincount(index, row) / counts)[index] for row in logs])
    return (logs - means) @ (logs - means).T / max(df, 1), df


def replicates_of(bases: list[FloatArray], covariance: FloatArray, draws: int, seed: int) -> list[FloatArray]:
    """Replicates of the losses around ``bases`` (each [points]): one array [draws, points] for each.

    The noise is normal in log loss with ``covariance`` between the sides, so that sides which share seeds
    stay paired.
    """
    rng = np.random.default_rng(seed)
    size = (draws, len(bases[0]))
    # svd: sides that agree exactly make the covariance singular, which Cholesky refuses.
    noise = rng.multivariate_normal(np.zeros(len(bases)), covariance, size, method="svd")
    return [base * np.exp(noise[..., side]) for side, base in enumerate(bases)]


def floor_profile(x: FloatArray, loss: FloatArray) -> FloorProfile:
    """How much worse E = 0 and a high E fit the points x [points], loss [points] than the best E.

    Least squares on log loss of ``E + A/x^alpha``; the noise is the larger of the seeds' and the residuals'
    of the best fit, since a wrong form of the law is no evidence for a floor.
    """
    best = _squares(x, loss, None)
    distinct = len(np.unique(x))
    seeds = pooled_noise(np.log(loss), x)
    # Three are fitted: E, A and alpha.
    residual_df = len(x) - 3
    candidates = [(seeds.sd**2, seeds.df)] if seeds.df else []
    if residual_df > 0:
        candidates.append((best / residual_df, residual_df))
    if distinct < FEWEST_SIZES or not candidates:
        return FloorProfile(0.0, 0.0, float("inf"), False)
    variance, df = max(candidates)
    # Data that lie on the law exactly leave no variance to divide by.
    variance = max(variance, 1e-30)
    critical = t_quantile(0.95, df)
    zero, high = (
        float(np.sqrt(max(_squares(x, loss, floor) - best, 0.0) / variance))
        for floor in (0.0, HIGH_FLOOR * float(loss.min()))
    )
    return FloorProfile(zero, high, critical, min(zero, high) > critical)


def _squares(x: FloatArray, loss: FloatArray, floor: float | None) -> float:
    """The least sum of squared log residuals with E held at ``floor`` (free: the better of free and zero)."""
    law = law_named("power-floor" if floor is None else f"power-floor; fix E = {floor!r}")
    # The solver's objective is half the sum of squares.
    least = 2.0 * fit_points(points_of(law, {"x": x}), loss, AnalysisOptions(loss="l2")).objective
    return least if floor is not None else min(least, _squares(x, loss, 0.0))
