"""Where the choices in tuning.json were made otherwise than the sweep file asks by now."""

from collections.abc import Iterator, Sequence

from orchestrator.choices import Choice
from orchestrator.tuner import Tuner
from sweeps import Cell

SHOWN = 3


def outdated(tuner: Tuner) -> list[str]:
    """A warning where a frozen choice does not follow from the file, empty where all do."""
    found = list(dict.fromkeys(text for cell in tuner.cells for text in _differences(cell, tuner)))
    if not found:
        return []
    shown = "; ".join(found[:SHOWN]) + (f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
    return [
        f"the chosen values are kept as they were made, and the file has changed since: {shown}. "
        "scalevec run --retune chooses anew; what is trained already is not trained again"
    ]


def _differences(cell: Cell, tuner: Tuner) -> Iterator[str]:
    for field, choice in tuner.of(cell).items():
        at = f"{field} at {cell.rung}"
        if choice.is_carried and cell.tune_seeds:
            yield f"{at} was carried and is now to be tuned"
        elif not choice.is_carried and not cell.tune_seeds:
            yield f"{at} was tuned and is now to be carried"
        elif cell.tune_seeds:
            yield from _otherwise_tuned(at, choice, cell.tune_grid[field], cell.tune_seeds)


def _otherwise_tuned(at: str, choice: Choice, grid: Sequence[float], seeds: Sequence[int]) -> Iterator[str]:
    untried = [value for value in grid if value not in choice.grid]
    if untried:
        yield f"{at} was tuned without {', '.join(f'{value:g}' for value in untried)}"
    if set(seeds) != set(choice.seeds):
        yield f"{at} was tuned with seeds {', '.join(map(str, choice.seeds))}"
