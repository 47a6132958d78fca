"""What to add to a sweep: the seeds that shorten an interval most within some hours."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scalevec.analysis.comparison.differences import PairedArm
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import joined, plural
from scalevec.analysis.statistics.noise import pooled_noise
from scalevec.analysis.statistics.paired import MANY_BLOCKS
from scalevec.analysis.statistics.rung_noise import Component, satterthwaite

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


@dataclass(frozen=True, eq=False)
class ArmDesign:
    """One arm's noise at each size, and half the interval that it has ``now``.

    ``variances`` [sizes] are of a size's mean with one seed, ``freedom`` [sizes] the degrees of freedom of
    each seed more. ``split`` is the test split's part of the error.
    """

    seeds: Seeds
    variances: FloatArray
    freedom: Seeds
    split: Component | None
    now: float
    level: float

    def half(self, added: Seeds) -> float:
        """Half the interval expected with seeds ``added`` [sizes], on the scale of the present one."""
        present = self._expected(np.zeros_like(added))
        return self.now * self._expected(added) / present if np.isfinite(present) else self._expected(added)

    def _expected(self, added: Seeds) -> float:
        counts = self.seeds + added
        used = counts > 1
        variances = self.variances[used] / counts[used] / max(used.sum(), 1) ** 2
        df = self.freedom[used] * (counts[used] - 1)
        parts = [Component(*part) for part in zip(variances.tolist(), df.tolist(), strict=True)]
        error = satterthwaite([*parts, *([self.split] if self.split else [])])
        return error.half(self.level) if parts else float("inf")


@dataclass(frozen=True)
class NextTrials:
    """What to add: seeds by size, the hours they take, half the interval ``before`` and ``after``."""

    seeds: dict[str, int]
    hours: float
    before: float
    after: float
    arms: dict[str, tuple[float, float]]
    level: float

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


def next_trials(
    sizes: Sequence[ExtendableSize], designs: Mapping[str, ArmDesign], hours: float
) -> NextTrials:
    """Choose the seeds to add within ``hours`` that shorten the mean interval of the arms most.

    Seeds in proportion to noise over the root of cost (Neyman 1934) are improved by moving single ones.

    Args:
        sizes: The design with its seeds.
        designs: What decides the intervals that count, by arm (see :func:`designs_of`).
        hours: What may be spent, in the unit of the sizes' hours.

    Raises:
        DataError: Hours that are none.
    """
    if not 0 < hours < np.inf:
        raise DataError(f"hours is {hours!r}; allowed: a number above zero")
    costs = np.array([size.hours for size in sizes])
    arms = list(designs.values())

    def mean_half(added: Seeds) -> float:
        return float(np.mean([design.half(added) for design in arms]))

    share = np.sqrt(np.mean([design.variances for design in arms], axis=0) / np.maximum(costs, 1e-12))
    whole = np.floor(share * hours / float(share @ costs)) if share @ costs else share
    added = np.minimum(whole, _MOST_SEEDS).astype(int)
    half = mean_half(added)
    while True:
        moves = [(mean_half(moved), float(moved @ costs), moved) for moved in _moves(added, costs, hours)]
        best = min(moves, key=lambda move: move[:2], default=None)
        if best is None or best[0] > half * (1 - SMALLEST_GAIN):
            break
        half, _, added = best
    if half > mean_half(np.zeros_like(added)) * (1 - SMALLEST_GAIN):
        added = np.zeros_like(added)
    halves = {
        name: (design.now, design.half(added) if added.any() else design.now)
        for name, design in designs.items()
    }
    before, after = np.mean(list(halves.values()), axis=0).tolist()
    seeds = {size.name: int(more) for size, more in zip(sizes, added, strict=True)}
    return NextTrials(seeds, float(added @ costs), before, after, halves, arms[0].level)


def _moves(added: Seeds, costs: FloatArray, hours: float) -> Iterator[Seeds]:
    """One seed more at a size, or one more and one less at another, as far as the hours go."""
    steps = np.eye(len(added), dtype=int)
    for more, less in itertools.product(steps, [np.zeros_like(added), *steps[added > 0]]):
        moved = added + more - less
        if moved.max() <= _MOST_SEEDS and moved @ costs <= hours:
            yield moved


def designs_of(sizes: Sequence[ExtendableSize], trials: ComparedTrials) -> dict[str, ArmDesign]:
    """The designs of the arms' mean differences, as :func:`compare` judges them.

    Raises:
        DataError: No arm with a repeated seed.
    """
    arms = map(trials.paired, trials.others)
    designs = {arm.arm: _design(sizes, arm, arm.level(trials.options.level)) for arm in arms}
    known = {name: design for name, design in designs.items() if design}
    if not known:
        raise DataError("no rung has two seeds, so the design has no noise figure; run a second seed first")
    return known


def _design(sizes: Sequence[ExtendableSize], arm: PairedArm, level: float) -> ArmDesign | None:
    """The design of one arm; None where it has no noise figure of its own seeds."""
    sample, estimate, complete = arm.sample, arm.estimate, arm.pairs.complete
    interval = estimate.interval(level) if estimate and estimate.between in _OF_PAIRS else None
    if estimate is None or interval is None:
        return None
    of_all, variances = pooled_noise(sample.values, sample.cells), []
    for size in sizes:
        here = (complete["rung"] == size.rung).to_numpy(bool) & bool(size.seeds)
        noise = pooled_noise(sample.values[here], sample.cells[here])
        # The noise that few seeds show counts with that of all rungs beside it.
        known = noise.df * noise.sd**2 if noise.df else 0.0
        variances.append((known + _OF_ALL * of_all.sd**2) / (noise.df + _OF_ALL) / size.settings)
    return ArmDesign(
        np.array([size.seeds for size in sizes]),
        np.array(variances),
        np.array([size.settings for size in sizes]),
        Component(estimate.split_error**2, MANY_BLOCKS) if estimate.split_error else None,
        (interval[1] - interval[0]) / 2,
        level,
    )
