"""Tuning: the same grid for every arm, an optimum inside it or a bound, and a choice that stays.

At each tuned rung every arm is trained on the same grid and its own seeds. An optimum at the edge
extends the grid of *all* arms, a limited number of times; then it is censored. The choice is the vertex
of a parabola on the field's axis (``sweeps.axes``), rounded, and larger rungs get it by a power law in N
with a slope that the arms share. Only the validation loss is looked at. Where the file asks for it, a larger
rung waits for the smaller ones and starts with the values around what their law predicts (``larger_rungs``).

Token budgets that could share a trunk (``model.identity``) have one choice, by the mean of losses: with a
learning rate each they would have nothing to share.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from scalevec.model.config import ConfigurationError, ScheduleConfig
from scalevec.orchestrator.tuning import larger_rungs
from scalevec.orchestrator.tuning.choices import (
    CHECKED,
    Choice,
    Predicted,
    carry,
    check_trials,
    checked,
    choice_key,
    edge_text,
    field_name,
    place_text,
    settled,
    sources_of,
    unsearched,
    vertex,
)
from scalevec.orchestrator.tuning.larger_rungs import Grid
from scalevec.sweeps.axes import axis_of, beyond, is_whole
from scalevec.sweeps.expansion.trials import Cell
from scalevec.sweeps.ladders import BUDGETS, setting_name
from scalevec.sweeps.trainers.any_trial import AnyTrial, OwnTrial

Losses = Callable[[AnyTrial], float]
"""The validation loss of a finished trial; infinite where it diverged."""
Train = Callable[[Sequence[tuple[Cell, AnyTrial]]], Losses]
"""Runs what is missing of these trials and says what came out."""
IsDone = Callable[[AnyTrial], bool]
"""Whether a trial has a result: one that nobody asked for may have none."""


@dataclass
class Group:
    """The cells of one rung and setting, and the grid that they share.

    They differ in their arm, and in their token budget where budgets could share a trunk.
    """

    cells: list[Cell]
    grid: Grid
    law: Mapping[str, Predicted]
    """What the smaller rungs predict for a field, where the grid started around it."""
    extensions: int = 0


BUDGET_SETTINGS = tuple(setting_name(kind) for kind in BUDGETS)
Family = tuple[str, str, str, ScheduleConfig]


def family(cell: Cell) -> Family | None:
    """Return a key that cells share which differ only in budget and could share a trunk; None without one."""
    trial = cell.template
    if (trunk := trial.trunk_id()) is None or not isinstance(trial, OwnTrial):
        return None
    return cell.arm, cell.rung, trunk, trial.schedule


def points(grid: Grid) -> list[dict[str, float]]:
    """Return every combination of the values of ``grid``."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


