"""Tuning: the same grid for every arm, an optimum inside it or a bound, and a choice that stays.

At each tuned rung every arm is trained on the same grid and its own seeds. An optimum at the edge
extends the grid of *all* arms, a limited number of times; then it is censored. The choice is the vertex
of a parabola on the field's axis (``sweeps.axes``), rounded, and larger rungs get it by a power law in N
with a slope that the arms share. Only the validation loss is looked at.

Token budgets that could share a trunk (``model.trunks``) have one choice, by the mean of their losses: with a
learning rate each they would have nothing to share.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from model.config import ConfigurationError, ScheduleConfig, Trial
from model.trunks import trunk_id
from orchestrator import carried
from orchestrator.choices import Choice, carry, choice_key, settled, vertex
from sweeps import Cell
from sweeps.axes import axis_of, beyond
from sweeps.budgets import BUDGETS, setting_name

Losses = Callable[[Trial], float]
"""The validation loss of a finished trial; infinite where it diverged."""
Train = Callable[[Sequence[tuple[Cell, Trial]]], Losses]
"""Runs what is missing of these trials and says what came out."""
Grid = dict[str, tuple[float, ...]]


@dataclass
class Group:
    """The cells of one rung and setting, and the grid that they share.

    They differ in their arm, and in their token budget where budgets could share a trunk.
    """

    cells: list[Cell]
    grid: Grid
    extensions: int = 0


BUDGET_SETTINGS = tuple(setting_name(kind) for kind in BUDGETS)
Family = tuple[str, str, str, ScheduleConfig]


def family(cell: Cell) -> Family | None:
    """What the cells have in common that differ in their budget and could share a trunk; None without one."""
    trunk = trunk_id(cell.template)
    return None if trunk is None else (cell.arm, cell.rung, trunk, cell.template.schedule)


def points(grid: Grid) -> list[dict[str, float]]:
    """Every combination of the values of ``grid``."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


