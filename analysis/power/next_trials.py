"""What to do next: the verdict's own reason first, then the seeds that shorten an interval most.

What intervals are expected with seeds more says :func:`halves_of_pairs`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from scalevec.analysis.comparison.differences import PairedArm
from scalevec.analysis.comparison.fairness import Line, bounds_of, statuses
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.comparison.verdict import Evidence, Judgement
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import joined, plural
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.noise import pooled_noise
from scalevec.analysis.statistics.paired import MANY_BLOCKS, slope_coefficients
from scalevec.analysis.statistics.rung_noise import Component, satterthwaite

Purpose = Literal["difference", "scaling"]
PURPOSES: dict[Purpose, str] = {
    "difference": "nats/token, of the mean difference",
    "scaling": "nats/token per decade of compute, of the difference's trend",
}
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

    ``spread`` [sizes] is what one seed of each adds to the error.
    """

    now: Mapping[str, float]
    expected: Callable[[Seeds], FloatArray]
    spread: FloatArray


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
    """Choose the seeds to add within ``hours`` that shorten the interval most.

    Seeds in proportion to noise over the root of cost (Neyman 1934), an even addition and none at all are
    each improved by moving single seeds; the best of them counts.

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
    costs, new = np.array([size.hours for size in sizes]), np.array([not size.seeds for size in sizes])
    shares = [np.zeros(len(sizes)), np.ones(len(sizes)), halves.spread / np.sqrt(np.maximum(costs, 1e-12))]
    search = _Search(halves, costs, new, hours)
    ends = [search.improved(search.start(share)) for share in shares]
    added, _ = min(ends, key=lambda end: (end[1], float(end[0] @ costs)))
    after = dict(zip(halves.now, halves.expected(added).tolist(), strict=True))
    arms = {arm: (half, after[arm] if added.any() else half) for arm, half in halves.now.items()}
    before, afterwards = (float(np.mean(each)) for each in zip(*arms.values(), strict=True))
    seeds = {size.name: int(more) for size, more in zip(sizes, added, strict=True)}
    return NextTrials(purpose, seeds, float(added @ costs), before, afterwards, arms, level)


@dataclass(frozen=True, eq=False)
class _Search:
    """A local search over seeds to add, at ``costs`` [sizes] and at most ``hours`` in all."""

    halves: Halves
    costs: FloatArray
    new: npt.NDArray[np.bool_]
    """Which sizes have no seed: they take two at first, as one alone says nothing of noise [sizes]."""
    hours: float

    def start(self, share: FloatArray) -> Seeds:
        """As many seeds in proportion to ``share`` [sizes] as the hours buy."""
        cost = float(share @ self.costs)
        whole = np.floor(share * self.hours / cost) if cost else share
        added = np.minimum(whole, _MOST_SEEDS).astype(int)
        return np.where(self.new & (added == 1), 0, added)

    def improved(self, added: Seeds) -> tuple[Seeds, float]:
        """``added`` after every move of seeds that shortens the mean interval, and that interval."""
        half = self.half(added)
        while True:
            moves = [(self.half(moved), float(moved @ self.costs), moved) for moved in self._moves(added)]
            best = min(moves, key=lambda move: move[:2], default=None)
            if best is None or best[0] > half * (1 - SMALLEST_GAIN):
                return added, half
            half, _, added = best

    def half(self, added: Seeds) -> float:
        """The mean of the expected intervals' halves over the arms."""
        return float(np.mean(self.halves.expected(added)))

    def _moves(self, added: Seeds) -> Iterator[Seeds]:
        """One size more, or one more and another less, as far as the hours go."""
        step = np.eye(len(added), dtype=int) * np.where(self.new & (added == 0), 2, 1)
        less = np.eye(len(added), dtype=int) * np.where(self.new & (added == 2), 2, 1)
        none = np.zeros(len(added), int)
        takes = [none, *(less[number] for number in np.flatnonzero(added))]
        for more, taken in itertools.product((*step, step.sum(axis=0)), takes):
            moved = added + more - taken
            if moved.min() >= 0 and moved.max() <= _MOST_SEEDS and moved @ self.costs <= self.hours:
                yield moved


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

    spread = np.sqrt(np.mean([design.variances for design in designs.values()], axis=0))
    return Halves({name: design.now for name, design in designs.items()}, expected, spread)


