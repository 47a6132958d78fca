"""Clusters that repeat each other: the token budgets of a trunk, once for each seed.

Points of one cluster are not independent, but the clusters of a block are in the same cells and differ by
their seed alone. So whole clusters are the repetitions from which the noise, and how it is shared, is known.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.statistics.noise import within_cells

IntArray = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Blocks:
    """``cluster`` and ``position`` of each point [points], ``block`` of each cluster [clusters].

    A block is all cells that clusters have in common; a position is the order of a cell in its block (the
    smallest token budget, the next), and what blocks have alike. ``whole`` [clusters] are those of which the
    noise is measured: in every cell of a block of the largest size.
    """

    cluster: IntArray
    position: IntArray
    block: IntArray
    whole: npt.NDArray[np.bool_]

    def table(self, values: FloatArray) -> FloatArray:
        """``values`` [..., points] by cluster and position [..., clusters, positions]; zero without one."""
        table = np.zeros((*values.shape[:-1], len(self.block), int(self.position.max()) + 1))
        table[..., self.cluster, self.position] = values
        return table

    def part(self, points: IntArray) -> "Blocks":
        """The blocks of some ``points``, with the positions that they have among all."""
        cluster = np.unique(self.cluster[points], return_inverse=True)
        return Blocks(
            cluster[1].ravel(), self.position[points], self.block[cluster[0]], self.whole[cluster[0]]
        )

    def covariance(self, values: FloatArray) -> tuple[FloatArray, int]:
        """Of ``values`` [points] between positions, [positions, positions], pooled within blocks; its df."""
        return within_cells(self.table(values)[self.whole].T, self.block[self.whole].astype(float))

    def noise(self, values: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
        """Normal noise [draws, points] with the covariance of ``values`` [points]."""
        covariance, _ = self.covariance(values)
        shape = (draws, len(self.block))
        # svd: the covariance of few clusters is singular, which Cholesky refuses.
        drawn = rng.multivariate_normal(np.zeros(len(covariance)), covariance, shape, method="svd")
        return np.asarray(drawn[:, self.cluster, self.position])


def blocks_of(cells: FloatArray, clusters: npt.NDArray[np.generic]) -> Blocks | None:
    """The blocks of points with these ``cells`` and ``clusters`` (both [points]).

    None where a cluster has two points in one cell, and where no two whole clusters are of one block.
    """
    cell = np.unique(cells, return_inverse=True)[1].ravel()
    cluster = np.unique(clusters, return_inverse=True)[1].ravel()
    if cluster.max() + 1 == len(cell):
        # Independent points, by far the most common: each cell is a block.
        repeated = cell.max() + 1 < len(cell)
        alone = np.argsort(cluster)
        return (
            Blocks(cluster, np.zeros_like(cell), cell[alone], np.ones(len(cell), bool)) if repeated else None
        )
    if len(np.unique(np.stack([cell, cluster]), axis=1).T) < len(cell):
        return None
    block_of_cluster, block_of_cell = connected(cluster, cell)
    sizes = np.bincount(block_of_cell)
    in_order = np.lexsort((np.arange(len(block_of_cell)), block_of_cell))
    position_of_cell = np.empty_like(in_order)
    position_of_cell[in_order] = np.arange(len(in_order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    whole = np.bincount(cluster) == sizes.max()
    if np.sum(whole) == len(np.unique(block_of_cluster[whole])):
        return None
    return Blocks(cluster, position_of_cell[cell], block_of_cluster, whole)


def connected(cluster: IntArray, cell: IntArray) -> tuple[IntArray, IntArray]:
    """A number for each cluster and for each cell, equal where points [points] join them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n_clusters, n_cells = int(cluster.max()) + 1, int(cell.max()) + 1
    size = n_clusters + n_cells
    # Clusters and cells are the two sides of a graph, points its edges; a block is connected.
    graph = coo_array((np.ones(len(cell)), (cluster, n_clusters + cell)), shape=(size, size))
    labels = np.asarray(connected_components(graph, directed=False)[1], np.intp)
    return labels[:n_clusters], labels[n_clusters:]