class Tuner:
    """Finds the choices that are missing; ``frozen`` ones are kept as they are.

    ``checked_arm`` is the arm whose carried learning rate is checked at its largest rung, if any.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        frozen: Sequence[Choice],
        extend: int,
        checked_arm: str | None = None,
    ) -> None:
        self.cells = [cell for cell in cells if cell.tune_grid]
        self.extend = extend
        self.to_check = carried.largest(self.cells, checked_arm)
        self.choices = {(choice.key, choice.field): choice for choice in frozen}
        self._keys: dict[int, tuple[Cell, str]] = {}
        self._families = {id(cell): family(cell) for cell in self.cells if cell.tune_seeds}
        self.groups = self._groups()

    def run(self, train: Train) -> list[Choice]:
        """All choices of the sweep's cells, tuned rungs first; trains what that needs."""
        losses = train(self.trials())
        while growing := [group for group in self.groups if self._extend(group, losses)]:
            losses = train([pair for group in growing for pair in self._trials(group)])
        for group in self.groups:
            for budgets in self._open_budgets(group):
                for cell in budgets:
                    self._keep(tuned_choices(group, cell, budgets, losses))
        self._carry()
        if unchecked := [cell for cell in self.to_check if not self._is_checked(cell)]:
            losses = train([pair for cell in unchecked for pair in self._check_trials(cell)])
            for cell in unchecked:
                self._keep_check(cell, losses)
        return [choice for cell in self.cells for choice in self.of(cell).values()]

    def trials(self) -> list[tuple[Cell, Trial]]:
        """Every tuning trial, on the grids as they are now."""
        return [pair for group in self.groups for pair in self._trials(group)]

    def check_trials(self) -> list[tuple[Cell, Trial]]:
        """The trials that check a carried learning rate, as far as they can be named yet."""
        return [pair for cell in self.to_check if not self.is_open(cell) for pair in self._check_trials(cell)]

    def _check_trials(self, cell: Cell) -> list[tuple[Cell, Trial]]:
        return [(cell, trial) for trial in carried.trials(cell, self.of(cell), self._tuning_seeds(cell))]

    def _is_checked(self, cell: Cell) -> bool:
        choice = self.of(cell)[carried.FIELD]
        return choice.check is not None or not choice.is_carried

    def _keep_check(self, cell: Cell, losses: Losses) -> None:
        made = self.of(cell)
        check = carried.check(cell, made, self._tuning_seeds(cell), losses)
        self.choices[self._key(cell), carried.FIELD] = replace(made[carried.FIELD], check=check)

    def _tuning_seeds(self, cell: Cell) -> tuple[int, ...]:
        """The seeds of the rungs from which the choice for ``cell`` was carried."""
        own = (choice for choice in self._sources(cell, carried.FIELD) if choice.arm == cell.arm)
        return next((choice.seeds for choice in own), ())

    def _trials(self, group: Group) -> Iterator[tuple[Cell, Trial]]:
        """What ``group`` trains: its grid for open cells; for frozen ones what their choice was made from."""
        for cell in group.cells:
            frozen = {} if self.is_open(cell) else self.of(cell)
            grid = {field: choice.grid for field, choice in frozen.items()} or group.grid
            seeds = next((choice.seeds for choice in frozen.values()), cell.tune_seeds)
            for point, seed in itertools.product(points(grid), seeds):
                yield cell, cell.trial(seed, **point)

    def of(self, cell: Cell) -> dict[str, Choice]:
        """The choices for ``cell`` by field; those that are not made yet are missing."""
        if not cell.tune_grid:
            return {}
        key = self._key(cell)
        found = {field: self.choices.get((key, field)) for field in cell.tune_grid}
        return {field: choice for field, choice in found.items() if choice is not None}

    def _key(self, cell: Cell) -> str:
        """The cell's key, reckoned once."""
        if id(cell) not in self._keys:
            # The cell is kept beside its key, so that no other takes its place.
            self._keys[id(cell)] = (cell, choice_key(cell))
        return self._keys[id(cell)][1]

    def is_open(self, cell: Cell) -> bool:
        """Whether ``cell`` has a tuned field without a choice."""
        return len(self.of(cell)) < len(cell.tune_grid)

    def _open(self, group: Group) -> list[Cell]:
        return [cell for cell in group.cells if self.is_open(cell)]

    def _open_budgets(self, group: Group) -> list[list[Cell]]:
        """The open cells of ``group``, those together that have one choice."""
        found: dict[Hashable, list[Cell]] = {}
        for cell in self._open(group):
            found.setdefault(self._families[id(cell)] or id(cell), []).append(cell)
        return list(found.values())

    def _keep(self, choices: Iterable[Choice]) -> None:
        for choice in choices:
            self.choices.setdefault((choice.key, choice.field), choice)

    def _groups(self) -> list[Group]:
        """The tuned cells by rung and setting, on the grid of the file or the one that froze with them."""
        tuned = [cell for cell in self.cells if cell.tune_seeds]
        sizes = Counter(self._families[id(cell)] for cell in tuned)
        together = {
            _place(cell): _place(cell, but=BUDGET_SETTINGS)
            for cell in tuned
            if (own := self._families[id(cell)]) and sizes[own] > 1
        }
        found: dict[str, Group] = {}
        for cell in tuned:
            name = together.get(_place(cell), _place(cell))
            found.setdefault(name, Group([], dict(cell.tune_grid))).cells.append(cell)
        for group in found.values():
            frozen = [choice for cell in group.cells for choice in self.of(cell).values() if choice.grid]
            for choice in frozen:
                group.grid[choice.field] = tuple(sorted({*group.grid[choice.field], *choice.grid}))
                group.extensions = max(group.extensions, choice.extensions)
        return list(found.values())

    def _extend(self, group: Group, losses: Losses) -> bool:
        """Grow the grid by one step where an arm's optimum is at its edge; whether it grew."""
        if group.extensions >= self.extend:
            return False
        grown = dict(group.grid)
        for budgets in self._open_budgets(group):
            best, _ = best_point(group, budgets, losses)
            for field, values in group.grid.items():
                wider = {**grown, field: with_next(field, values, best[field], grown[field])}
                grown = wider if can_be_trained(group.cells, wider) else grown
        if grown == group.grid:
            return False
        group.grid, group.extensions = grown, group.extensions + 1
        return True

    def widen(self) -> None:
        """Make every grid as wide as extensions could still make it, whatever the losses."""
        for group in self.groups:
            while group.extensions < self.extend:
                group.extensions += 1
                for field, values in list(group.grid.items()):
                    for edge in (values[0], values[-1]):
                        wider = {**group.grid, field: with_next(field, values, edge, group.grid[field])}
                        group.grid = wider if can_be_trained(group.cells, wider) else group.grid

    def _carry(self) -> None:
        for cell in self.cells:
            for field in cell.tune_grid:
                if (self._key(cell), field) not in self.choices:
                    self._keep([carry(cell, field, self._sources(cell, field))])

    def _sources(self, cell: Cell, field: str) -> list[Choice]:
        """The tuned choices of the same setting, of all arms."""
        others = (self.of(other).get(field) for other in self.cells if other.setting == cell.setting)
        return [choice for choice in others if choice is not None and choice.grid]


