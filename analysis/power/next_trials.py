"""The trials that would shorten an interval most for their hours, given the noise that has been seen.

Seeds are added one by one where they shorten the planned interval most per hour. What the test split
contributes no seed reduces, so its part of the variance stays. Plain numbers in, plain numbers out.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import joined, plural
from scalevec.analysis.power.noise_figure import NoiseFigure
from scalevec.analysis.statistics.paired import MANY_BLOCKS
from scalevec.analysis.statistics.planned import planned_halves
from scalevec.analysis.statistics.rung_noise import Component

if TYPE_CHECKING:
    from scalevec.analysis.power.law_at_points import LawAtPoints

Purpose = Literal["difference", "scaling", "prediction"]
PURPOSES: dict[Purpose, str] = {
    "difference": "nats/token, of the mean difference",
    "scaling": "nats/token per decade of compute, of the difference's trend",
    "prediction": "nats/token, of the laws at the points: mean over arms and points",
}
_MOST_STEPS = 500
_NAMED = 4
_MOST_FOR_A_LAW = 10
"""Seeds that a cell is given for a prediction: more of them do not repair a law of the wrong form."""
Seeds = npt.NDArray[np.int_]


@dataclass(frozen=True)
class ExtendableCell:
    """A cell with its ``seeds`` (0 where it is not run yet) and the ``hours`` that one more of them takes."""

    name: str
    n_params: float
    n_tokens: float
    seeds: int
    hours: float
    settings: int = 1
    """Settings that each seed is run in, with random numbers of their own."""


@dataclass(frozen=True)
class NextTrials:
    """What to add: seeds by cell, the hours they take, and half the interval ``before`` and ``after``."""

    purpose: Purpose
    seeds: dict[str, int]
    hours: float
    before: float
    after: float
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
        return (
            f"with {self.hours:.3g} more {hours}: interval +-{self.before:.4f} -> "
            f"+-{self.after:.4f} ({PURPOSES[self.purpose]}); add {joined([*added, *left])}"
        )


def next_trials(
    cells: Sequence[ExtendableCell],
    noise: NoiseFigure,
    hours: float,
    purpose: Purpose = "difference",
    level: float = 0.95,
    laws: "Sequence[LawAtPoints]" = (),
) -> NextTrials:
    """Choose the seeds to add within ``hours``, those first that shorten the interval most per hour.

    Args:
        cells: The design with its seeds; but for a difference also cells without any, which may be added.
        noise: The noise of one pair's difference, and the standard error from the test split.
        hours: What may be spent, in the unit of the cells' hours.
        purpose: The interval that counts.
        level: Its level.
        laws: The laws of the arms for a prediction, which have noise of their own.

    Raises:
        DataError: Hours that are none, or a design without a repeated seed or, for scaling, of one size.
    """
    if not 0 < hours < np.inf:
        raise DataError(f"hours is {hours!r}; allowed: a number above zero")
    candidates = [cell for cell in cells if cell.seeds or purpose != "difference"]
    seeds = np.array([cell.seeds for cell in candidates])
    there, most = seeds, _MOST_STEPS
    if purpose == "prediction":
        most, expected = _MOST_FOR_A_LAW, _half_of_laws(candidates, laws, level)
    else:
        expected = partial(_half, candidates, noise=noise, purpose=purpose, level=level)
    left, before = hours, expected(seeds)
    now = before
    for _ in range(_MOST_STEPS):
        steps = [_one_more(seeds, number) for number in range(len(seeds))]
        costs = [float((step - seeds) @ [cell.hours for cell in candidates]) for step in steps]
        halves = [
            expected(step) if cost <= left and (step - there).max() <= most else np.inf
            for step, cost in zip(steps, costs, strict=True)
        ]
        gains = [(now - half) / max(cost, 1e-12) for half, cost in zip(halves, costs, strict=True)]
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            break
        seeds, now, left = steps[best], halves[best], left - costs[best]
    added = {cell.name: int(new) - cell.seeds for cell, new in zip(candidates, seeds, strict=True)}
    return NextTrials(purpose, added, hours - left, before, now, level)


def _one_more(seeds: Seeds, number: int) -> Seeds:
    """One more seed of a cell; two at once where it has none, as one alone would say nothing of noise."""
    more = seeds.copy()
    more[number] += 1 if seeds[number] else 2
    return more


def _half_of_laws(
    cells: Sequence[ExtendableCell], laws: "Sequence[LawAtPoints]", level: float
) -> Callable[[Seeds], float]:
    """Half the interval of the laws at their points, with seeds beyond those that the cells have."""
    table = pd.DataFrame({"n_params": [c.n_params for c in cells], "n_tokens": [c.n_tokens for c in cells]})
    slopes = [law.slopes_at(table) for law in laws]
    settings, there = (np.array([getattr(cell, name) for cell in cells]) for name in ("settings", "seeds"))

    def half(seeds: Seeds) -> float:
        more = (seeds - there) * settings
        halves = [law.half(of_law, more, level) for law, of_law in zip(laws, slopes, strict=True)]
        return float(np.mean(np.concatenate(halves)))

    return half


def _half(
    cells: Sequence[ExtendableCell],
    seeds: Seeds,
    noise: NoiseFigure,
    purpose: Purpose,
    level: float,
) -> float:
    """Half the interval that is to be expected of a design: the median over draws of its noise."""
    run = [(cell, int(n)) for cell, n in zip(cells, seeds, strict=True) if n]
    weights = _weights([cell for cell, _ in run], purpose)
    parts = [
        Component(float(weight * noise.at(cell.n_params)) ** 2 / (n * cell.settings), (n - 1) * cell.settings)
        for (cell, n), weight in zip(run, weights, strict=True)
    ]
    if not any(part.df for part in parts):
        raise DataError("no rung has two seeds, so the design has no noise figure; run a second seed first")
    # What the text adds to every difference alike is no part of a trend.
    is_mean = purpose == "difference" and noise.split
    split = Component(noise.split**2, MANY_BLOCKS) if is_mean else None
    return float(np.median(planned_halves(parts, level, split)))


def _weights(cells: Sequence[ExtendableCell], purpose: Purpose) -> FloatArray:
    """By which the cells' means are summed: their mean, or their slope over decades of 6 N D."""
    if purpose == "difference":
        return np.full(len(cells), 1 / len(cells))
    decades = np.log10([6 * cell.n_params * cell.n_tokens for cell in cells])
    away = decades - decades.mean()
    if not away.any():
        raise DataError("scaling is asked of a design of one size; it takes a second rung")
    return np.asarray(away / (away @ away))
