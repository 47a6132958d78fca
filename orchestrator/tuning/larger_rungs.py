"""Tuning that costs less: a grid that starts with three values around what the smaller rungs predict.

A law needs two rungs, so the two smallest get the whole grid. An optimum at the edge extends the three as it
extends a whole grid, and as far: what the whole grid would have bracketed is never censored.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from scalevec.orchestrator.tuning.choices import Choice, Predicted, carry, settled
from scalevec.sweeps.axes import LINEAR, axis_of, beyond, is_whole, position_on, value_at
from scalevec.sweeps.expansion.trials import Cell

START = 3
"""Values of a field with which a larger rung starts, where the file gives as many."""
LAW_NEEDS = 2
"""Rungs with the whole grid."""
Grid = dict[str, tuple[float, ...]]
Sources = Callable[[Cell, str], Sequence[Choice]]
"""The tuned choices of a field that a cell's law may use."""


def with_a_law(cells: Iterable[Cell]) -> list[Cell]:
    """Return those of the tuned ``cells`` whose setting has as many smaller tuned rungs as a law needs."""
    tuned = [cell for cell in cells if cell.tune_seeds]
    sizes: defaultdict[str, set[int]] = defaultdict(set)
    for cell in tuned:
        sizes[str(cell.setting)].add(cell.n_params)
    return [cell for cell in tuned if cell.n_params in sorted(sizes[str(cell.setting)])[LAW_NEEDS:]]


def is_smaller(cell: Cell, than: Cell) -> bool:
    """Whether ``cell`` is at a smaller rung of the same setting."""
    return cell.setting == than.setting and cell.n_params < than.n_params


def predicted(cells: Sequence[Cell], sources: Sources) -> dict[str, Predicted]:
    """Return for each tuned field where the law of the smaller rungs puts the optimum: of all arms the mean.

    It is kept inside the grid of the file. Arms that were tuned at no smaller rung have none; a field of
    which there is none, or that the file gives fewer values than three, is not there.
    """
    optima: dict[str, Predicted] = {}
    for field, whole in cells[0].tune_grid.items():
        smaller = [(cell, sources(cell, field)) for cell in cells]
        values = [
            carry(cell, field, choices).chosen
            for cell, choices in smaller
            if any(choice.arm == cell.arm for choice in choices)
        ]
        if values and len(whole) >= START:
            axis = axis_of(field, (*whole, *values))
            mean = value_at(axis, math.fsum(position_on(axis, value) for value in values) / len(values))
            centre = settled(field, axis, mean, whole, whole=is_whole(field, whole))
            optima[field] = Predicted(min(max(centre, whole[0]), whole[-1]), tuple(map(float, whole)))
    return optima


def first_grid(whole: Mapping[str, Sequence[float]], law: Mapping[str, Predicted]) -> Grid:
    """Return for each field the prediction with one mean step of the grid to each side."""
    return {
        field: _around(field, values, law[field].value) if field in law else tuple(values)
        for field, values in whole.items()
    }


def _around(field: str, whole: Sequence[float], centre: float) -> tuple[float, ...]:
    axis = axis_of(field, (*whole, centre))
    if axis == LINEAR or is_whole(field, whole):
        return _among(field, whole, centre)
    ends = position_on(axis, whole[0]), position_on(axis, whole[-1])
    step, at = (ends[1] - ends[0]) / (len(whole) - 1), position_on(axis, centre)
    return value_at(axis, at - step), centre, value_at(axis, at + step)


def _among(field: str, whole: Sequence[float], centre: float) -> tuple[float, ...]:
    """Return three values of the grid, or one beyond it, of a field that is counted or has a zero."""
    ends = (beyond(field, whole, whole[0]), beyond(field, whole, whole[-1]))
    values = sorted({*whole, *(end for end in ends if end is not None)})
    nearest = min(whole, key=lambda value: abs(value - centre))
    first = min(max(values.index(nearest) - 1, 0), len(values) - START)
    return tuple(values[first : first + START])


def n_points(whole: Mapping[str, Sequence[float]]) -> int:
    """Return with how many points of the grid a larger rung starts."""
    return math.prod(min(START, len(values)) for values in whole.values())


def steps(extend: int, law: Mapping[str, Predicted]) -> int:
    """Return how often such a grid may grow: through the whole one, and ``extend`` times beyond."""
    return extend + max((len(optimum.whole) - START + 1 for optimum in law.values()), default=0)


def announced(rung: str, law: Mapping[str, Predicted], grid: Mapping[str, Sequence[float]]) -> str:
    """Return what a person is told of the values with which ``rung`` starts."""
    starts = (
        f"{field.replace('_', ' ')} near {optimum.value:.3g}: the grid of all arms starts with "
        + ", ".join(f"{value:.3g}" for value in grid[field])
        for field, optimum in law.items()
    )
    return f"tuning {rung}: the smaller rungs predict {'; '.join(starts)}"
