"""Paired differences with what their inference needs to know: cells, rungs, clusters, test-split blocks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.statistics.clusters import IntArray
from scalevec.analysis.statistics.test_split import SplitLosses

WHOLE_SEEDS = "whole seeds"


@dataclass(frozen=True, eq=False)
class PairedSample:
    """``values`` [pairs] of ``cells``, ``rungs`` and ``clusters`` (each [pairs], labels).

    Pairs of one cluster are not independent. ``split`` are the values by block of the test split, if known;
    ``unit`` is :data:`WHOLE_SEEDS` where a cluster holds a seed's pairs of all rungs.
    """

    values: FloatArray
    cells: npt.NDArray[Any]
    rungs: npt.NDArray[Any]
    clusters: npt.NDArray[Any]
    split: SplitLosses | None = None
    unit: str = ""

    @classmethod
    def of(
        cls,
        values: FloatArray,
        cells: npt.NDArray[Any],
        clusters: npt.NDArray[Any] | None = None,
        rungs: npt.NDArray[Any] | None = None,
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
        return PairedSample(self.values, self.cells, self.rungs, clusters, self.split)

    def kept(self, keep: BoolArray) -> "PairedSample":
        """The sample of the pairs where ``keep`` [pairs]."""
        split = self.split.kept(keep) if self.split else None
        values, cells, rungs = self.values[keep], self.cells[keep], self.rungs[keep]
        return PairedSample(values, cells, rungs, self.clusters[keep], split, self.unit)
