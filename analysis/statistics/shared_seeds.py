"""Whether pairs that repeat a seed share an effect of arm x seed: a two-way layout, its F test and its share.

A difference is that of its cell, plus an effect of the seed that the cells of one unit (a rung's settings, or
all rungs) have in common, plus its own noise. Source of test and component: analysis of variance of the
unbalanced two-way layout (Searle, Casella & McCulloch 1992, chapter 5), by least squares on indicators.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.statistics.clusters import IntArray
from scalevec.analysis.statistics.noise import NO_NOISE

PRETEST = 0.10
"""Below this p-value seeds that rungs share count as shared: whole seeds are the clusters."""
RANK = 1e-9
"""A singular value below this share of the largest is zero."""
Across = Literal["settings", "rungs"]


@dataclass(frozen=True)
class SharedSeeds:
    """The effect of arm x seed that ``across`` settings or rungs have in common.

    ``share`` of the variance of a difference is not cut at zero; ``f`` has the two degrees of freedom ``df``.
    """

    across: Across
    share: float
    f: float
    df: tuple[int, int]
    p_value: float


def shared_seeds(
    values: FloatArray, cells: npt.NDArray[Any], units: npt.NDArray[Any], across: Across
) -> SharedSeeds | None:
    """The component of ``values`` [pairs] that ``units`` [pairs] have in common across ``cells`` [pairs].

    None where the layout cannot tell it from the noise, and where values never differ.
    """
    from scipy.special import fdtrc

    if len(np.unique(units)) == len(values):  # nothing is shared, and of very many pairs the layout is large
        return None
    columns, shifts = _indicators(cells), _indicators(units)
    both = np.linalg.svd(np.concatenate([columns, shifts], axis=1), full_matrices=False)
    rank = int(np.sum(both.S / both.S[0] > RANK))
    df = rank - columns.shape[1], len(values) - rank
    if min(df) < 1:
        return None
    rest = values - columns @ (columns.T @ values / columns.sum(axis=0))
    unexplained = rest - both.U[:, :rank] @ (both.U[:, :rank].T @ rest)
    noise = float(unexplained @ unexplained) / df[1]
    if np.sqrt(noise) <= NO_NOISE * float(np.max(np.abs(values))):
        return None
    between = (float(rest @ rest) - float(unexplained @ unexplained)) / df[0]
    # The expected mean square between units is that of the noise plus this many times the component.
    centred = shifts - columns @ (columns.T @ shifts / columns.sum(axis=0)[:, None])
    component = (between - noise) / (float(np.sum(centred**2)) / df[0])
    f = between / noise
    return SharedSeeds(across, component / (component + noise), f, df, float(fdtrc(*df, f)))


def _indicators(labels: npt.NDArray[Any]) -> FloatArray:
    """A column of ones and zeros for each label [pairs, labels]."""
    index = np.unique(labels, return_inverse=True)[1].ravel()
    return np.eye(int(index.max()) + 1)[index]


def by_rung_and_seed(
    values: FloatArray, cells: npt.NDArray[Any], rungs: npt.NDArray[Any], seeds: npt.NDArray[Any]
) -> tuple[FloatArray, IntArray, IntArray, IntArray]:
    """The mean over a rung's cells of each seed's value, less that of the cell, with its rung and its seed.

    The last is the number of the mean that each pair enters [pairs]. The settings of a rung may share seeds
    too, so that rungs are compared by one value for each seed.
    """
    cell = np.unique(cells, return_inverse=True)[1].ravel()
    rest = values - (np.bincount(cell, values) / np.bincount(cell))[cell]
    labels = np.stack([np.unique(each, return_inverse=True)[1].ravel() for each in (rungs, seeds)])
    places, code = np.unique(labels, axis=1, return_inverse=True)
    code = code.ravel()
    return np.bincount(code, rest) / np.bincount(code), places[0], places[1], code
