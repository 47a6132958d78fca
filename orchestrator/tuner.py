"""Tuning: the same grid for every arm, an optimum inside it or a bound, and a choice that stays.

At each tuned rung every arm is trained on the same grid and its own seeds. An optimum at the edge
extends the grid of *all* arms, a limited number of times; then it is censored. The choice is the vertex
of a parabola in the logarithm of the field, rounded, and larger rungs get it by a power law in N with a
slope that the arms share. Only the validation loss is looked at.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from model.config import Trial
from model.identity import digest, semantic_fields
from sweeps.expand import Cell

ROUNDING = 4
"""Choices are rounded to powers of 2^(1/4)."""

Losses = Mapping[str, float]
"""Validation loss by trial id; infinite where the trial diverged."""


@dataclass(frozen=True)
class Choice:
    """The frozen value of one tuned field for one arm at one rung, with what it was chosen from.

    ``key`` identifies the arm's trial without the tuned fields and the seed. ``losses`` are mean
    validation losses over ``seeds`` along ``grid`` (None where a seed diverged); where several fields are
    tuned, along the line through the best cell. ``status`` is tuned, censored, carried or fixed.
    """

    key: str
    arm: str
    rung: str
    n_params: int
    setting: dict[str, Any]
    field: str
    grid: tuple[float, ...]
    losses: tuple[float | None, ...]
    seeds: tuple[int, ...]
    vertex: float | None
    chosen: float
    status: str
    extensions: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Choice":
        """The inverse of :meth:`to_dict`."""
        sequences = {name: tuple(values[name]) for name in ("grid", "losses", "seeds")}
        return cls(**{**values, **sequences})


@dataclass
class Group:
    """The cells of one rung and setting, which differ in their arm only, and the grid that they share."""

    cells: list[Cell]
    grid: dict[str, tuple[float, ...]]
    seeds: tuple[int, ...]
    extensions: int = 0

    def points(self) -> Iterator[dict[str, float]]:
        """Every combination of the tuned fields' values."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))

    def trials(self) -> Iterator[tuple[Cell, Trial]]:
        """Every tuning trial of the group."""
        for cell, point, seed in itertools.product(self.cells, list(self.points()), self.seeds):
            yield cell, cell.trial(seed, **point)


def choice_key(cell: Cell, fields: Iterable[str]) -> str:
    """What a choice belongs to: the trial of ``cell`` with the tuned ``fields`` and the seed left open."""
    semantic = semantic_fields(cell.trial(0, **dict.fromkeys(fields, 1.0)))
    return digest({**semantic, "seed": None, "tuned": sorted(fields)})


def groups(cells: Sequence[Cell], frozen: Mapping[str, list[Choice]]) -> list[Group]:
    """The tuned cells by rung and setting, on the grid of their file or the one that froze with them."""
    found: dict[str, Group] = {}
    for cell in cells:
        if not cell.tune_seeds:
            continue
        name = f"{cell.rung} {sorted(cell.setting.items(), key=str)}"
        group = found.setdefault(name, Group([], dict(cell.tune_grid), cell.tune_seeds))
        group.cells.append(cell)
        for choice in frozen.get(choice_key(cell, cell.tune_grid), []):
            if choice.grid:
                group.grid[choice.field] = tuple(sorted({*group.grid[choice.field], *choice.grid}))
                group.extensions = max(group.extensions, choice.extensions)
    return list(found.values())


def mean_loss(group: Group, cell: Cell, point: Mapping[str, float], losses: Losses, name: Callable[[Trial], str]) -> float:
    """Mean over the tuning seeds; infinite as soon as one seed diverged."""
    found = [losses[name(cell.trial(seed, **point))] for seed in group.seeds]
    return math.fsum(found) / len(found)
