"""Intervals and tests of paired differences: pooled within cells, with the degrees of freedom they have.

A cell is a rung (and setting); its pairs differ by seed. Any contrast of cell means has the variance
``s^2 sum c_k^2 / n_k`` with s pooled within cells and ``pairs - cells`` degrees of freedom: a cell with one
pair enters the mean and adds no degree of freedom. The interval is about these very rungs under new seeds,
not about rungs that were not run. Where pairs are not independent, whole clusters are what varies. If they
repeat each other (``clusters``: token budgets that share a trunk, once for each seed), the noise is
that between them, with whole clusters less blocks degrees of freedom. Else (checkpoints of one run, variants
of one shape) the standard error is the jackknife's over clusters, with clusters less one degree of freedom.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.statistics.clusters import Blocks, blocks_of
from scalevec.analysis.statistics.noise import FEWEST_CLUSTERS, NO_NOISE, are_copies, pooled_noise, t_quantile

FEWEST_RUNGS_WITHOUT_SEEDS = 8
"""With one seed per rung, the spread between this many rungs or more is the noise: the weaker interval."""


@dataclass(frozen=True)
class Estimate:
    """A contrast of cell means with its standard error (nan at zero degrees of freedom).

    ``between`` names whose spread is the noise where it is not that of the pairs of a cell: "rungs",
    "clusters", or "seeds of clusters", the repetitions of whole clusters.
    """

    value: float
    standard_error: float
    df: int
    between: str = ""

    @property
    def has_noise(self) -> bool:
        """Whether there is a noise figure: values that never differ are copies, which carry none."""
        return self.df > 0 and self.standard_error > 0

    def interval(self, level: float) -> tuple[float, float] | None:
        """The t interval at ``level``; None without a degree of freedom or without noise."""
        if not self.has_noise:
            return None
        half = t_quantile(level, self.df) * self.standard_error
        return self.value - half, self.value + half

    def p_value(self) -> float | None:
        """Two-sided, against zero; None without a degree of freedom or without noise."""
        if not self.has_noise:
            return None
        from scipy.special import stdtr

        return float(2 * stdtr(self.df, -abs(self.value) / self.standard_error))


def contrast(values: FloatArray, cells: FloatArray, coefficients: FloatArray) -> Estimate:
    """``sum_k coefficients_k * mean of cell k``. values, cells [pairs]; coefficients [cells, in order].

    Values that never differ within cells are copies of one seed: no degree of freedom.
    """
    _, index, counts = np.unique(cells, return_inverse=True, return_counts=True)
    means = np.bincount(index, values) / counts
    if are_copies(values, cells):
        return Estimate(float(means @ coefficients), float("nan"), 0)
    noise = pooled_noise(values, cells)
    error = noise.sd * float(np.sqrt(np.sum(coefficients**2 / counts)))
    return Estimate(float(means @ coefficients), error, noise.df)


def jackknife(statistic: Callable[[BoolArray], float], clusters: npt.NDArray[Any], n_free: int) -> Estimate:
    """``statistic`` of the kept pairs, left out one cluster at a time; clusters - n_free degrees of freedom.

    With clusters of equal size the mean gets exactly the t interval of the clusters' means.
    """
    labels = np.unique(clusters)
    value = statistic(np.ones(len(clusters), bool))
    if len(labels) < FEWEST_CLUSTERS:
        return Estimate(value, float("nan"), 0, between="clusters")
    left_out = np.array([statistic(clusters != label) for label in labels])
    n = len(labels)
    # Tukey's jackknife variance.
    error = float(np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2)))
    return Estimate(value, error, n - n_free, between="clusters")


def dependent(clusters: npt.NDArray[Any] | None) -> bool:
    """Whether some pairs share a cluster."""
    return clusters is not None and len(np.unique(clusters)) < len(clusters)


def overall(values: FloatArray, cells: FloatArray, clusters: npt.NDArray[Any] | None = None) -> Estimate:
    """The mean with equal weight for each cell, so that a rung with more seeds counts no more.

    Without a repeated seed but with many cells, the noise is the spread between cells: it holds the effect's
    own change from rung to rung too, so it is wider where there is one. ``clusters`` [pairs] are equal for
    pairs that are not independent.
    """
    n_cells = len(np.unique(cells))
    even = np.full(n_cells, 1 / n_cells)
    if clusters is not None and dependent(clusters):
        if blocks := blocks_of(cells, clusters):
            return _contrast_of_clusters(values, cells, even, blocks)

        def mean(keep: BoolArray) -> float:
            return float(np.mean(_means(values[keep], cells[keep])))

        return jackknife(mean, clusters, 1)
    if n_cells == len(values) >= FEWEST_RUNGS_WITHOUT_SEEDS and not are_copies(values, np.zeros(n_cells)):
        error = float(np.std(values, ddof=1) / np.sqrt(n_cells))
        return Estimate(float(values.mean()), error, n_cells - 1, between="rungs")
    return contrast(values, cells, even)


def _contrast_of_clusters(
    values: FloatArray, cells: FloatArray, coefficients: FloatArray, blocks: Blocks
) -> Estimate:
    """:func:`contrast` of pairs of which whole clusters are independent, with the noise that they share."""
    _, index, counts = np.unique(cells, return_inverse=True, return_counts=True)
    weights = (coefficients / counts)[index]
    covariance, df = blocks.covariance(values)
    if np.sqrt(np.trace(covariance)) <= NO_NOISE * np.max(np.abs(values)):
        df = 0
    each = blocks.table(weights)
    error = float(np.sqrt(np.einsum("ci,ij,cj->", each, covariance, each)))
    return Estimate(float(weights @ values), error, df, between="seeds of clusters")


def _means(values: FloatArray, cells: FloatArray) -> FloatArray:
    """The mean of each cell [cells, in order]."""
    _, index, counts = np.unique(cells, return_inverse=True, return_counts=True)
    return np.asarray(np.bincount(index, values) / counts)


def slope(
    values: FloatArray, cells: FloatArray, x: FloatArray, clusters: npt.NDArray[Any] | None = None
) -> Estimate | None:
    """Least-squares slope of the cell means on ``x`` [pairs], equal weights; None where x is constant.

    Where no seed repeats and there are many cells, the noise is the cells' spread around the line, as that of
    :func:`overall` is their spread around the mean.
    """
    at = _means(x, cells)
    centred = at - at.mean()
    spread = float(centred @ centred)
    # All x are equal but for rounding.
    if spread < 1e-12:
        return None
    if clusters is None or not dependent(clusters):
        if len(at) == len(values) and len(at) >= FEWEST_RUNGS_WITHOUT_SEEDS:
            return _slope_between(_means(values, cells), centred)
        return contrast(values, cells, centred / spread)
    if blocks := blocks_of(cells, clusters):
        return _contrast_of_clusters(values, cells, centred / spread, blocks)

    def fitted(keep: BoolArray) -> float:
        at = _means(x[keep], cells[keep])
        centred = at - at.mean()
        return float(centred @ _means(values[keep], cells[keep]) / (centred @ centred))

    return jackknife(fitted, clusters, 2)


def _slope_between(means: FloatArray, centred: FloatArray) -> Estimate:
    """The slope of ``means`` on ``centred`` (mean zero; both [cells]); the noise is around the line."""
    spread, df = float(centred @ centred), len(means) - 2
    value = float(means @ centred) / spread
    rest = means - means.mean() - value * centred
    return Estimate(value, float(np.sqrt(rest @ rest / df / spread)), df, between="rungs")


def heterogeneity(values: FloatArray, cells: FloatArray) -> float | None:
    """p-value of the F test that all cells share one mean; None where the design cannot tell."""
    from scipy.special import fdtrc

    _, index, counts = np.unique(cells, return_inverse=True, return_counts=True)
    noise = pooled_noise(values, cells)
    if noise.df == 0 or len(counts) < 2 or are_copies(values, cells):
        return None
    means = np.bincount(index, values) / counts
    between = float(np.sum(counts * (means - values.mean()) ** 2)) / (len(counts) - 1)
    return float(fdtrc(len(counts) - 1, noise.df, between / noise.sd**2))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p-values; an arm without a p-value still counts in the family."""
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(known):
        # Adjusted p-values never fall along the order (Holm 1979).
        largest = max(largest, min(1.0, p * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def level_of_holm(level: float, p: float | None, p_holm: float | None, n_arms: int) -> float:
    """The level at which an arm's own interval says what its p-value says after :func:`holm` at ``level``."""
    factor = p_holm / p if p and p_holm and p_holm < 1 else float(n_arms)
    return 1 - (1 - level) / factor


def equivalence_p(estimate: Estimate, margin: float) -> float | None:
    """p-value of two one-sided t tests that the value lies within +-margin; None without noise."""
    if not estimate.has_noise:
        return None
    from scipy.special import stdtr

    # The nearer margin has the larger of the two p-values, which is the one that counts.
    distance = (margin - abs(estimate.value)) / estimate.standard_error
    return float(stdtr(estimate.df, -distance))


def sign_p(n_worse: int, n_better: int) -> float:
    """Two-sided sign test, for pairs of which a diverged side has no number."""
    from scipy.special import bdtr

    total = n_worse + n_better
    return min(1.0, 2.0 * float(bdtr(min(n_worse, n_better), total, 0.5)))


def seeds_needed(estimate: Estimate, sd: float, n_cells: int, level: float) -> int | None:
    """Seeds for each cell at which the interval would exclude zero, were mean and noise to stay.

    None where there is no noise figure or 100 seeds would not do.
    """
    if not estimate.has_noise or estimate.between:
        return None
    for seeds in range(2, 101):
        half = t_quantile(level, n_cells * (seeds - 1)) * sd / np.sqrt(n_cells * seeds)
        if half < abs(estimate.value):
            return seeds
    return None
