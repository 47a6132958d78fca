"""Intervals and tests of paired differences, with the degrees of freedom they have.

A cell is a rung and setting; its pairs differ by seed. What varies between seeds has a variance of its own at
each rung (``analysis.statistics.noise``), so a contrast of cell means has the degrees of freedom of
Satterthwaite. The interval is about these very rungs under new seeds, not about rungs that were not run.
Where pairs are not independent, whole clusters are what varies: those that repeat each other (token budgets
that share a trunk, settings that share seeds) like seeds, others (checkpoints of one run, variants of one
shape) by the jackknife over clusters, with clusters less one degree of freedom. The test split's own error is
added where its blocks are known (``analysis.statistics.sample``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.statistics.noise import (
    COMPARED_AT,
    FEWEST_CLUSTERS,
    NO_NOISE,
    Component,
    RungNoise,
    are_copies,
    t_quantile,
    with_split,
)
from scalevec.analysis.statistics.sample import PairedSample

FEWEST_RUNGS_WITHOUT_SEEDS = 8
"""With one seed per rung, the spread between this many rungs or more is the noise: the weaker interval."""
MANY_BLOCKS = 10
"""Degrees of freedom of a test split of 64 blocks."""


@dataclass(frozen=True)
class Estimate:
    """A contrast of cell means with its standard error (nan at zero degrees of freedom).

    ``between`` names whose spread is the noise where it is not that of the pairs of a cell: "rungs",
    "clusters", "seeds of clusters", the repetitions of whole clusters, or "whole seeds", of all rungs.
    ``seeds_error`` is the part of the standard error from seeds, ``split_error`` that from the test split
    (None where its blocks are not known).
    """

    value: float
    standard_error: float
    df: float
    between: str = ""
    seeds_error: float = float("nan")
    split_error: float | None = None

    @property
    def has_noise(self) -> bool:
        """Whether there is a noise figure: values that never differ are copies, which carry none."""
        return self.df > 0 and self.standard_error > 0

    def half_width(self, level: float) -> float:
        """Half of the t interval at ``level``; zero without a degree of freedom or without noise."""
        return t_quantile(level, self.df) * self.standard_error if self.has_noise else 0.0

    def interval(self, level: float) -> tuple[float, float] | None:
        """The t interval at ``level``; None without a degree of freedom or without noise."""
        half = self.half_width(level)
        return (self.value - half, self.value + half) if self.has_noise else None

    def p_value(self) -> float | None:
        """Two-sided, against zero; None without a degree of freedom or without noise."""
        if not self.has_noise:
            return None
        from scipy.special import stdtr

        return float(2 * stdtr(self.df, -abs(self.value) / self.standard_error))


def contrast(sample: PairedSample, coefficients: FloatArray) -> Estimate:
    """``sum_k coefficients_k * mean of cell k`` (coefficients [cells, in order]).

    Values that never differ within cells are copies of one seed: no degree of freedom. Where whole seeds are
    the clusters, the interval is not shorter than with independent rungs: an effect that rungs share cancels
    in a slope, and rungs are also found to share one by chance. There is none where whole seeds carry none.
    """
    weights = sample.weights(coefficients)
    if not sample.unit:
        return _contrast(sample, weights)
    whole = _over_seeds(sample, weights)
    if not whole.df:
        return Estimate(float(weights @ sample.values), float("nan"), 0, sample.unit)
    seeds = _with_split(sample, weights, [whole], sample.unit)
    apart = _contrast(sample.with_rungs_apart(), weights)
    return max(seeds, apart, key=lambda each: each.half_width(COMPARED_AT))


def _over_seeds(sample: PairedSample, weights: FloatArray) -> Component:
    """The variance of a sum with ``weights`` [pairs] where a seed's pairs of all cells are one cluster.

    The bias-reduced cluster variance CR2 with the degrees of freedom of Bell and McCaffrey (2002) in a model
    of cell means: with the same seeds in every cell it is the t interval of the seeds' means. A seed has one
    pair in a cell, which has 1 - 1/n of the noise around a mean of n.
    """
    seed = np.unique(sample.clusters, return_inverse=True)[1].ravel()
    rest = sample.values - sample.means()[sample.index]
    share = 1 - 1 / sample.counts[sample.index]
    inflated = np.divide(weights, np.sqrt(share), out=np.zeros_like(weights), where=share > 0)
    copies = np.max(np.abs(rest)) <= NO_NOISE * np.max(np.abs(sample.values)) and not sample.rounding
    if copies or not inflated.any():  # no cell that counts has two seeds
        return Component(float("nan"), 0)
    variance = float(np.sum(np.bincount(seed, inflated * rest) ** 2) + sample.rounding * weights @ weights)
    # Column s of the design is what seed s adds to the estimate, less what the cells' means take away.
    design = inflated[:, None] * (seed[:, None] == np.arange(seed.max() + 1))
    of_cell = np.zeros((len(sample.counts), design.shape[1]))
    np.add.at(of_cell, sample.index, design)
    design -= (of_cell / sample.counts[:, None])[sample.index]
    squared = design.T @ design
    return Component(variance, float(np.trace(squared) ** 2 / np.sum(squared**2)))


def _contrast(sample: PairedSample, weights: FloatArray) -> Estimate:
    noise = RungNoise(sample.values[None], sample.cells, sample.clusters, sample.rungs, sample.rounding)
    between = "seeds of clusters" if sample.dependent else ""
    if noise.df == 0:
        return Estimate(float(weights @ sample.values), float("nan"), 0, between)
    return _with_split(sample, weights, noise.errors(weights[None]), between)


def _with_split(sample: PairedSample, weights: FloatArray, errors: list[Component], between: str) -> Estimate:
    """The weighted sum with the longer of the seeds' ``errors`` and, where it is known, the test split's."""
    split = [Component(*sample.split.variance(weights))] if sample.split else []
    error, from_seeds = with_split(errors, split)
    of_split = split[0].standard_error if split else None
    value = float(weights @ sample.values)
    return Estimate(value, error.standard_error, error.df, between, from_seeds, of_split)


def overall(sample: PairedSample) -> Estimate:
    """The mean with equal weight for each cell, so that a rung with more seeds counts no more.

    Without a repeated seed but with many cells, the noise is the spread between cells: it holds the effect's
    own change from rung to rung too, so it is wider where there is one.
    """
    even = np.full(len(sample.counts), 1 / len(sample.counts))
    return _over_cells(sample, even, lambda keep: float(np.mean(sample.kept(keep).means())), 1)


def slope(sample: PairedSample, x: FloatArray) -> Estimate | None:
    """Least-squares slope of the cell means on ``x`` [pairs], equal weights; None where x is constant.

    Where no seed repeats and there are many cells, the noise is the cells' spread around the line, as that of
    :func:`overall` is their spread around the mean.
    """
    coefficients = slope_coefficients(sample.means(x))
    if coefficients is None:
        return None

    def fitted(keep: BoolArray) -> float:
        rest = sample.kept(keep)
        of_rest = slope_coefficients(rest.means(x[keep]))
        return float("nan") if of_rest is None else float(of_rest @ rest.means())

    return _over_cells(sample, coefficients, fitted, 2)


def _over_cells(
    sample: PairedSample, coefficients: FloatArray, statistic: Callable[[BoolArray], float], n_free: int
) -> Estimate:
    """The mean or slope with these ``coefficients`` [cells], by the noise that the sample has.

    ``statistic`` gives it of the pairs that are kept, ``n_free`` is 1 for a mean and 2 for a slope.
    """
    means, weights = sample.means(), sample.weights(coefficients)
    if sample.dependent:
        estimate = contrast(sample, coefficients)
        return estimate if estimate.df or sample.unit else _jackknife(statistic, sample, weights, n_free)
    alone = len(means) == len(sample.values) >= FEWEST_RUNGS_WITHOUT_SEEDS
    if not alone or are_copies(means, np.zeros(len(means))):
        return contrast(sample, coefficients)
    of_unit = float(coefficients @ coefficients)
    rest = means - float(coefficients @ means) * coefficients / of_unit
    rest, df = rest - rest.mean(), len(means) - n_free
    noise = Component(float(rest @ rest / df * of_unit), df)
    return _with_split(sample, weights, [noise], "rungs")


def _jackknife(
    statistic: Callable[[BoolArray], float], sample: PairedSample, weights: FloatArray, n_free: int
) -> Estimate:
    """``statistic`` of the kept pairs, left out one cluster at a time; clusters - n_free degrees of freedom.

    With clusters of equal size the mean gets exactly the t interval of the clusters' means. ``weights`` are
    those by which the statistic sums the values [pairs].
    """
    labels = np.unique(sample.clusters)
    n = len(labels)
    if n < FEWEST_CLUSTERS:
        return Estimate(float(weights @ sample.values), float("nan"), 0, between="clusters")
    left_out = np.array([statistic(sample.clusters != label) for label in labels])
    # Tukey's jackknife variance.
    variance = float((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2))
    return _with_split(sample, weights, [Component(variance, n - n_free)], "clusters")


def slope_coefficients(at: FloatArray) -> FloatArray | None:
    """The coefficients [cells] of the least-squares slope at these places; None where all are one."""
    centred = at - at.mean()
    spread = float(centred @ centred)
    # All x are equal but for rounding.
    return None if spread < 1e-12 else np.asarray(centred / spread)


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


def detectable(estimate: Estimate, level: float, power: float = 0.8) -> float | None:
    """The difference that such a design finds with ``power``, by a test at ``level``; None without noise."""
    if not estimate.has_noise:
        return None
    from scipy.special import stdtrit

    return estimate.standard_error * (t_quantile(level, estimate.df) + float(stdtrit(estimate.df, power)))


def limited_by_split(estimate: Estimate, level: float) -> bool:
    """Whether the test split's own error alone would leave zero inside the interval, whatever the seeds."""
    if estimate.split_error is None:
        return False
    return t_quantile(level, MANY_BLOCKS) * estimate.split_error >= abs(estimate.value)
