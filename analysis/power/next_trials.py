"""The trials that would shorten an interval most for their hours, given the noise that has been seen.

Seeds are added where they shorten the expected interval most per hour: one of a size, or of all sizes that
share their seeds. What intervals are expected says :func:`halves_of_pairs` or :func:`halves_of_laws`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.comparison.differences import PairedArm
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import joined, plural
from scalevec.analysis.power.law_at_points import LawAtPoints
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.more_seeds import MoreSeeds
from scalevec.analysis.statistics.sample import PairedSample

Purpose = Literal["difference", "scaling", "prediction"]
PURPOSES: dict[Purpose, str] = {
    "difference": "nats/token, of the mean difference",
    "scaling": "nats/token per decade of compute, of the difference's trend",
    "prediction": "nats/token, of the laws at the points",
}
_NAMED = 4
_MOST_SEEDS = 100
_MOST_FOR_A_LAW = 10
"""Seeds that a size is given for a prediction: more of them do not repair a law of the wrong form."""
Seeds = npt.NDArray[np.int_]
_OF_PAIRS = ("", "seeds of clusters", "whole seeds")
"""What the noise of an interval is between, where further seeds shorten it."""


@dataclass(frozen=True)
class ExtendableSize:
    """A rung and budget with its ``seeds`` (0 where it is not run yet) and the ``hours`` of one more of them.

    A seed is run in all arms and ``settings`` of the size.
    """

    name: str
    rung: str
    n_params: float
    n_tokens: float
    seeds: int
    hours: float
    settings: int = 1


@dataclass(frozen=True)
class Halves:
    """Half of the interval of each arm: ``now``, and as it is ``expected`` with seeds added [sizes].

    ``together`` are the sizes that share their seeds, of which one may be added to all at once.
    """

    now: Mapping[str, float]
    expected: Callable[[Seeds], FloatArray]
    together: Sequence[Sequence[int]] = ()
    most: int = _MOST_SEEDS


@dataclass(frozen=True)
class NextTrials:
    """What to add: seeds by size, the hours they take, half the interval ``before`` and ``after``."""

    purpose: Purpose
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
            f"+-{self.after:.4f} ({PURPOSES[self.purpose]}{of_arms}); add {joined([*added, *left])}"
        )


def next_trials(
    sizes: Sequence[ExtendableSize], halves: Halves, hours: float, purpose: Purpose, level: float = 0.95
) -> NextTrials:
    """Choose the seeds to add within ``hours``, those first that shorten the interval most per hour.

    Args:
        sizes: The design with its seeds, and sizes without any, which may be added.
        halves: The intervals that count, whose mean over arms is shortened.
        hours: What may be spent, in the unit of the sizes' hours.
        purpose: What the intervals are of.
        level: Their level.

    Raises:
        DataError: Hours that are none.
    """
    if not 0 < hours < np.inf:
        raise DataError(f"hours is {hours!r}; allowed: a number above zero")
    alone = [(number,) for number in range(len(sizes))]
    steps = [_step(sizes, numbers) for numbers in (*alone, *halves.together)]
    costs = np.array([size.hours for size in sizes])
    added, now = np.zeros(len(sizes), int), float(np.mean(halves.expected(np.zeros(len(sizes), int))))
    while True:
        left = hours - added @ costs
        # A new size takes two seeds at first, as one alone would say nothing of noise.
        larger = [added + np.where(added > 0, np.minimum(step, 1), step) for step in steps]
        larger = [more for more in larger if more.max() <= halves.most and (more - added) @ costs <= left]
        expected = [float(np.mean(halves.expected(more))) for more in larger]
        gains = [
            (now - half) / max((more - added) @ costs, 1e-12)
            for more, half in zip(larger, expected, strict=True)
        ]
        if not gains or max(gains) <= 0:
            break
        best = int(np.argmax(gains))
        added, now = larger[best], expected[best]
    after = dict(zip(halves.now, halves.expected(added).tolist(), strict=True))
    arms = {arm: (half, after[arm] if added.any() else half) for arm, half in halves.now.items()}
    before, afterwards = (float(np.mean(each)) for each in zip(*arms.values(), strict=True))
    seeds = {size.name: int(more) for size, more in zip(sizes, added, strict=True)}
    return NextTrials(purpose, seeds, float(added @ costs), before, afterwards, arms, level)


def _step(sizes: Sequence[ExtendableSize], numbers: Sequence[int]) -> Seeds:
    step = np.zeros(len(sizes), int)
    step[list(numbers)] = [1 if sizes[number].seeds else 2 for number in numbers]
    return step


def halves_of_laws(sizes: Sequence[ExtendableSize], laws: Sequence[LawAtPoints], level: float) -> Halves:
    """Half the interval of each arm's law, as the mean over its points."""
    table = pd.DataFrame({"n_params": [s.n_params for s in sizes], "n_tokens": [s.n_tokens for s in sizes]})
    settings = np.array([size.settings for size in sizes])
    slopes: dict[str, list[tuple[LawAtPoints, FloatArray]]] = {}
    for law in laws:
        slopes.setdefault(law.fitted.data.arm, []).append((law, law.slopes_at(table)))

    def expected(added: Seeds) -> FloatArray:
        halves = [[law.half(at, added * settings, level) for law, at in of_arm] for of_arm in slopes.values()]
        return np.array([np.mean(np.concatenate(of_arm)) for of_arm in halves])

    now = dict(zip(slopes, expected(np.zeros(len(sizes), int)).tolist(), strict=True))
    return Halves(now, expected, most=_MOST_FOR_A_LAW)


