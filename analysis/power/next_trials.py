"""What to add to a sweep: the seeds that shorten an interval most within some hours."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import joined, plural
from scalevec.analysis.statistics.noise import Component, pooled_noise, satterthwaite
from scalevec.analysis.statistics.paired import MANY_BLOCKS
from scalevec.analysis.statistics.sample import PairedSample

_NAMED = 4
_MOST_SEEDS = 30
"""No size is given more seeds than these."""
SMALLEST_GAIN = 1e-3
"""A move that shortens the interval by a smaller share is not worth its hours."""
_OF_ALL = 4
"""Degrees of freedom with which the noise of all rungs counts beside each one's own, for seeds to come."""
Seeds = npt.NDArray[np.int_]
_OF_PAIRS = ("", "seeds of clusters", "whole seeds")
"""What the noise of an interval is between, where further seeds shorten it."""


@dataclass(frozen=True)
class ExtendableSize:
    """A rung and budget with its ``seeds`` and the ``hours`` of one more of them.

    A seed is run in all arms and ``settings`` of the size.
    """

    name: str
    rung: str
    seeds: int
    hours: float
    settings: int = 1


@dataclass(frozen=True)
class NextTrials:
    """What to add: seeds by size, the hours they take, half the interval ``before`` and ``after``.

    The interval is the mean of those of ``arms``.
    """

    seeds: dict[str, int]
    hours: float
    before: float
    after: float
    arms: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)

    def text(self, hours: str) -> str:
        """One line for people; ``hours`` says of what they are, as ``GPU-hours``."""
        added = [f"{plural(seeds, 'seed')} at {name}" for name, seeds in self.seeds.items() if seeds]
        left = [f"none at {name}" for name, seeds in self.seeds.items() if not seeds]
        left = left if len(left) <= _NAMED else ["none elsewhere"]
        if not added:
            return f"no seed that these {hours} buy shortens the interval, +-{self.before:.4f}"
        of_arms = f"; mean over {len(self.arms)} arms" if len(self.arms) > 1 else ""
        return (
            f"with {self.hours:.3g} more {hours}: interval +-{self.before:.4f} -> "
            f"+-{self.after:.4f} (nats/token, of the mean difference{of_arms}); add {joined([*added, *left])}"
        )


def next_trials(sizes: Sequence[ExtendableSize], trials: ComparedTrials, hours: float) -> NextTrials:
    """Choose the seeds to add within ``hours`` that shorten the interval of the mean difference most.

    Seeds in proportion to noise over the root of cost (Neyman 1934) are improved by moving single ones. The
    noise is the mean of the arms'.

    Args:
        sizes: The design with its seeds.
        trials: The trials so far, whose intervals are to be shortened.
        hours: What may be spent, in the unit of the sizes' hours.

    Raises:
        DataError: Hours that are none, no size, or no arm with a repeated seed.
    """
    if not 0 < hours < np.inf:
        raise DataError(f"hours is {hours!r}; allowed: a number above zero")
    if not sizes:
        raise DataError("no size has a complete pair of every arm yet; run the sweep's own trials first")
    known = [
        (arm, arm.estimate)
        for arm in map(trials.paired, trials.others)
        if arm.estimate and arm.estimate.has_noise and arm.estimate.between in _OF_PAIRS
    ]
    if not known:
        raise DataError(
            "no size has two seeds with a result, so there is no noise figure yet: run what is planned, then "
            "a second seed where there is one"
        )
    intervals = [estimate.interval(arm.level) or (0.0, 0.0) for arm, estimate in known]
    now, level = float(np.mean(np.diff(intervals))) / 2, known[0][0].level
    splits = [estimate.split_error or 0.0 for _, estimate in known]
    variances = np.mean([_variances(sizes, arm.sample) for arm, _ in known], axis=0)
    seeds, settings, costs = (
        np.array([getattr(size, name) for size in sizes]) for name in ("seeds", "settings", "hours")
    )
    split = [Component(float(np.mean(np.square(splits))), MANY_BLOCKS)] if any(splits) else []

    def expected(added: Seeds) -> float:
        counts = seeds + added
        used = counts > 1
        of_mean = variances[used] / counts[used] / max(used.sum(), 1) ** 2
        df = settings[used] * (counts[used] - 1)
        parts = [Component(*part) for part in zip(of_mean.tolist(), df.tolist(), strict=True)]
        return satterthwaite([*parts, *split]).half(level) if parts else float("inf")

    added = _chosen(variances, costs, hours, expected)
    present = expected(np.zeros_like(added))
    if expected(added) > present * (1 - SMALLEST_GAIN):
        added = np.zeros_like(added)
    after = now * expected(added) / present if np.isfinite(present) else expected(added)
    more = {size.name: int(number) for size, number in zip(sizes, added, strict=True)}
    names = tuple(arm.arm for arm, _ in known)
    return NextTrials(more, float(added @ costs), now, after if added.any() else now, names)


def _chosen(
    variances: FloatArray, costs: FloatArray, hours: float, expected: Callable[[Seeds], float]
) -> Seeds:
    """Whole seeds [sizes] in proportion to noise over the root of cost, improved by moves of single seeds.

    A move is one seed more at a size, or one more and one less at another, as far as the hours go: each is
    the best there is, until none shortens the interval.
    """
    share = np.sqrt(variances / np.maximum(costs, 1e-12))
    whole = np.floor(share * hours / float(share @ costs)) if share @ costs else share
    added, steps = np.minimum(whole, _MOST_SEEDS).astype(int), np.eye(len(costs), dtype=int)
    while True:
        one_less = [np.zeros_like(added), *steps[added > 0]]
        moves = [added + more - less for more, less in itertools.product(steps, one_less)]
        moves = [moved for moved in moves if moved.max() <= _MOST_SEEDS and moved @ costs <= hours]
        best = min(moves, key=lambda moved: (expected(moved), float(moved @ costs)), default=added)
        if not expected(best) < expected(added) * (1 - SMALLEST_GAIN):
            return added
        added = best


def _variances(sizes: Sequence[ExtendableSize], sample: PairedSample) -> FloatArray:
    """The variance of each size's mean with one seed [sizes], of one arm."""
    of_all, variances = pooled_noise(sample.values, sample.cells), []
    for size in sizes:
        here = sample.rungs == size.rung
        noise = pooled_noise(sample.values[here], sample.cells[here])
        # The noise that few seeds show counts with that of all rungs beside it.
        known = noise.df * noise.sd**2 if noise.df else 0.0
        variance = (known + _OF_ALL * of_all.sd**2) / (noise.df + _OF_ALL) + sample.rounding
        variances.append(variance / size.settings)
    return np.array(variances)