class Tuner:
    """Finds the choices that are missing; ``frozen`` ones are kept as they are.

    ``checked_arms`` are those whose carried learning rate is checked at their largest rung; with
    ``predict_larger`` rungs above two tuned ones start with fewer values; ``say`` is told when a grid is
    extended and what is chosen.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        frozen: Sequence[Choice],
        extend: int,
        checked_arms: Collection[str] = (),
        say: Callable[[str], None] = lambda _: None,
        *,
        predict_larger: bool = False,
    ) -> None:
        self.say = say
        tuned = [cell for cell in cells if cell.tune_grid]
        self.cells = [cell for cell in tuned if cell.tuned_arm == cell.arm]
        cell_at = {(cell.arm, _setting_name(cell)): cell for cell in self.cells}
        self._decided_by = {cell: cell_at[cell.tuned_arm, _setting_name(cell)] for cell in tuned}
        self.extend = extend
        self.to_check = unsearched(self.cells, checked_arms)
        self.choices = {(choice.key, choice.field): choice for choice in frozen}
        self._key = cache(choice_key)
        self._families = {cell: family(cell) for cell in self.cells if cell.tune_seeds}
        self._with_a_law = set(larger_rungs.with_a_law(self.cells)) if predict_larger else set()
        groups = self._groups()
        self.groups = [group for group in groups if not self._waits(group)]
        self.waiting = [group for group in groups if self._waits(group)]
        self._begin()

    def run(self, train: Train, is_done: IsDone = lambda _: True) -> list[Choice]:
        """Train what is missing and return the choices of all cells, tuned rungs first.

        A rung and setting with a trial that is not done stays open, and so does what is carried from it;
        ``is_done`` says which are: all, where all are asked for.
        """
        begun = self.groups
        while begun:
            losses = train([pair for group in begun for pair in self._trials(group)])
            while growing := [group for group in self._done(is_done) if self._extend(group, losses)]:
                losses = train([pair for group in growing for pair in self._trials(group)])
            for group in self._done(is_done):
                fresh = list(filter(self.is_open, group.cells))
                for budgets in self._open_budgets(group):
                    self._keep(tuned_choices(group, budgets, losses))
                self._announce(fresh)
            begun = self._begin()
        self._carry()
        if unchecked := [
            cell for cell in self.to_check if not (self.is_open(cell) or self._is_checked(cell))
        ]:
            losses = train([pair for cell in unchecked for pair in self._check_trials(cell)])
            for cell in unchecked:
                if all(is_done(trial) for _, trial in self._check_trials(cell)):
                    self._keep_check(cell, losses)
        return [choice for cell in self.cells for choice in self.of(cell).values()]

    def require_sources(self) -> None:
        """Raise ``InvalidInputError`` where nothing will ever be chosen from which a rung gets its values."""
        tuned = {(cell.arm, str(cell.setting)) for cell in self.cells if cell.tune_seeds}
        for cell in self.cells:
            if self.is_open(cell) and not cell.tune_seeds and (cell.arm, str(cell.setting)) not in tuned:
                for field in cell.tune_grid:
                    sources_of(cell, field, self._sources(cell, field))

    def predicts(self, cell: Cell) -> bool:
        """Whether the grid of ``cell`` starts around what the law of the smaller rungs predicts."""
        return cell in self._with_a_law

    def _waits(self, group: Group) -> bool:
        """Whether the grid of ``group`` is to start around a prediction: where none of it is chosen yet."""
        return all(map(self.is_open, group.cells)) and not self._with_a_law.isdisjoint(group.cells)

    def _begin(self) -> list[Group]:
        """Give the waiting groups whose smaller rungs are chosen their first values, and return them."""
        begun = [group for group in self.waiting if not self._open_below(group)]
        for group in begun:
            self.waiting.remove(group)
            law = larger_rungs.predicted(
                group.cells,
                lambda cell, field: [c for c in self._sources(cell, field) if c.n_params < cell.n_params],
            )
            grid = larger_rungs.first_grid(group.grid, law)
            if can_be_trained(group.cells, grid):
                group.grid, group.law = grid, law
                self.say(larger_rungs.announced(place_text(group.cells[0]), law, grid))
        self.groups += begun
        return begun

    def _open_below(self, group: Group) -> list[Cell]:
        smaller = [
            other
            for other in self.cells
            if other.tune_seeds and any(larger_rungs.is_smaller(other, cell) for cell in group.cells)
        ]
        return [cell for cell in smaller if self.is_open(cell)]

    def _done(self, is_done: IsDone) -> list[Group]:
        """Return the groups whose trials are all done."""
        return [group for group in self.groups if all(is_done(trial) for _, trial in self._trials(group))]

    def trials(self) -> list[tuple[Cell, AnyTrial]]:
        """Return every tuning trial, on the current grids."""
        return [pair for group in self.groups for pair in self._trials(group)]

    def check_trials(self) -> list[tuple[Cell, AnyTrial]]:
        """Return the trials that check a carried learning rate, as far as they are known yet."""
        return [pair for cell in self.to_check if not self.is_open(cell) for pair in self._check_trials(cell)]

    def _check_trials(self, cell: Cell) -> list[tuple[Cell, AnyTrial]]:
        return [(cell, trial) for trial in check_trials(cell, self.of(cell), self._tuning_seeds(cell))]

    def _is_checked(self, cell: Cell) -> bool:
        choice = self.of(cell)[CHECKED]
        return choice.check is not None or not choice.is_carried

    def _keep_check(self, cell: Cell, losses: Losses) -> None:
        chosen = self.of(cell)
        check = checked(cell, chosen, self._tuning_seeds(cell), losses)
        self.choices[self._key(cell), CHECKED] = replace(chosen[CHECKED], check=check)

    def _tuning_seeds(self, cell: Cell) -> tuple[int, ...]:
        """Return the seeds of the rungs from which the choice for ``cell`` was carried."""
        of_arm = (choice for choice in self._sources(cell, CHECKED) if choice.arm == cell.arm)
        of_file = (other.tune_seeds for other in self.cells if other.tune_seeds)
        return next((choice.seeds for choice in of_arm), next(of_file, ()))

    def _trials(self, group: Group) -> Iterator[tuple[Cell, AnyTrial]]:
        """Yield the trials of ``group``: its grid for open cells, that of the frozen choice for others."""
        for cell in group.cells:
            frozen = {} if self.is_open(cell) else self.of(cell)
            grid = {field: choice.grid for field, choice in frozen.items()} or group.grid
            seeds = next((choice.seeds for choice in frozen.values()), cell.tune_seeds)
            for point, seed in itertools.product(points(grid), seeds):
                yield cell, cell.trial(seed, **point)

    def of(self, cell: Cell) -> dict[str, Choice]:
        """Return the choices for ``cell`` by field, without those still open."""
        if not cell.tune_grid:
            return {}
        key = self._key(self._decided_by[cell])
        chosen = {field: self.choices.get((key, field)) for field in cell.tune_grid}
        return {field: choice for field, choice in chosen.items() if choice is not None}

    def is_open(self, cell: Cell) -> bool:
        """Whether ``cell`` has a tuned field without a choice."""
        return len(self.of(cell)) < len(cell.tune_grid)

    def _open_budgets(self, group: Group) -> list[list[Cell]]:
        """Return the open cells of ``group``, those with a common choice together."""
        budgets: dict[Hashable, list[Cell]] = {}
        for cell in filter(self.is_open, group.cells):
            budgets.setdefault(self._families[cell] or cell, []).append(cell)
        return list(budgets.values())

    def _keep(self, choices: Iterable[Choice]) -> None:
        for choice in choices:
            self.choices.setdefault((choice.key, choice.field), choice)

    def _groups(self) -> list[Group]:
        """Group the tuned cells by rung and setting, with the grid of the file and of frozen choices."""
        tuned = [cell for cell in self.cells if cell.tune_seeds]
        sizes = Counter(self._families[cell] for cell in tuned)
        together = {
            _setting_name(cell): _setting_name(cell, but=BUDGET_SETTINGS)
            for cell in tuned
            if (together_with := self._families[cell]) and sizes[together_with] > 1
        }
        groups: dict[str, Group] = {}
        for cell in tuned:
            name = together.get(_setting_name(cell), _setting_name(cell))
            groups.setdefault(name, Group([], dict(cell.tune_grid), {})).cells.append(cell)
        for group in groups.values():
            frozen = [choice for cell in group.cells for choice in self.of(cell).values() if choice.grid]
            group.law = {choice.field: choice.predicted for choice in frozen if choice.predicted}
            for field in group.law:
                group.grid[field] = ()
            for choice in frozen:
                group.grid[choice.field] = tuple(sorted({*group.grid[choice.field], *choice.grid}))
                group.extensions = max(group.extensions, choice.extensions)
        return list(groups.values())

    def _extend(self, group: Group, losses: Losses) -> bool:
        """Grow the grid by one step where an arm's optimum is at its edge; whether it grew."""
        if group.extensions >= larger_rungs.steps(self.extend, group.law):
            return False
        grown = dict(group.grid)
        for budgets in self._open_budgets(group):
            best = best_point(group, budgets, losses)
            for field, values in group.grid.items():
                if is_without_effect(line_through(group, budgets, best, field, losses)):
                    continue
                wider = {**grown, field: with_next(field, values, best[field], grown[field])}
                added = sorted(set(wider[field]) - set(grown[field]))
                if added and can_be_trained(group.cells, wider):
                    grown = wider
                    self.say(edge_text(budgets[0], field, best[field], values, added[0]))
        if grown == group.grid:
            return False
        group.grid, group.extensions = grown, group.extensions + 1
        return True

    def widen(self) -> None:
        """Make every grid as wide as extensions could still make it, whatever the losses."""
        self.groups += self.waiting
        self.waiting = []
        for group in self.groups:
            while group.extensions < larger_rungs.steps(self.extend, group.law):
                group.extensions += 1
                for field, values in list(group.grid.items()):
                    for edge in (values[0], values[-1]):
                        wider = {**group.grid, field: with_next(field, values, edge, group.grid[field])}
                        group.grid = wider if can_be_trained(group.cells, wider) else group.grid

    def _carry(self) -> None:
        waiting = [cell.setting for cell in self.cells if cell.tune_seeds and self.is_open(cell)]
        fresh = [cell for cell in self.cells if self.is_open(cell) and cell.setting not in waiting]
        for cell in fresh:
            self._keep(
                carry(cell, field, self._sources(cell, field))
                for field in cell.tune_grid
                if field not in self.of(cell)
            )
        self._announce(fresh)

    def _announce(self, cells: Iterable[Cell]) -> None:
        """Say what was just chosen for ``cells``: a line per rung, setting and field."""
        lines: dict[str, list[str]] = {}
        for cell in cells:
            for field, choice in self.of(cell).items():
                value = f"{cell.arm} {choice.chosen:.3g} ({choice.lr_status})"
                lines.setdefault(f"{field_name(field)} at {place_text(cell)}", []).append(value)
        for what, values in lines.items():
            self.say(f"chosen {what}: {', '.join(dict.fromkeys(values))}")

    def _sources(self, cell: Cell, field: str) -> list[Choice]:
        """Return the tuned choices of the same setting, of all arms, as these are called by now."""
        others = ((each.arm, self.of(each).get(field)) for each in self.cells if each.setting == cell.setting)
        return [replace(choice, arm=arm) for arm, choice in others if choice is not None and choice.grid]