def _place(cell: Cell, but: Sequence[str] = ()) -> str:
    setting = {name: value for name, value in cell.setting.items() if name not in but}
    return f"{cell.rung} {sorted(setting.items())}"


def mean_loss(budgets: Sequence[Cell], point: Mapping[str, float], losses: Losses) -> float:
    """Mean over the tuning seeds of all ``budgets``; infinite as soon as one trial diverged."""
    found = [losses(cell.trial(seed, **point)) for cell in budgets for seed in cell.tune_seeds]
    return math.fsum(found) / len(found)


def best_point(group: Group, budgets: Sequence[Cell], losses: Losses) -> tuple[dict[str, float], float]:
    """The point of least loss for ``budgets``; of equals (all diverged) the smallest values."""
    scored = [
        (mean_loss(budgets, point, losses), tuple(point.values()), point) for point in points(group.grid)
    ]
    loss, _, point = min(scored, key=lambda entry: entry[:2])
    return point, loss


def with_next(
    field: str, values: Sequence[float], best: float, grown: tuple[float, ...]
) -> tuple[float, ...]:
    """``grown`` with the next value where ``best`` is at an edge of ``values``, if the field goes further."""
    further = beyond(field, values, best) if best in (values[0], values[-1]) else None
    return grown if further is None else tuple(sorted({*grown, further}))


def can_be_trained(cells: Iterable[Cell], grid: Grid) -> bool:
    """Whether every point of ``grid`` is a trial of every one of ``cells``."""
    try:
        for cell, point in itertools.product(cells, points(grid)):
            cell.trial(0, **point)
    except ConfigurationError:
        return False
    return True


def tuned_choices(group: Group, cell: Cell, budgets: Sequence[Cell], losses: Losses) -> list[Choice]:
    """The choice of every tuned field of ``cell``, one of ``budgets``, on the line through the best point."""
    best, _ = best_point(group, budgets, losses)
    return [_tuned_choice(group, cell, budgets, field, best, losses) for field in group.grid]


def _tuned_choice(
    group: Group, cell: Cell, budgets: Sequence[Cell], field: str, best: dict[str, float], losses: Losses
) -> Choice:
    values = group.grid[field]
    line = [mean_loss(budgets, {**best, field: value}, losses) for value in values]
    place = values.index(best[field])
    axis = axis_of(field, values)
    inside = 0 < place < len(values) - 1
    peak = vertex(values[place - 1 : place + 2], line[place - 1 : place + 2], axis) if inside else None
    is_bracketed = inside or beyond(field, values, best[field]) is None
    return Choice(
        key=choice_key(cell),
        arm=cell.arm,
        rung=cell.rung,
        n_params=cell.n_params,
        setting=dict(cell.setting),
        field=field,
        grid=tuple(values),
        losses=tuple(loss if math.isfinite(loss) else None for loss in line),
        seeds=cell.tune_seeds,
        vertex=peak,
        chosen=best[field] if peak is None else settled(field, axis, peak, values),
        status="tuned" if is_bracketed and math.isfinite(line[place]) else "censored",
        extensions=group.extensions,
        axis=axis,
    )