def halves_of_pairs(sizes: Sequence[ExtendableSize], trials: ComparedTrials, is_trend: bool) -> Halves:
    """Half the interval of each arm's mean difference, or of its trend, as :func:`compare` gives it.

    Sizes that are not run yet are weighed for a trend only: they would change what the mean is of.

    Raises:
        DataError: No arm with a repeated seed or, for a trend, one size.
    """
    arms = [trials.paired(arm) for arm in trials.others]
    designs = {
        arm.arm: design for arm in arms for design in [_design(sizes, arm, is_trend, trials)] if design
    }
    if not designs:
        raise DataError("no rung has two seeds, so the design has no noise figure; run a second seed first")

    def expected(added: Seeds) -> FloatArray:
        return np.array([design.half(added) for design in designs.values()])

    together = dict.fromkeys(group for design in designs.values() for group in design.together())
    return Halves({name: design.now for name, design in designs.items()}, expected, tuple(together))


@dataclass(frozen=True, eq=False)
class _ArmDesign:
    """One arm's pairs: the size of each cell [cells], -1 where it is none, and half the interval now."""

    of_cell: Seeds
    pairs: MoreSeeds
    now: float
    level: float

    def half(self, added: Seeds) -> float:
        """The half that is expected with seeds ``added`` [sizes]."""
        return self.pairs.half(np.append(added, 0)[self.of_cell], self.level)

    def together(self) -> list[tuple[int, ...]]:
        """The sizes that share their seeds."""
        component = self.pairs.clusters[2]
        groups = [np.unique(self.of_cell[component == label]).tolist() for label in np.unique(component)]
        return [tuple(group) for group in groups if len(group) > 1 and min(group) >= 0]


def _design(
    sizes: Sequence[ExtendableSize], arm: PairedArm, is_trend: bool, trials: ComparedTrials
) -> _ArmDesign | None:
    """The design of one arm; None where it has no noise figure of its own seeds."""
    level, numbers = arm.level(trials.options.level), _size_of_cell(sizes, arm)
    pairs, estimate = MoreSeeds(arm.sample), arm.estimate
    if is_trend and estimate is not None:
        decades = np.log10(arm.pairs.complete["compute_reference"].to_numpy(float))
        estimate = inference.slope(arm.sample, decades)
        if estimate is None:
            raise DataError("scaling is asked of a design of one size; it takes a second rung")
        pairs, numbers = _with_new_sizes(sizes, arm.sample, decades, numbers)
    interval = estimate.interval(level) if estimate and estimate.between in _OF_PAIRS else None
    return _ArmDesign(numbers, pairs, (interval[1] - interval[0]) / 2, level) if interval else None


def _size_of_cell(sizes: Sequence[ExtendableSize], arm: PairedArm) -> Seeds:
    """The number of the size of each of the arm's cells [cells], -1 where it is none of ``sizes``."""
    numbers = {(size.rung, int(size.n_tokens)): number for number, size in enumerate(sizes) if size.seeds}
    first = np.unique(arm.sample.cells, return_index=True)[1]
    places = arm.pairs.complete[["rung", "n_tokens"]].iloc[first].itertuples(index=False, name=None)
    return np.array([numbers.get((str(rung), int(tokens)), -1) for rung, tokens in places], int)


def _with_new_sizes(
    sizes: Sequence[ExtendableSize], sample: PairedSample, decades: FloatArray, numbers: Seeds
) -> tuple[MoreSeeds, Seeds]:
    """The pairs along ``decades`` [pairs] of compute, and the sizes of their cells, new ones included."""
    new = [number for number, size in enumerate(sizes) if not size.seeds for _ in range(size.settings)]
    nominal, at = np.log10([size.n_params * size.n_tokens for size in sizes]), sample.means(decades)
    # New sizes stand as far from those that were run as their N D says.
    away = float(np.mean((at - nominal[numbers])[numbers >= 0]))
    names = tuple(sizes[number].name for number in new)
    return MoreSeeds(sample, names, np.append(at, nominal[new] + away)), np.append(numbers, new).astype(int)
