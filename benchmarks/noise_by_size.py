"""The noise of a pair's difference by size, fitted to the kept sweeps in ``benchmarks/reference``.

    python benchmarks/noise_by_size.py

It is what ``scalevec plan`` takes for typical (``analysis.power.noise_figure.TYPICAL``). Until the small
sweeps are trained again (``make paper-small``) that is the fit to those of identity version 2.
"""

from pathlib import Path

import pandas as pd

from scalevec.analysis.power.noise_figure import NoiseBySize, noise_by_size, pooled_by_size
from scalevec.analysis.statistics.noise import Pooled

REFERENCE = Path(__file__).resolve().parent / "reference"
AT = 50_000.0
"""Matrix parameters, in the middle of the sizes that were run."""
REFERENCES = ("baseline", "decay-all")
LEFT_OUT = ("overhead", "theory")
"""Sweeps of a few steps, which were not run for their losses."""
IN_TWO_WAYS = 309_760
"""The size at which runs ended in two ways, probably as some learned to copy: no noise of one kind."""


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
