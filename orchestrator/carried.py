"""The check of a carried learning rate: one step to each side, where a mistake would cost most.

That is the reference arm at the largest rung: were its rate wrong there, the arms would look better than
they are. The check changes no choice; it says whether the carried one is kept inside, and if not, by how much
the better side is better. Then the rate is censored there, and nothing is called better than the reference.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from model.config import Trial
from orchestrator.choices import Check, Choice, vertex
from sweeps import Cell
from sweeps.axes import LOG

FIELD = "learning_rate"
RATES, CENTRE = 3, 1
"""How many rates are tried, and the carried one's place among them."""


def largest(cells: Sequence[Cell], arm: str | None) -> list[Cell]:
    """The cells of ``arm`` at its largest rung, one for each setting, where nothing is tuned there."""
    found: dict[str, Cell] = {}
    for cell in cells:
        name = str(sorted(cell.setting.items()))
        if cell.arm == arm and (name not in found or cell.n_params > found[name].n_params):
            found[name] = cell
    return [cell for cell in found.values() if not cell.tune_seeds]


def grid(cell: Cell, choice: Choice) -> tuple[float, ...]:
    """The carried value between its neighbours: a step is the mean one of the tuning grid, a factor."""
    if choice.check is not None:
        return choice.check.grid
    tried = cell.tune_grid[FIELD]
    step = (tried[-1] / tried[0]) ** (1 / (len(tried) - 1))
    return choice.chosen / step, choice.chosen, choice.chosen * step


def trials(cell: Cell, made: Mapping[str, Choice], seeds: Sequence[int]) -> list[Trial]:
    """The trials of the check: other tuned fields as they were chosen, the tuning's own ``seeds``."""
    kept = made[FIELD].check
    seeds = seeds if kept is None else kept.seeds
    values: dict[str, Any] = {field: choice.chosen for field, choice in made.items()}
    rates = grid(cell, made[FIELD])
    return [cell.trial(seed, **{**values, FIELD: rate}) for rate in rates for seed in seeds]


def check(
    cell: Cell, made: Mapping[str, Choice], seeds: Sequence[int], losses: Callable[[Trial], float]
) -> Check:
    """What the trials of the check came to."""
    found = [losses(trial) for trial in trials(cell, made, seeds)]
    rates = grid(cell, made[FIELD])
    parts = [found[place * len(seeds) : (place + 1) * len(seeds)] for place in range(len(rates))]
    means = [math.fsum(part) / len(part) for part in parts]
    best = min(range(len(rates)), key=lambda place: (means[place], place != CENTRE))
    inside = best == CENTRE
    gain = means[CENTRE] - means[best] if math.isfinite(means[CENTRE]) else None
    return Check(
        grid=rates,
        losses=tuple(mean if math.isfinite(mean) else None for mean in means),
        seeds=tuple(seeds),
        vertex=vertex(rates, means, LOG) if inside else None,
        status=_status(best, means[best]),
        gain=gain,
    )


def _status(best: int, loss: float) -> str:
    if not math.isfinite(loss):
        return "diverged"
    return ("below", "inside", "above")[best]
