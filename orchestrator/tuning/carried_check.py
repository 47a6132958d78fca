"""The check of a carried learning rate: one step to each side, where a mistake would cost most.

That is the largest rung, of the reference arm first of all: were its rate wrong there, the arms would look
better than they are. With ``check_carried: all`` every arm is checked. The check changes no choice; it says
whether the carried one is kept inside, and if not, by how much the better side is better. Then the rate is
censored there: nothing is called better than a censored reference, and no censored arm is called worse.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.tuning.choices import CarriedCheck, CheckStatus, Choice, vertex
from scalevec.sweeps.axes import LOG
from scalevec.sweeps.expansion.trials import Cell
from scalevec.sweeps.trainers.any_trial import AnyTrial

if TYPE_CHECKING:
    from scalevec.sweeps.sections.schema import Sweep

FIELD = "learning_rate"
RATES, CENTRE = 3, 1
"""How many rates are tried, and the index of the carried one."""


def largest(cells: Sequence[Cell], arms: Collection[str]) -> list[Cell]:
    """Return the cells of ``arms`` at their largest rung, one per setting, if nothing is tuned there."""
    by_setting: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        name = cell.arm, str(sorted(cell.setting.items()))
        if cell.arm in arms and (name not in by_setting or cell.n_params > by_setting[name].n_params):
            by_setting[name] = cell
    return [cell for cell in by_setting.values() if not cell.tune_seeds]


def grid(cell: Cell, choice: Choice) -> tuple[float, ...]:
    """Return the carried value and its two neighbours, one mean (geometric) step of the tuning grid away."""
    if choice.check is not None:
        return choice.check.grid
    tried = cell.tune_grid[FIELD]
    step = (tried[-1] / tried[0]) ** (1 / (len(tried) - 1))
    return choice.chosen / step, choice.chosen, choice.chosen * step


def trials(cell: Cell, chosen: Mapping[str, Choice], seeds: Sequence[int]) -> list[AnyTrial]:
    """Return the trials of the check: other tuned fields as chosen, on the ``seeds`` of the tuning."""
    kept = chosen[FIELD].check
    seeds = seeds if kept is None else kept.seeds
    values: dict[str, Any] = {field: choice.chosen for field, choice in chosen.items()}
    rates = grid(cell, chosen[FIELD])
    return [cell.trial(seed, **{**values, FIELD: rate}) for rate in rates for seed in seeds]


def check(
    cell: Cell, chosen: Mapping[str, Choice], seeds: Sequence[int], losses: Callable[[AnyTrial], float]
) -> CarriedCheck:
    """Evaluate the trials of the check."""
    validation = [losses(trial) for trial in trials(cell, chosen, seeds)]
    rates = grid(cell, chosen[FIELD])
    parts = [validation[index * len(seeds) : (index + 1) * len(seeds)] for index in range(len(rates))]
    means = [math.fsum(part) / len(part) for part in parts]
    best = min(range(len(rates)), key=lambda index: (means[index], index != CENTRE))
    inside = best == CENTRE
    gain = means[CENTRE] - means[best] if math.isfinite(means[CENTRE]) else None
    return CarriedCheck(
        grid=rates,
        losses=tuple(mean if math.isfinite(mean) else None for mean in means),
        seeds=tuple(seeds),
        vertex=vertex(rates, means, LOG) if inside else None,
        status=_status(best, means[best]),
        gain=gain,
    )


def _status(best: int, loss: float) -> CheckStatus:
    sides: tuple[CheckStatus, ...] = ("below", "inside", "above")
    return sides[best] if math.isfinite(loss) else "diverged"


def arms_of(sweep: "Sweep") -> list[str]:
    """The arms whose carried learning rate is checked."""
    asked = sweep.tune.check_carried if sweep.tune else False
    return list(sweep.arms) if asked == "all" else [sweep.reference] if asked else []
