"""The check of a carried learning rate: a step to each side, where a mistake would cost most.

That is the largest rung, of the reference arm first of all: were its rate wrong there, the arms would look
better than they are. With ``check_carried: all`` every arm is checked. Where a side is better, the next rate
beyond it is tried, as often as a grid may be extended, and the best of all is chosen. If that lies at the
edge, the rate is censored: nothing is called better than a censored reference, and no censored arm is called
worse. Where trials were compared at the carried rate before, it stays, and the check says what it found.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.tuning.choices import (
    CHECKED_VALUES,
    CarriedCheck,
    CheckStatus,
    Choice,
    IsDone,
    Losses,
    Train,
    vertex,
)
from scalevec.sweeps.axes import LOG, beyond
from scalevec.sweeps.expansion.trials import Cell
from scalevec.sweeps.trainers.any_trial import AnyTrial

if TYPE_CHECKING:
    from scalevec.sweeps.sections.schema import Sweep

FIELD = "learning_rate"
Rates = tuple[float, ...]


def arms_of(sweep: "Sweep") -> list[str]:
    """The arms whose carried learning rate is checked."""
    asked = sweep.tune.check_carried if sweep.tune else False
    return list(sweep.arms) if asked == "all" else [sweep.reference] if asked else []


def largest(cells: Sequence[Cell], arms: Collection[str]) -> list[Cell]:
    """Return the cells of ``arms`` at their largest rung, one per setting, if nothing is tuned there."""
    by_setting: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        name = cell.arm, str(sorted(cell.setting.items()))
        if cell.arm in arms and (name not in by_setting or cell.n_params > by_setting[name].n_params):
            by_setting[name] = cell
    return [cell for cell in by_setting.values() if not cell.tune_seeds]


class CarriedChecks:
    """The checks of ``cells``, and the rates that each has come to.

    ``choices`` gives the choices of a cell by field, ``seeds`` those its check is trained on; no check goes
    more than ``extend`` steps further. ``say`` is told when one does, and when it changes a rate.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        choices: Callable[[Cell], Mapping[str, Choice]],
        seeds: Callable[[Cell], tuple[int, ...]],
        extend: int,
        say: Callable[[str], None],
    ) -> None:
        self.cells, self.extend, self.say = cells, extend, say
        self._choices, self._seeds = choices, seeds
        self._rates: dict[Cell, Rates] = {}

    def trials(self, cell: Cell) -> list[tuple[Cell, AnyTrial]]:
        """Return the trials of the check: other tuned fields as chosen, on the seeds of the tuning."""
        chosen = self._choices(cell)
        kept = chosen[FIELD].check
        seeds = self._seeds(cell) if kept is None else kept.seeds
        values: dict[str, Any] = {field: choice.chosen for field, choice in chosen.items()}
        return [
            (cell, cell.trial(seed, **{**values, FIELD: rate})) for rate in self.rates(cell) for seed in seeds
        ]

    def rates(self, cell: Cell) -> Rates:
        """Return the rates that are tried: the carried one, a mean step of the grid to each side, and on."""
        choice = self._choices(cell)[FIELD]
        if choice.check is not None:
            return choice.check.grid
        tried = cell.tune_grid[FIELD]
        step = (tried[-1] / tried[0]) ** (1 / (len(tried) - 1))
        return self._rates.get(cell, (choice.chosen / step, choice.chosen, choice.chosen * step))

    def run(
        self, cells: Sequence[Cell], train: Train, is_done: IsDone | None, fixed: Collection[Cell]
    ) -> Iterator[Choice]:
        """Train the checks of ``cells`` and yield the choices of those that are done.

        The ``fixed`` ones keep their rate whatever is found.
        """
        while cells:
            losses = train([pair for cell in cells for pair in self.trials(cell)])
            going_on = []
            for cell in cells:
                if is_done is not None and not all(is_done(trial) for _, trial in self.trials(cell)):
                    continue
                choice = self._choices(cell)[FIELD]
                check = check_of(
                    choice.chosen, self.rates(cell), self._losses(cell, losses), self._seeds(cell)
                )
                if cell in fixed:
                    yield replace(choice, check=check)
                elif further := self._further(check):
                    self._rates[cell] = further
                    going_on.append(cell)
                    self.say(f"{_where(choice)} {_better(check)}: {_added(further, check):.3g} is tried too")
                else:
                    yield self._moved(choice, check)
            cells = going_on

    def _losses(self, cell: Cell, losses: Losses) -> list[list[float]]:
        validation, n = [losses(trial) for _, trial in self.trials(cell)], len(self._seeds(cell))
        return [validation[start : start + n] for start in range(0, len(validation), n)]

    def _further(self, check: CarriedCheck) -> Rates | None:
        """The rates of ``check`` and one more beyond its better side; None where it ends here."""
        if check.status not in ("below", "above") or len(check.grid) - CHECKED_VALUES >= self.extend:
            return None
        added = beyond(FIELD, check.grid, check.grid[0 if check.status == "below" else -1])
        return None if added is None else tuple(sorted({*check.grid, added}))

    def _moved(self, choice: Choice, check: CarriedCheck) -> Choice:
        """``choice`` at the best rate of its ``check``."""
        if check.gain == 0 or check.status == "diverged":
            return replace(choice, check=check)
        self.say(f"{_where(choice)} {_better(check)}: it is chosen")
        return replace(choice, chosen=check.best, check=replace(check, carried=choice.chosen))


def check_of(
    carried: float, rates: Rates, losses: Sequence[Sequence[float]], seeds: Sequence[int]
) -> CarriedCheck:
    """What the ``losses`` of each of ``rates`` by seed say of the ``carried`` one."""
    means = [math.fsum(of_rate) / len(of_rate) for of_rate in losses]
    centre = rates.index(carried)
    best = min(range(len(rates)), key=lambda index: (means[index], index != centre))
    status, around = _status(best, means), slice(best - 1, best + 2)
    return CarriedCheck(
        grid=rates,
        losses=tuple(mean if math.isfinite(mean) else None for mean in means),
        seeds=tuple(seeds),
        vertex=vertex(rates[around], means[around], LOG) if status == "inside" else None,
        status=status,
        gain=means[centre] - means[best] if math.isfinite(means[centre]) else None,
    )


def _status(best: int, means: Sequence[float]) -> CheckStatus:
    if not math.isfinite(means[best]):
        return "diverged"
    return "below" if best == 0 else "above" if best == len(means) - 1 else "inside"


def sharing_a_trunk(cells: Sequence[Cell], family: Callable[[Cell], Any]) -> set[Cell]:
    """The ``cells`` whose token budgets share a trunk, which they could not at rates of their own."""
    sizes = Counter(family(cell) for cell in cells)
    return {cell for cell in cells if family(cell) is not None and sizes[family(cell)] > 1}


def _where(choice: Choice) -> str:
    return f"check of the carried learning rate at {choice.rung}: of {choice.arm}"


def _better(check: CarriedCheck) -> str:
    return f"{check.best:.3g} is better" + ("" if check.gain is None else f" by {check.gain:.4f}")


def _added(further: Rates, check: CarriedCheck) -> float:
    return next(rate for rate in further if rate not in check.grid)
