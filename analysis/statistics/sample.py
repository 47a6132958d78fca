"""Paired differences with what their inference needs to know: cells, rungs, clusters, test-split blocks.

Every trial is evaluated on the same text, so what another text would change is common to all pairs and does
not shrink with seeds. Blocks of the test split are crossed with seeds and rungs: the variance over blocks of
what is claimed, taken over all pairs at once, is added to that over seeds (Owen 2007, "The pigeonhole
bootstrap").
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.data.values import losses_by_block
from scalevec.analysis.statistics.noise import IntArray, Labels, are_copies

WHOLE_SEEDS = "whole seeds"
MOST_DECIMALS = 5
"""Losses that are given with no more have been rounded."""
FEWEST_BLOCKS = 16
"""With fewer blocks of the test split there is no interval of its error."""


@dataclass(frozen=True, eq=False)
class SplitLosses:
    """``losses`` [sides, pairs, blocks] and the tokens of each block [blocks]."""

    losses: FloatArray
    tokens: FloatArray

    @property
    def shares(self) -> FloatArray:
        """The share of the test split's tokens in each block [blocks]."""
        return np.asarray(self.tokens / self.tokens.sum())

    @property
    def differences(self) -> FloatArray:
        """Arm minus reference [pairs, blocks]."""
        return np.asarray(self.losses[1] - self.losses[0])

    def without_each(self) -> FloatArray:
        """Mean losses without one block at a time [blocks, sides, pairs]."""
        shares = self.shares
        rest = (self.losses @ shares)[..., None] - self.losses * shares
        return np.moveaxis(rest / (1 - shares), -1, 0)

    def variance(self, weights: FloatArray) -> tuple[float, int]:
        """Of the sum of differences with these ``weights`` [pairs], and its degrees of freedom."""
        without = self.without_each()
        return self.jackknife((without[:, 1] - without[:, 0]) @ weights)

    def jackknife(self, left_out: FloatArray) -> tuple[float, int]:
        """The variance of a statistic from its values without one block at a time [blocks], and its df.

        Blocks weigh as many tokens as they have (Busing, Meijer & van der Leeden 1999). Neighbouring blocks
        of text are alike, so that their products count too, with the weights of Newey and West (1987); the
        factor is what subtracting the mean takes from a batch of blocks.
        """
        n_blocks = len(left_out)
        # Beyond this distance two blocks count as unrelated: eight of 64.
        width = round(math.sqrt(n_blocks))
        away = (left_out - left_out.mean()) * (1 - self.shares)
        apart = np.abs(np.subtract.outer(np.arange(n_blocks), np.arange(n_blocks)))
        variance = n_blocks / (n_blocks - width) * away @ np.maximum(1 - apart / width, 0.0) @ away
        # Overlapping batches of this width have 3/2 of the degrees of freedom of disjoint ones (Meketon &
        # Schmeiser 1984).
        return float(variance), round(1.5 * (n_blocks / width - 1))

    def kept(self, keep: BoolArray) -> "SplitLosses":
        """The losses of the pairs where ``keep`` [pairs]."""
        return SplitLosses(self.losses[:, keep], self.tokens)


