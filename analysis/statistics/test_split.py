"""The test split's own error: losses by fixed blocks of the test text, which all pairs share.

Every trial is evaluated on the same text, so what another text would change is common to all pairs and does
not shrink with seeds. Blocks are crossed with seeds and rungs: the variance over blocks of what is claimed,
taken over all pairs at once, is added to the variance over seeds (Owen 2007, "The pigeonhole bootstrap").
"""

from dataclasses import dataclass

import numpy as np

from scalevec.analysis.data.tidy import BoolArray, FloatArray

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

    def covariance(self) -> FloatArray:
        """Of the differences [pairs, pairs]: weights on both sides of it give their :meth:`variance`."""
        without = self.without_each()
        left_out = without[:, 1] - without[:, 0]
        away = (left_out - left_out.mean(axis=0)) * (1 - self.shares)[:, None]
        return np.asarray(len(away) / (len(away) - 1) * away.T @ away)

    def jackknife(self, left_out: FloatArray) -> tuple[float, int]:
        """The variance of a statistic from its values without one block at a time [blocks], and its df.

        Blocks weigh as many tokens as they have (Busing, Meijer & van der Leeden 1999); for equal blocks it
        is Tukey's jackknife, for a mean the variance between blocks over their number.
        """
        n_blocks = len(left_out)
        away = (left_out - left_out.mean()) * (1 - self.shares)
        return float(n_blocks / (n_blocks - 1) * np.sum(away**2)), n_blocks - 1

    def kept(self, keep: BoolArray) -> "SplitLosses":
        """The losses of the pairs where ``keep`` [pairs]."""
        return SplitLosses(self.losses[:, keep], self.tokens)