@dataclass(frozen=True, eq=False)
class _ArmDesign:
    """One arm's noise at each size, and half the interval that it has ``now``.

    ``variances`` [sizes] are of a size's mean with one seed, ``freedom`` [sizes] the degrees of freedom of
    each seed more. ``places`` [sizes] are log10 C for a trend, None for a mean. ``split`` is the test
    split's part of the error.
    """

    seeds: Seeds
    variances: FloatArray
    freedom: Seeds
    places: FloatArray | None
    split: Component | None
    now: float
    level: float

    def half(self, added: Seeds) -> float:
        """The half that is expected with seeds ``added`` [sizes], on the scale of the present one."""
        present = self._expected(np.zeros_like(added))
        return self.now * self._expected(added) / present if np.isfinite(present) else self._expected(added)

    def _expected(self, added: Seeds) -> float:
        counts = self.seeds + added
        used = counts > 1
        coefficients = np.full(int(used.sum()), 1 / max(used.sum(), 1))
        if self.places is not None:
            slope = slope_coefficients(self.places[used]) if used.sum() > 1 else None
            if slope is None:
                return float("inf")
            coefficients = slope
        parts = [
            Component(float(weight**2 * variance / count), int(freedom * (count - 1)))
            for weight, variance, count, freedom in zip(
                coefficients, self.variances[used], counts[used], self.freedom[used], strict=True
            )
        ]
        error = satterthwaite([*parts, *([self.split] if self.split else [])])
        return error.half(self.level) if parts else float("inf")


def _design(
    sizes: Sequence[ExtendableSize], arm: PairedArm, is_trend: bool, trials: ComparedTrials
) -> _ArmDesign | None:
    """The design of one arm; None where it has no noise figure of its own seeds."""
    level, sample, estimate = arm.level(trials.options.level), arm.sample, arm.estimate
    complete = arm.pairs.complete
    if is_trend and estimate is not None:
        decades = np.log10(complete["compute_reference"].to_numpy(float))[arm.keep]
        estimate = inference.slope(sample.kept(arm.keep), decades)
        if estimate is None:
            raise DataError("scaling is asked of a design of one size; it takes a second rung")
    interval = estimate.interval(level) if estimate and estimate.between in _OF_PAIRS else None
    if estimate is None or interval is None:
        return None
    of_all = pooled_noise(sample.values, sample.cells)
    variances, freedom, seeds = np.full(len(sizes), of_all.sd**2), np.ones(len(sizes), int), []
    for number, size in enumerate(sizes):
        here = (complete["rung"] == size.rung).to_numpy(bool) & bool(size.seeds)
        noise = pooled_noise(sample.values[here], sample.cells[here]) if here.any() else of_all
        # The noise that few seeds show counts with that of all rungs beside it.
        known = noise.df * noise.sd**2 if noise.df else 0.0
        variances[number] = (known + _OF_ALL * of_all.sd**2) / (noise.df + _OF_ALL) / size.settings
        freedom[number] = size.settings
        seeds.append(size.seeds)
    places = np.log10([size.n_params * size.n_tokens for size in sizes]) if is_trend else None
    split = Component(estimate.split_error**2, MANY_BLOCKS) if estimate.split_error else None
    now = (interval[1] - interval[0]) / 2
    return _ArmDesign(np.array(seeds), variances, freedom, places, split, now, level)


def first_of(family: Sequence[tuple[Evidence, Judgement]], withheld: Sequence[str]) -> list[Line]:
    """What stands before more seeds, by what the verdicts themselves give as their reasons.

    Args:
        family: The evidence and the verdict of each arm.
        withheld: Why each arm has no multiplier, empty where it has one.
    """
    lines: list[Line] = []
    for (evidence, _), law in zip(family, withheld, strict=True):
        pairs, bounds = evidence.pairs, bounds_of(evidence.pairs)
        sides = (("reference", evidence.reference, bounds.reference), ("arm", evidence.arm, bounds.arm))
        rungs = pairs.complete["rung"].astype(str)
        for side, name, is_bound in sides:
            status = statuses(pairs, side)
            for code, chosen, words in (
                ("extend", status == "censored", "extend the grid of {}"),
                ("tune", (status == "fixed") & is_bound, "tune {}"),
                ("tune", status == "carried", "tune {}, whose rate is carried,"),
            ):
                if chosen.any():
                    where = joined(list(dict.fromkeys(rungs[chosen])))
                    lines.append(Line(code, f"{words.format(name)} at {where}"))
        lines += [
            Line("second_seed", f"a second seed of {evidence.arm} at {size.name}, which is one run")
            for size in evidence.sizes
            if size.one_run and len(evidence.judged) < len(evidence.sizes)
        ]
        if "misses" in law:
            lines.append(Line("size", f"a size more for {evidence.arm}: {law}"))
    return list(dict.fromkeys(lines))
