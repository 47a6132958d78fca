"""Seed noise of each rung on its own: variances of contrasts by rung, their degrees of freedom, and draws.

Noise between seeds differs from rung to rung, so each rung has its own variance, pooled over its settings,
and a contrast over rungs gets the degrees of freedom of Satterthwaite (1946). With few seeds the variance of
a noisy rung is underestimated by chance more often than not, so no interval is shorter than the one with
noise pooled over all rungs: ``benchmarks/calibration.py`` simulates both. What varies are whole clusters
(single pairs, where all are independent); a rung that repeats none takes the noise of the others. Points of
one cluster (the token budgets of a trunk) are not independent, but clusters of a block are in the same cells
and differ by their seed alone: whole clusters are the repetitions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.data.runs import joined_labels
from scalevec.analysis.data.tidy import FloatArray

FEWEST_CLUSTERS = 10
"""With fewer independent clusters an interval from clusters covers far less than it says: none is given."""
MANY_CLUSTERS = 16
"""So many times as many clusters as columns are drawn by a factor of their covariance."""
NO_NOISE = 1e-12
"""A spread below this share of the values is a rounding error."""
COPIES = 1e-6
"""Losses that spread by a smaller share are copies of each other: seeds of real training differ by 1e-4."""


@dataclass(frozen=True)
class Pooled:
    """A standard deviation pooled within cells, and its degrees of freedom (values minus cells)."""

    sd: float
    df: int


SCORING_STEPS = 50


def t_quantile(level: float, df: float) -> float:
    """Half the width of a two-sided ``level`` t interval, in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.5 + level / 2))


def pooled_noise(values: FloatArray, cells: FloatArray) -> Pooled:
    """The sd of ``values`` [points] within ``cells`` [points of labels]; nan where no cell repeats."""
    covariance, df = within_cells(values[None], cells)
    return Pooled(float(np.sqrt(covariance[0, 0])) if df else float("nan"), df)