@dataclass(frozen=True, eq=False)
class PairedSample:
    """``values`` [pairs] of ``cells``, ``rungs`` and ``clusters`` (each [pairs], labels).

    Pairs of one cluster are not independent. ``split`` are the values by block of the test split, if known;
    ``unit`` is :data:`WHOLE_SEEDS` where a cluster holds a seed's pairs of all rungs; ``rounding`` is the
    variance of a value that the rounding of its losses has made.
    """

    values: FloatArray
    cells: Labels
    rungs: Labels
    clusters: Labels
    split: SplitLosses | None = None
    unit: str = ""
    rounding: float = 0.0

    @classmethod
    def of(
        cls, values: FloatArray, cells: Labels, clusters: Labels | None = None, rungs: Labels | None = None
    ) -> "PairedSample":
        """Return a sample; by default pairs are independent and each cell is a rung."""
        each = np.arange(len(values)) if clusters is None else clusters
        return cls(np.asarray(values, float), cells, cells if rungs is None else rungs, each)

    @property
    def dependent(self) -> bool:
        """Whether some pairs share a cluster."""
        return len(np.unique(self.clusters)) < len(self.clusters)

    @property
    def index(self) -> IntArray:
        """The number of each pair's cell, in the order of the labels [pairs]."""
        return np.unique(self.cells, return_inverse=True)[1].ravel()

    @property
    def counts(self) -> IntArray:
        """Pairs of each cell [cells]."""
        return np.bincount(self.index)

    def means(self, values: FloatArray | None = None) -> FloatArray:
        """The mean of each cell [cells], of the sample's own values or of other ``values`` [pairs]."""
        chosen = self.values if values is None else values
        return np.asarray(np.bincount(self.index, chosen) / self.counts)

    def weights(self, coefficients: FloatArray) -> FloatArray:
        """What each pair weighs [pairs] in a contrast of cell means with these ``coefficients`` [cells]."""
        return np.asarray((coefficients / self.counts)[self.index])

    def with_rungs_apart(self) -> "PairedSample":
        """The sample with its clusters cut at the rungs, as if those were independent."""
        labels = np.stack(
            [np.unique(each, return_inverse=True)[1].ravel() for each in (self.rungs, self.clusters)]
        )
        clusters = np.unique(labels, axis=1, return_inverse=True)[1].ravel()
        return replace(self, clusters=clusters, unit="")

    def kept(self, keep: BoolArray) -> "PairedSample":
        """The sample of the pairs where ``keep`` [pairs]."""
        split = self.split.kept(keep) if self.split else None
        values, cells, rungs = self.values[keep], self.cells[keep], self.rungs[keep]
        clusters = self.clusters[keep]
        return replace(self, values=values, cells=cells, rungs=rungs, clusters=clusters, split=split)


def sample_of(pairs: Pairs) -> PairedSample:
    """The complete pairs with their clusters, and their losses by block of the test split.

    Rungs that repeat seeds share what a seed does, unless recorded streams or the user say that its random
    numbers differ from rung to rung: then a seed's pairs of all rungs are one cluster.
    """
    rungs = pairs.complete["rung"].astype(str).to_numpy(str)
    sample = PairedSample.of(pairs.differences, pairs.cells, pairs.clusters, rungs)
    sides = pairs.complete[["loss_reference", "loss_arm"]].to_numpy(float).T
    copied = _copied(sides, pairs.cells)
    if sides.size and not copied.all():
        sample = replace(sample, rounding=_rounding(sides))
    for rung in np.unique(rungs) if not sample.rounding else ():
        at = rungs == rung
        copied[at] |= _copied(sides[:, at], pairs.cells[at])
    # What copies differ by is no noise.
    sample = replace(sample, values=np.where(copied, sample.means()[sample.index], sample.values))
    if rungs_share_seeds(pairs) and not pairs.seeds_differ:
        sample = over_whole_seeds(sample, pairs.complete["seed"].astype(str).to_numpy(str))
    blocks = losses_by_block(pairs.complete)
    if blocks is None or len(blocks[1]) < FEWEST_BLOCKS:
        return sample
    return replace(sample, split=SplitLosses(*blocks))


def _copied(sides: FloatArray, cells: Labels) -> BoolArray:
    """Whether the seeds of either side are copies of one result, the same for all pairs [pairs]."""
    return np.full(len(cells), bool(sides.size) and any(are_copies(side, cells) for side in sides))


def _rounding(sides: FloatArray) -> float:
    """The variance that rounding leaves in a difference: a twelfth of the step squared, from either side.

    Zero for losses (``sides`` [2, pairs]) with more than :data:`MOST_DECIMALS` decimals. Where a side repeats
    one loss in each cell there is nothing to ask: copies of one result are no noise that rounding could hide.
    """
    for decimals in range(MOST_DECIMALS + 1):
        if np.all(np.abs(sides - np.round(sides, decimals)) < 1e-9):
            return float(10.0 ** (-2 * decimals) / 6)
    return 0.0


def over_whole_seeds(sample: PairedSample, seeds: Labels) -> PairedSample:
    """Return ``sample`` with the pairs of one of ``seeds`` [pairs] as one cluster, whatever their rung."""
    return replace(sample, clusters=seeds, unit=WHOLE_SEEDS)


def rungs_share_seeds(pairs: Pairs) -> bool:
    """Whether seeds are repeated over rungs, and no stream says that they mean other numbers there."""
    if pairs.complete.empty or pairs.records_streams or not pairs.names_seeds:
        return False
    places = pairs.complete[["rung", "seed"]].astype(str).drop_duplicates()
    return bool(places["seed"].duplicated().any())
