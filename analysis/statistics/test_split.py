"""The test split's own error: losses by fixed blocks of the test text, which all pairs share.

Every trial is evaluated on the same text, so what another text would change is common to all pairs and does
not shrink with seeds. Blocks are crossed with seeds and rungs: the variance over blocks of what is claimed,
taken over all pairs at once, is added to the variance over seeds (Owen 2007, "The pigeonhole bootstrap").
"""

import math
from dataclasses import dataclass

import numpy as np

from scalevec.analysis.data.tidy import BoolArray, FloatArray

FEWEST_BLOCKS = 16
"""With fewer blocks of the test split there is no interval of its error."""


def _width(n_blocks: int) -> int:
    """Blocks of a batch beyond which two blocks count as unrelated: eight of 64."""
    return round(math.sqrt(n_blocks))


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

    def covariance(self) -> FloatArray:
        """Of the differences [pairs, pairs]: weights on both sides of it give their :meth:`variance`."""
        without = self.without_each()
        return np.asarray(self._long_run(without[:, 1] - without[:, 0]))

    def jackknife(self, left_out: FloatArray) -> tuple[float, int]:
        """The variance of a statistic from its values without one block at a time [blocks], and its df.

        Blocks weigh as many tokens as they have (Busing, Meijer & van der Leeden 1999).
        """
        n_blocks, width = len(left_out), _width(len(left_out))
        # Overlapping batches of this width have 3/2 of the degrees of freedom of disjoint ones (Meketon &
        # Schmeiser 1984).
        return float(self._long_run(left_out[:, None])[0, 0]), round(1.5 * (n_blocks / width - 1))

    def _long_run(self, left_out: FloatArray) -> FloatArray:
        """The covariance [k, k] of statistics from their values without each block [blocks, k].

        Neighbouring blocks of text are alike, so that their products count too, with the weights of Newey and
        West (1987); the factor is what subtracting the mean takes from a batch of blocks.
        """
        n_blocks, width = len(left_out), _width(len(left_out))
        away = (left_out - left_out.mean(axis=0)) * (1 - self.shares)[:, None]
        apart = np.abs(np.subtract.outer(np.arange(n_blocks), np.arange(n_blocks)))
        kernel = np.maximum(1 - apart / width, 0.0)
        return np.asarray(n_blocks / (n_blocks - width) * away.T @ kernel @ away)

    def kept(self, keep: BoolArray) -> "SplitLosses":
        """The losses of the pairs where ``keep`` [pairs]."""
        return SplitLosses(self.losses[:, keep], self.tokens)
