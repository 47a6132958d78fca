"""The intervals that a design will have, before it is run: half their width, drawn from planned noise.

The interval of a comparison takes its degrees of freedom from the noise that each rung shows
(``analysis.statistics.rung_noise``), so its width is drawn: equal normal noise between seeds at all rungs.
"""

from collections.abc import Sequence

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.statistics.rung_noise import COMPARED_AT, Component

DRAWS = 2000
Parts = tuple[FloatArray, FloatArray]
"""The parts of a variance in several draws [draws, parts], with their degrees of freedom [parts]."""


def planned_halves(rungs: Sequence[Component], level: float, split: Component | None = None) -> FloatArray:
    """Half the width of the ``level`` interval [draws] of a mean with these variances by rung.

    A rung of 0 degrees of freedom takes the noise of the others; ``split`` is the test split's part.
    """
    variances, df = np.array(rungs, float).T
    repeated = df > 0
    if not repeated.any():
        raise ValueError("no rung repeats a seed")
    lent = variances[~repeated].sum() * df[repeated] / df.sum()
    drawn = np.random.default_rng(0).chisquare(df[repeated], (DRAWS, int(repeated.sum()))) / df[repeated]
    one_noise = drawn @ df[repeated] / df.sum() * variances.sum()
    by_rung = (variances[repeated] + lent) * drawn, df[repeated]
    return longest_halves([by_rung, (one_noise[:, None], np.array([df.sum()]))], level, split)


def longest_halves(errors: Sequence[Parts], level: float, split: Component | None = None) -> FloatArray:
    """Half the width [draws] of the longest of the intervals whose variances are sums of these parts.

    No interval is shorter with the test split's part than without it.
    """
    added = [
        (np.insert(parts, 0, split.variance, 1), np.insert(df, 0, split.df)) for parts, df in errors if split
    ]
    sums = [_satterthwaite(*error) for error in (*errors, *added)]
    compared, halves = (np.stack([_half(*each, at) for each in sums]) for at in (COMPARED_AT, level))
    return np.asarray(np.take_along_axis(halves, compared.argmax(axis=0)[None], 0)[0])


def _satterthwaite(parts: FloatArray, df: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standard errors [draws] and degrees of freedom [draws] of sums of ``parts`` [draws, parts]."""
    total = parts.sum(axis=1)
    return np.sqrt(total), total**2 / (parts**2 / df).sum(axis=1)


def _half(error: FloatArray, df: FloatArray, level: float) -> FloatArray:
    from scipy.special import stdtrit

    return np.asarray(stdtrit(df, 0.5 + level / 2) * error)
