"""Clusters that repeat each other: the token budgets of a trunk, once for each seed.

Points of one cluster are not independent, but the clusters of a block cover the same cells and differ by
their seed alone. So whole clusters are the repetitions from which the noise, and how it is shared, is known.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.data import FloatArray
from analysis.noise import within_cells

IntArray = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Blocks:
    """``points`` [clusters, size]: each cluster's, in the order of cells; ``block`` [clusters]."""

    points: IntArray
    block: IntArray

    def covariance(self, values: FloatArray) -> tuple[FloatArray, int]:
        """Of ``values`` [points] between a cluster's places [size, size], pooled within blocks; its df."""
        return within_cells(values[self.points].T, self.block.astype(float))

    def redraw(self, values: FloatArray, draws: int, rng: np.random.Generator) -> tuple[FloatArray, int]:
        """Noise [draws, points] as ``values`` [points] have it, normal; and its degrees of freedom."""
        covariance, df = self.covariance(values)
        shape = (draws, len(self.points))
        drawn = rng.multivariate_normal(np.zeros(len(covariance)), covariance, shape, method="svd")
        noise = np.empty((draws, len(values)))
        noise[:, self.points.ravel()] = drawn.reshape(draws, -1)
        return noise, df


def blocks_of(cells: FloatArray, clusters: npt.NDArray[np.generic]) -> Blocks | None:
    """The blocks of points with these ``cells`` and ``clusters`` (both [points]).

    None unless all clusters have as many points, each in a cell of its own, those that share one cell share
    all, and some block holds two clusters.
    """
    labels, index, counts = np.unique(clusters, return_inverse=True, return_counts=True)
    if counts.min() != counts.max():
        return None
    points = np.lexsort((cells, index)).reshape(len(labels), -1)
    covered, block = np.unique(cells[points], axis=0, return_inverse=True)
    if covered.size != len(np.unique(cells)) or len(covered) == len(labels):
        return None
    return Blocks(points, np.asarray(block, np.intp).ravel())
