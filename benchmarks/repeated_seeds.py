"""Claims from tables whose rungs repeat seeds without recorded streams, on simulated differences.

The interval takes rungs for independent. By default a claim must hold with whole seeds as what varies, too.
The table says how often "better" is then called without a true difference, and how many claims of the
interval are withheld where there is one. Run it with ``python benchmarks/repeated_seeds.py [DATA_SETS]``.
"""

import sys
from dataclasses import dataclass

import numpy as np
from paired_designs import LEVEL, Layout

from scalevec.analysis.comparison.independence import Independence, independent_sample, over_whole_seeds
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.paired import Estimate
from scalevec.analysis.statistics.sample import PairedSample

SHARES = (0.0, 0.15, 0.3, 0.5)
SEEDS = (2, 3, 5)
RUNGS = 4
EFFECTS = (1.0, 2.0, 4.0)
"""True differences, in standard deviations of a pair's difference."""


@dataclass(frozen=True)
class Drawn:
    """The mean of one data set without a true difference: with its interval, and over whole seeds."""

    plain: Estimate
    over_seeds: Estimate

    def is_below_zero(self, effect: float = 0.0, *, by_default: bool) -> bool:
        """Whether "better" is claimed where the true mean is ``-effect``, which shifts both intervals."""
        intervals = [each.interval(LEVEL) for each in (self.plain, *([self.over_seeds] * by_default))]
        return all(interval is not None and interval[1] < effect for interval in intervals)


def drawn(layout: Layout, rng: np.random.Generator) -> Drawn:
    """One data set of ``layout``, of which no column says what its random numbers follow from."""
    values, (rung, setting, seed) = layout.noise(rng), layout.places
    cells = rung * layout.settings + setting
    sample = PairedSample.of(values, cells, rung * layout.seeds + seed, rung)
    tested = Independence.tested(values, cells, rung, seed)
    plain = inference.overall(independent_sample(tested, sample, seed))
    return Drawn(plain, inference.overall(over_whole_seeds(sample, seed)))


def _covers_zero(estimate: Estimate) -> bool:
    interval = estimate.interval(LEVEL)
    return interval is not None and interval[0] <= 0 <= interval[1]


def shares_of(layout: Layout, data_sets: int) -> dict[str, float]:
    """Shares of data sets by what was seen; of withheld claims, among those that the interval makes."""
    sets = [drawn(layout, np.random.default_rng([5, number])) for number in range(data_sets)]
    shares = {
        "covers": np.mean([_covers_zero(each.plain) for each in sets]),
        "covers over whole seeds": np.mean([_covers_zero(each.over_seeds) for each in sets]),
        "better by the interval": np.mean([each.is_below_zero(by_default=False) for each in sets]),
        "better by default": np.mean([each.is_below_zero(by_default=True) for each in sets]),
    }
    for effect in EFFECTS:
        alone, default = (
            np.array([each.is_below_zero(effect, by_default=by_default) for each in sets])
            for by_default in (False, True)
        )
        shares[f"claimed at {effect:g} sd"] = np.mean(default)
        shares[f"withheld at {effect:g} sd"] = np.sum(alone & ~default) / max(np.sum(alone), 1)
    return {name: float(share) for name, share in shares.items()}


def main(data_sets: int) -> None:
    """Print a line for each number of seeds and share."""
    header: list[str] = []
    for seeds in SEEDS:
        for share in SHARES:
            shares = shares_of(Layout(RUNGS, 1, seeds, rungs_share=share), data_sets)
            if not header:
                header = ["design", *shares]
                print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
            cells = [
                f"{RUNGS} rungs x {seeds} seeds, share {share:g}",
                *(f"{100 * each:.1f}" for each in shares.values()),
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
