"""A sweep file that has changed since its fields were tuned: the choices stay, and a person is told."""

from collections.abc import Iterator, Sequence

from scalevec.orchestrator.tuning.choices import Choice
from scalevec.orchestrator.tuning.tuner import Tuner
from scalevec.sweeps.expansion.trials import Cell

SHOWN = 3
"""Changes of the sweep file that a warning names."""


def outdated(tuner: Tuner) -> list[str]:
    """Return a warning where frozen choices do not follow from the sweep file any more, else nothing."""
    changes = list(dict.fromkeys(text for cell in tuner.cells for text in _differences(cell, tuner)))
    if not changes:
        return []
    shown = "; ".join(changes[:SHOWN])
    more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    return [
        f"tuning.json is frozen, but the sweep file has changed since: {shown}{more}. "
        "`scalevec run --retune` chooses again; finished trials are not retrained"
    ]


def _differences(cell: Cell, tuner: Tuner) -> Iterator[str]:
    for field, choice in tuner.of(cell).items():
        at = f"{field} at {cell.rung}"
        if choice.is_carried and cell.tune_seeds:
            yield f"{at} was carried and is now to be tuned"
        elif not choice.is_carried and not cell.tune_seeds:
            yield f"{at} was tuned and is now to be carried"
        elif cell.tune_seeds:
            grid = () if choice.predicted and tuner.predicts(cell) else cell.tune_grid[field]
            yield from _otherwise_tuned(at, choice, grid, cell.tune_seeds)


def _otherwise_tuned(at: str, choice: Choice, grid: Sequence[float], seeds: Sequence[int]) -> Iterator[str]:
    untried = [value for value in grid if value not in choice.grid]
    if untried:
        yield f"{at} was tuned without {', '.join(f'{value:g}' for value in untried)}"
    if set(seeds) != set(choice.seeds):
        yield f"{at} was tuned with seeds {', '.join(map(str, choice.seeds))}"
