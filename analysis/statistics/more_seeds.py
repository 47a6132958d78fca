"""The interval that a sample of pairs will have with more seeds, given the noise that its own have shown.

Differences of the new seeds are drawn, and the interval goes by the formula of the one that the sample has
now (``analysis.statistics.paired``): the same clusters, the noise of each rung or of all, and the test
split's own error. Noise that was seen stays, so that without a seed more the interval is the present one.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.statistics.clusters import IntArray, connected
from scalevec.analysis.statistics.noise import pooled_noise
from scalevec.analysis.statistics.paired import slope_coefficients
from scalevec.analysis.statistics.planned import longest_halves
from scalevec.analysis.statistics.rung_noise import Component, RungNoise
from scalevec.analysis.statistics.sample import PairedSample

_DRAWS = 200
_OF_ALL = 4
"""Degrees of freedom with which the noise of all rungs counts beside each one's own, for seeds to come."""


@dataclass(frozen=True, eq=False)
class MoreSeeds:
    """A ``sample`` whose cells may get more seeds: half the interval of their mean, or of their slope.

    ``new`` are the rungs of cells without a pair, which come after the sample's own. ``places`` [cells] are
    what a slope is taken on (log10 C); without them it is the mean.
    """

    sample: PairedSample
    new: tuple[str, ...] = ()
    places: FloatArray | None = None

    @cached_property
    def clusters(self) -> tuple[IntArray, IntArray, IntArray]:
        """The cluster of each pair, and the component of each cluster and of each cell, new ones included.

        Cells of one component share seeds.
        """
        cluster = np.unique(self.sample.clusters, return_inverse=True)[1].ravel()
        of_cluster, of_cell = connected(cluster, self.sample.index)
        # Where rungs share what a seed does, a new rung does too.
        beyond = of_cell.max() + 1 + np.arange(len(self.new))
        return cluster, of_cluster, np.append(of_cell, np.zeros_like(beyond) if self.sample.unit else beyond)

    def half(self, added: IntArray, level: float) -> float:
        """The half of the ``level`` interval that is expected with ``added`` [cells] seeds more."""
        grown = self.grown(added)
        values = self._drawn(grown)
        present, counts = np.unique(grown.cells, return_counts=True)
        places = np.zeros(0) if self.places is None else self.places[present]
        slope = slope_coefficients(places) if len(places) else None
        coefficients = np.full(len(present), 1 / len(present)) if slope is None else slope
        weights, split = grown.weights(coefficients), self._split(coefficients, present, counts)
        halves = [
            longest_halves(noise.of_each_side(weights), level, split)
            for each in ([grown, grown.with_rungs_apart()] if grown.unit else [grown])
            for noise in [RungNoise(values, each.cells, each.clusters, each.rungs)]
        ]
        return float(np.mean(np.max(halves, axis=0)))

    def grown(self, added: IntArray) -> PairedSample:
        """The sample with ``added`` [cells] pairs more, of no value yet."""
        cluster, of_cluster, of_cell = self.clusters
        cells, labels = np.repeat(np.arange(len(added)), added), []
        for cell in np.flatnonzero(added):
            shared = np.flatnonzero(of_cluster == of_cell[cell])
            # Seeds that other cells of the component have come before new ones.
            free = np.setdiff1d(shared, cluster[self.sample.index == cell])[: added[cell]]
            fresh = len(of_cluster) + of_cell[cell] + len(of_cell) * np.arange(added[cell] - len(free))
            labels.append(np.append(free, fresh))
        return PairedSample(
            np.append(self.sample.values, np.zeros(len(cells))),
            np.append(self.sample.index, cells),
            np.append(self.sample.rungs, self._rungs[cells]),
            np.concatenate([cluster, *labels]),
            unit=self.sample.unit,
        )

    @cached_property
    def _rungs(self) -> FloatArray:
        """The rung of each cell."""
        first = np.unique(self.sample.cells, return_index=True)[1]
        return np.append(self.sample.rungs[first], np.array(self.new, dtype=str))

    @cached_property
    def _seen(self) -> tuple[dict[str, float], FloatArray, float]:
        """The sd of a pair by rung, the standardised residuals, and the share that clusters share."""
        sample, index = self.sample, self.sample.index
        rest, pooled = sample.values - sample.means()[index], pooled_noise(sample.values, sample.cells)
        of_all = pooled.sd / _shortfall(pooled.df)
        sds = dict.fromkeys(self._rungs.tolist(), of_all)
        for rung in np.unique(sample.rungs):
            here = sample.rungs == rung
            df = int(here.sum()) - len(np.unique(index[here])) + _OF_ALL
            around = float(rest[here] @ rest[here]) + _OF_ALL * pooled.sd**2
            sds[rung] = float(np.sqrt(around / df)) / _shortfall(df)
        repeated = sample.counts[index] > 1
        # Around the mean of n seeds a residual has 1 - 1/n of their variance.
        scale = (
            np.array([sds[rung] for rung in sample.rungs])
            * np.sqrt(1 - 1 / np.maximum(sample.counts, 2))[index]
        )
        rest = rest / scale
        many, sums, squares = (
            np.bincount(self.clusters[0][repeated], each[repeated])
            for each in (np.ones_like(rest), rest, rest**2)
        )
        products = float(np.sum(many * (many - 1)))
        share = float(np.sum(sums**2 - squares)) / products if products else 0.0
        return sds, rest, min(max(share, 0.0), 1.0)

    def _drawn(self, grown: PairedSample) -> FloatArray:
        """The values of ``grown`` [draws, pairs]: those seen, and those of the new pairs, drawn."""
        sds, rest, share = self._seen
        known = self.clusters[0]
        means = np.append(self.sample.means(), np.zeros(len(self.new)))
        values = np.tile(grown.values, (_DRAWS, 1))
        for pair in range(len(known), len(values[0])):
            cell, cluster = int(grown.cells[pair]), int(grown.clusters[pair])
            mates = rest[known == cluster]
            # The effect of the seed given the pairs that have it already (best linear prediction).
            total = max(1 - share + len(mates) * share, 1e-12)
            effect = np.sqrt(share) * mates.sum() / total
            left = np.sqrt(max(1 - len(mates) * share / total, 0.0))
            effect = np.sqrt(share) * (effect + left * _normal(cluster))
            noise = effect + np.sqrt(1 - share) * _normal(cluster, cell)
            values[:, pair] = means[cell] + sds[grown.rungs[pair]] * noise
        return values

    @cached_property
    def _of_split(self) -> tuple[FloatArray, FloatArray] | None:
        """What the test split adds: the covariance of cells' means [cells, cells], and each seed's own."""
        if self.sample.split is None:
            return None
        covariance, n_new = self.sample.split.covariance(), len(self.new)
        mean = np.stack([self.sample.means(row) for row in covariance])
        mean = np.stack([self.sample.means(column) for column in mean.T])
        counts = self.sample.counts
        diagonal = self.sample.means(np.diagonal(covariance).copy())
        of_seed = np.where(
            counts > 1, (diagonal - np.diagonal(mean)) / np.maximum(1 - 1 / counts, 0.5), np.nan
        )
        of_seed = np.where(np.isnan(of_seed), np.nanmean(of_seed), of_seed)
        n = len(counts)
        between = (mean.sum() - np.trace(mean)) / max(n * (n - 1), 1)
        whole = np.full((n + n_new, n + n_new), between)
        whole[:n, :n] = mean
        whole[range(n, n + n_new), range(n, n + n_new)] = float(np.mean(np.diagonal(mean)))
        return whole, np.append(of_seed, np.full(n_new, of_seed.mean()))

    def _split(self, coefficients: FloatArray, present: IntArray, counts: IntArray) -> Component | None:
        """The test split's part of the variance of a contrast of the cells ``present`` with so many pairs."""
        if self._of_split is None or self.sample.split is None:
            return None
        covariance, of_seed = self._of_split
        before = np.append(self.sample.counts, np.full(len(self.new), self.sample.counts.mean()))[present]
        fewer = float(coefficients**2 @ (of_seed[present] * (1 / counts - 1 / before)))
        variance = float(coefficients @ covariance[np.ix_(present, present)] @ coefficients) + fewer
        return Component(max(variance, 0.0), len(self.sample.split.tokens) - 1)


def _shortfall(df: float) -> float:
    """The expected sd of normal values with ``df`` degrees of freedom, as a share of the true one."""
    return math.sqrt(2 / df) * math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2))


@lru_cache(maxsize=4096)
def _normal(*key: int) -> FloatArray:
    """Normal draws [draws], the same for a seed or pair in whatever design it stands."""
    return np.random.default_rng(key).standard_normal(_DRAWS)