def _setting_name(cell: Cell, but: Sequence[str] = ()) -> str:
    setting = {name: value for name, value in cell.setting.items() if name not in but}
    return f"{cell.rung} {sorted(setting.items())}"


def mean_loss(budgets: Sequence[Cell], point: Mapping[str, float], losses: Losses) -> float:
    """Return the mean loss over tuning seeds and ``budgets``; infinite as soon as one trial diverged."""
    values = [losses(cell.trial(seed, **point)) for cell in budgets for seed in cell.tune_seeds]
    return math.fsum(values) / len(values)


def best_point(group: Group, budgets: Sequence[Cell], losses: Losses) -> dict[str, float]:
    """Return the point of least loss for ``budgets``; among equals (all diverged) the smallest values."""
    return min(
        points(group.grid), key=lambda point: (mean_loss(budgets, point, losses), tuple(point.values()))
    )


def with_next(
    field: str, values: Sequence[float], best: float, grown: tuple[float, ...]
) -> tuple[float, ...]:
    """Return ``grown`` with the next value where ``best`` is at an edge of ``values``, where allowed."""
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


def line_through(
    group: Group, budgets: Sequence[Cell], best: Mapping[str, float], field: str, losses: Losses
) -> list[float]:
    """Return the mean losses along the grid of ``field``, the other fields at their ``best``."""
    return [mean_loss(budgets, {**best, field: value}, losses) for value in group.grid[field]]


