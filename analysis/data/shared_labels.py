"""Pairs that share a label, of whatever kind, are one cluster: connected parts."""

import numpy as np
import numpy.typing as npt
import pandas as pd


def numbered_labels(kinds: "list[list[pd.Series[str]]]") -> npt.NDArray[np.intp]:
    """A number for each label [columns, pairs]; labels of two kinds are never the same."""
    rows: list[npt.NDArray[np.intp]] = []
    first = 0
    for columns in kinds:
        codes = pd.factorize(pd.concat(columns))[0].reshape(len(columns), -1) + first
        rows.append(codes)
        first = int(codes.max(initial=first)) + 1
    return np.concatenate(rows)


def joined_labels(names: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """The connected parts of pairs, each of which joins ``names`` [columns, pairs]: its number [pairs]."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not names.size:
        return np.zeros(0, np.intp)
    size = int(names.max()) + 1
    edges = (np.repeat(names[:1], len(names), axis=0).ravel(), names.ravel())
    graph = coo_array((np.ones(names.size), edges), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1][names[0]], np.intp)
