"""The noise of a pair's difference by size, fitted to the kept sweeps in ``benchmarks/reference``.

    python benchmarks/noise_by_size.py

It is what ``scalevec plan`` takes for typical (``analysis.power.detectable.TYPICAL``). Until the small
sweeps are trained again (``make paper-small``) that is the fit to those of identity version 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.trials import compared_trials
from scalevec.analysis.errors import DataError
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.power.detectable import independent_pairs
from scalevec.analysis.statistics.noise import Pooled, pooled_noise

REFERENCE = Path(__file__).resolve().parent / "reference"
AT = 50_000.0
"""Matrix parameters, in the middle of the sizes that were run."""
REFERENCES = ("baseline", "decay-all")
LEFT_OUT = ("overhead", "theory")
"""Sweeps of a few steps, which were not run for their losses."""
IN_TWO_WAYS = 309_760
"""The size at which runs ended in two ways, probably as some learned to copy: no noise of one kind."""
_SCORING_STEPS = 50


@dataclass(frozen=True)
class NoiseBySize:
    """``sd`` at the size ``n_params``, which falls as N^-``exponent`` (with its standard ``error``)."""

    sd: float
    n_params: float
    exponent: float
    error: float


def noise_by_size(pooled: Sequence[tuple[float, Pooled]], n_params: float) -> NoiseBySize:
    """Fit the noise of pairs as a power of N, by the likelihood of normal differences.

    Variances with their degrees of freedom are gamma; log link, scoring (McCullagh and Nelder 1989, 8.3).

    Args:
        pooled: Sizes with the noise of their pairs.
        n_params: The size that the fitted ``sd`` is given at.

    Returns:
        The fit.

    Raises:
        DataError: Fewer than two sizes.
    """
    sizes = np.array([size for size, _ in pooled], float)
    if len(np.unique(sizes)) < 2:
        raise DataError(f"noise by size needs two sizes or more; there are {len(np.unique(sizes))}")
    weights = np.array([noise.df / 2 for _, noise in pooled], float)
    variances = np.array([noise.sd**2 for _, noise in pooled], float)
    layout = np.stack([np.ones(len(sizes)), np.log(sizes / n_params)], axis=1)
    covariance = np.linalg.inv(layout.T @ (weights[:, None] * layout))
    fit = np.array([np.log(np.average(variances, weights=weights)), 0.0])
    for _ in range(_SCORING_STEPS):
        fit = fit + covariance @ layout.T @ (weights * (variances / np.exp(layout @ fit) - 1))
    level, slope = fit.tolist()
    return NoiseBySize(float(np.exp(level / 2)), n_params, -slope / 2, float(np.sqrt(covariance[1, 1])) / 2)


def pooled_by_size(results: pd.DataFrame, reference: str) -> list[tuple[float, Pooled]]:
    """The noise of the pairs of each size in a table, as for :func:`noise_by_size`; none without repeats."""
    trials = compared_trials(results, reference, AnalysisOptions())
    pairs = independent_pairs(trials)
    pooled = [
        (float(str(size)), pooled_noise(part["difference"].to_numpy(float), part["cell"].to_numpy(float)))
        for size, part in pairs.groupby("size")
    ]
    return [(size, noise) for size, noise in pooled if noise.df and noise.sd]


def pooled() -> list[tuple[float, Pooled]]:
    """Of every kept sweep the noise of its pairs at each size."""
    results: list[tuple[float, Pooled]] = []
    for path in sorted(REFERENCE.rglob("results.csv")):
        if path.parent.name not in LEFT_OUT:
            rows = pd.read_csv(path)
            reference = next(name for name in REFERENCES if name in set(rows["arm"]))
            results += pooled_by_size(rows, reference)
    return results


def fitted() -> NoiseBySize:
    """The fit to all sizes at which runs end in one way."""
    return noise_by_size([(size, noise) for size, noise in pooled() if size != IN_TWO_WAYS], AT)


def main() -> None:
    """Print the noise by size and the fit."""
    values = pooled()
    for size in sorted({size for size, _ in values}):
        of_size = [noise for n, noise in values if n == size]
        df = sum(noise.df for noise in of_size)
        sd = (sum(noise.df * noise.sd**2 for noise in of_size) / df) ** 0.5
        print(f"{size:>8,.0f} parameters: sd {sd:.4f}, {df} degrees of freedom")
    for which, fit in ((f"without {IN_TWO_WAYS:,}", fitted()), ("all", noise_by_size(values, AT))):
        print(f"{which}: sd {fit.sd:.4f} at {fit.n_params:,.0f} parameters,")
        print(f"  falling as N^{-fit.exponent:+.2f} (standard error {fit.error:.2f})")
        for name, size in (("0.12b", 42.5e6), ("1b", 848e6)):
            print(f"  {name}: {fit.sd * (size / fit.n_params) ** -fit.exponent:.4f}, extrapolated")


if __name__ == "__main__":
    main()