def noise_by_mean(
    values: FloatArray, cells: FloatArray, means: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    """The sd of a value by its mean, where the variance of ``values`` [points] is a power of theirs.

    Some cell repeats. The power is fitted to the variances within cells (a gamma likelihood, by Fisher's
    scoring), drawn to zero, where all are alike, as far as chance explains it (James and Stein's positive
    part), and makes no sd smaller than the pooled one.
    """
    _, first, cell, counts = np.unique(cells, return_index=True, return_inverse=True, return_counts=True)
    squares = np.bincount(cell, (values - (np.bincount(cell, values) / counts)[cell]) ** 2)
    df, logs = counts - 1.0, np.log(means[first])
    x = logs - (middle := np.average(logs, weights=df))
    power, information, pooled = 0.0, float(df @ x**2) / 2, squares.sum() / df.sum()
    for _ in range(SCORING_STEPS if information else 0):
        variances = np.exp(power * x) * np.sum(squares * np.exp(-power * x)) / df.sum()
        step = float(x @ (squares / variances - df)) / 2 / information
        power += float(np.clip(step * np.abs(x).max(), -1, 1) / np.abs(x).max())  # so that none overshoots
    power *= max(0.0, 1 - 1 / information / power**2) if power else 0.0
    at_middle = np.sum(squares * np.exp(-power * x)) / df.sum()
    return lambda mean: np.sqrt(np.maximum(np.exp(power * (np.log(mean) - middle)) * at_middle, pooled))


def are_copies(values: FloatArray, cells: FloatArray) -> bool:
    """Whether ``values`` [points] repeat within ``cells`` [points] and do not differ there."""
    noise = pooled_noise(values, cells)
    return noise.df > 0 and noise.sd <= COPIES * float(np.max(np.abs(values)))


def within_cells(logs: FloatArray, cells: FloatArray) -> tuple[FloatArray, int]:
    """Covariance [sides, sides] of ``logs`` [sides, points] within cells, and its degrees of freedom."""
    _, index, counts = np.unique(cells, return_inverse=True, return_counts=True)
    df = logs.shape[1] - len(counts)
    means = np.stack([(np.bincount(index, row) / counts)[index] for row in logs])
    return (logs - means) @ (logs - means).T / max(df, 1), df


IntArray = npt.NDArray[np.intp]
Labels = npt.NDArray[Any]
"""What values are of (cells, clusters, rungs), by number or name."""
COMPARED_AT = 0.95
"""The level at which the longer of two intervals is the one that counts."""


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
        """``values`` [sides, points] by cluster [clusters, sides x positions]; zero without one."""
        table = np.zeros((*values.shape[:-1], len(self.block), int(self.position.max()) + 1))
        table[..., self.cluster, self.position] = values
        return np.moveaxis(table, 0, 1).reshape(len(self.block), -1)

    def part(self, points: IntArray) -> "Blocks":
        """The blocks of some ``points``, with the positions that they have among all."""
        cluster = np.unique(self.cluster[points], return_inverse=True)
        return Blocks(
            cluster[1].ravel(), self.position[points], self.block[cluster[0]], self.whole[cluster[0]]
        )

    def covariance(self, values: FloatArray) -> tuple[FloatArray, int]:
        """Of ``values`` [points] between positions, [positions, positions], pooled within blocks; its df."""
        return within_cells(self.table(values[None])[self.whole].T, self.block[self.whole].astype(float))

    def noise(self, values: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
        """Normal noise [draws, points] with the covariance of ``values`` [points]."""
        covariance, _ = self.covariance(values)
        shape = (draws, len(self.block))
        # svd: the covariance of few clusters is singular, which Cholesky refuses.
        drawn = rng.multivariate_normal(np.zeros(len(covariance)), covariance, shape, method="svd")
        return np.asarray(drawn[:, self.cluster, self.position])


def blocks_of(cells: Labels, clusters: Labels) -> Blocks | None:
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
    # Clusters and cells are the two sides of a graph, points its edges; a block is connected.
    of_point = joined_labels([pd.Series(cluster), pd.Series(-1 - cell)])
    of_cluster, of_cell = (of_point[np.unique(codes, return_index=True)[1]] for codes in (cluster, cell))
    return of_cluster, of_cell


class Component(NamedTuple):
    """A variance, or a part of one, that is known with ``df`` degrees of freedom."""

    variance: float
    df: float

    @property
    def standard_error(self) -> float:
        """Its root."""
        return float(np.sqrt(self.variance))

    def half(self, level: float) -> float:
        """Half the width of the two-sided t interval."""
        return t_quantile(level, self.df) * self.standard_error


def satterthwaite(components: Sequence[Component]) -> Component:
    """The sum of independent parts (Satterthwaite 1946, equation 17)."""
    if len(components) == 1:
        return components[0]
    total = sum(part.variance for part in components)
    spread = sum(part.variance**2 / part.df for part in components)
    if not spread:
        return Component(0.0, max((part.df for part in components), default=0.0))
    return Component(float(total), float(total**2 / spread))


def longer(errors: Sequence[Component]) -> Component:
    """The one that makes the longer interval, the first of equal ones."""
    return max(errors, key=lambda error: error.half(COMPARED_AT))


def with_split(errors: Sequence[Component], split: Sequence[Component]) -> tuple[Component, float]:
    """The :func:`longer` of ``errors`` with the test split's part added, and the standard error from seeds.

    A part that is known well raises the degrees of freedom of the sum, so that Satterthwaite's interval may
    be shorter with it than without: then the degrees of freedom are those at which it is as long.
    """
    sums = [satterthwaite([error, *split]) for error in errors]
    chosen, least = longer(sums), longer(errors)
    from_seeds = errors[sums.index(chosen)].standard_error
    if chosen.half(COMPARED_AT) < least.half(COMPARED_AT):
        return _as_long_as(chosen, least), from_seeds
    return chosen, from_seeds


def _as_long_as(error: Component, other: Component) -> Component:
    from scipy.optimize import brentq

    wanted = other.half(COMPARED_AT)

    def away(df: float) -> float:
        return Component(error.variance, df).half(COMPARED_AT) - wanted

    low = min(other.df, error.df)
    # With the other's degrees of freedom the larger error is at least as long: the root lies between.
    return Component(error.variance, float(brentq(away, low, error.df)) if away(low) > 0 else low)


@dataclass(frozen=True, eq=False)
class _Rung:
    """One rung: its ``points`` [p], with cluster and position of each, and its noise.

    ``residuals`` [whole clusters, sides x positions] are around the means of their blocks; of ``df`` 0 the
    rung has no noise figure of its own.
    """

    points: IntArray
    blocks: Blocks
    residuals: FloatArray
    df: int

    @property
    def width(self) -> int:
        """Positions of a block."""
        return int(self.blocks.position.max()) + 1

    def tabled(self, weights: FloatArray) -> FloatArray:
        """``weights`` [sides, all points] by cluster [clusters, sides x positions]."""
        return self.blocks.table(weights[:, self.points])


class RungNoise:
    """The noise of ``values`` [sides, points] between whole clusters, rung by rung.

    ``df`` is the sum over rungs; 0 where there is no noise figure at all. ``rounding`` is a variance of each
    value beside it.
    """

    def __init__(
        self, values: FloatArray, cells: Labels, clusters: Labels, rungs: Labels, rounding: float = 0.0
    ) -> None:
        self.shape, self.rounding = values.shape, rounding
        self.rungs: list[_Rung] = []
        whole = blocks_of(cells, clusters)
        if whole is not None:
            smallest = NO_NOISE * float(np.max(np.abs(values)))
            groups = _groups(np.unique(rungs, return_inverse=True)[1].ravel(), whole.block[whole.cluster])
            for group in np.unique(groups):
                points = np.flatnonzero(groups == group)
                blocks = blocks_of(cells[points], clusters[points])
                rung = self._rung(values, points, blocks, smallest) if blocks else None
                self.rungs.append(rung or _Rung(points, whole.part(points), np.empty((0, 0)), 0))
        widest = max((rung.width for rung in self.rungs), default=0)
        # Rungs with fewer budgets than others have a noise figure of their own, which others cannot use.
        self._lenders = [rung for rung in self.rungs if rung.df and rung.width == widest]
        self.df = sum(rung.df for rung in self._lenders)

    def _rung(self, values: FloatArray, points: IntArray, blocks: Blocks, smallest: float) -> _Rung:
        """The rung of ``points``; its noise is none where that of ``values`` is ``smallest`` or less."""
        table, block = blocks.table(values[:, points])[blocks.whole], blocks.block[blocks.whole]
        code, counts = np.unique(block, return_inverse=True, return_counts=True)[1:]
        sums = np.zeros((len(counts), table.shape[1]))
        np.add.at(sums, code, table)
        residuals = table - (sums / counts[:, None])[code]
        # Copies of one result carry no noise, but for what rounding may have taken from them.
        df = len(table) - len(counts) if self.rounding or np.max(np.abs(residuals)) > smallest else 0
        if self.rounding:
            of_rounding = np.sqrt(df * self.rounding) * np.eye(residuals.shape[1])
            residuals = np.concatenate([residuals, of_rounding])
        return _Rung(points, blocks, residuals, df)

    def components(self, weights: FloatArray) -> list[Component]:
        """The variance of the sum of values with ``weights`` [sides, points], by rung."""
        variances = {id(rung): 0.0 for rung in self.rungs if rung.df}
        for rung in self.rungs:
            table = rung.tabled(weights)
            sources = [rung] if rung.df else self._lenders
            df = sum(source.df for source in sources)
            for source in sources:
                variances[id(source)] += _through(table, source.residuals, self.shape[0]) / df
        return [Component(variances[id(rung)], rung.df) for rung in self.rungs if rung.df]

    def pooled(self, weights: FloatArray) -> Component:
        """The same with one noise for all rungs."""
        residuals = np.concatenate([source.residuals for source in self._lenders])
        variance = sum(_through(rung.tabled(weights), residuals, self.shape[0]) for rung in self.rungs)
        return Component(variance / self.df, self.df)

    def errors(self, weights: FloatArray) -> list[Component]:
        """By rung and pooled; the interval is the :func:`longer` one."""
        return [satterthwaite(self.components(weights)), self.pooled(weights)]

    def draws(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Normal noise [draws, sides, points] with the covariance of each rung's whole clusters."""
        noise = np.empty((n_draws, *self.shape))
        for rung in self.rungs:
            sources = [rung] if rung.df else self._lenders
            residuals = np.concatenate([source.residuals for source in sources])
            residuals = residuals / np.sqrt(sum(source.df for source in sources))
            if len(residuals) > MANY_CLUSTERS * residuals.shape[1]:  # as few rows of the same covariance
                residuals = np.asarray(np.linalg.qr(residuals, mode="r"), float)
            mixed = rng.standard_normal((n_draws, len(rung.blocks.block), len(residuals))) @ residuals
            by_side = mixed.reshape(*mixed.shape[:2], self.shape[0], -1)
            noise[:, :, rung.points] = np.moveaxis(
                by_side[:, rung.blocks.cluster, :, rung.blocks.position], 0, -1
            )
        return noise


def _groups(rungs: IntArray, blocks: IntArray) -> IntArray:
    """A number for each point: its rung, joined with others that a block spans."""
    pairs = len(np.unique(rungs * (int(blocks.max()) + 1) + blocks))
    return rungs if pairs == len(np.unique(blocks)) else connected(rungs, blocks)[0][rungs]


def _through(table: FloatArray, residuals: FloatArray, n_sides: int) -> float:
    """``sum_c w_c' R'R w_c`` of the rows w_c of ``table``, which may have fewer positions per side."""
    width = table.shape[1] // n_sides
    shared = residuals.reshape(len(residuals), n_sides, -1)[..., :width].reshape(len(residuals), -1)
    return float(np.sum((shared @ table.T) ** 2))
