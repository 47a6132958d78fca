"""What tuning tells a person of a place and of a grid that grows."""

from collections.abc import Sequence

from scalevec.sweeps.expansion.trials import Cell


def place_text(cell: Cell) -> str:
    """Return the rung with its setting, as shown to a person."""
    values = (f"{value:g}" if isinstance(value, float) else str(value) for value in cell.setting.values())
    return " ".join((cell.rung, *values))


def field_name(field: str) -> str:
    """Return the field as words."""
    return field.replace("_", " ")


def edge_text(cell: Cell, field: str, best: float, values: Sequence[float], added: float) -> str:
    """Return the announcement that a grid is extended by ``added``, as the best of an arm is at its edge."""
    return (
        f"tuning {place_text(cell)}: best {field_name(field)} of {cell.arm} at the edge ({best:.3g} of "
        f"{values[0]:.3g}..{values[-1]:.3g}): grid of all arms gets {added:.3g}"
    )