def is_without_effect(line: Sequence[float]) -> bool:
    """Whether a field changes nothing, as one of the scale vectors in an arm that has none."""
    return len(set(line)) == 1 and math.isfinite(line[0])


def tuned_choices(group: Group, budgets: Sequence[Cell], losses: Losses) -> Iterator[Choice]:
    """Yield the choice of every tuned field for each of ``budgets``, on the line through the best point."""
    best = best_point(group, budgets, losses)
    for field, values in group.grid.items():
        line = line_through(group, budgets, best, field, losses)
        index = values.index(best[field])
        axis = axis_of(field, values)
        inside = 0 < index < len(values) - 1
        peak = vertex(values[index - 1 : index + 2], line[index - 1 : index + 2], axis) if inside else None
        chosen = (
            best[field] if peak is None else settled(field, axis, peak, values, whole=is_whole(field, values))
        )
        ends = beyond(field, values, best[field]) is None
        is_bracketed = inside or ends or is_without_effect(line)
        is_tuned = is_bracketed and math.isfinite(line[index])
        for cell in budgets:
            yield replace(
                Choice.at(cell, field, axis, chosen, "tuned" if is_tuned else "censored"),
                grid=tuple(values),
                losses=tuple(loss if math.isfinite(loss) else None for loss in line),
                seeds=cell.tune_seeds,
                vertex=peak,
                extensions=group.extensions,
                predicted=group.law.get(field),
            )
