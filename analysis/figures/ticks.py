"""Ticks: round numbers and powers of ten, as many as a panel has room for."""

from typing import TYPE_CHECKING, Any

import numpy as np

from scalevec.analysis.formatting import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES_OF_TICK = {"x": 0.52, "y": 0.3}
"""What one number on an axis takes with the space beside it."""


def _room(axis: Any) -> int:
    """Return for how many numbers an axis has room, from the share of its panel in the figure."""
    axes = axis.axes
    grid = axes.get_subplotspec().get_gridspec()
    width, height = axes.figure.get_size_inches()
    inches = width / grid.ncols if axis.axis_name == "x" else height / grid.nrows
    return max(2, int(0.8 * inches / INCHES_OF_TICK[axis.axis_name]))


def _span(axis: Any) -> tuple[float, float]:
    """Return the ends of an axis."""
    low, high = axis.axes.get_xlim() if axis.axis_name == "x" else axis.axes.get_ylim()
    return float(min(low, high)), float(max(low, high))


def _powers(value: float, _position: object = None) -> str:
    """Return a tick of a logarithmic axis, 3x10^11 in superscripts."""
    # Not mathtext, which is off because names of arms may hold dollars.
    exponent = int(np.floor(np.log10(value) + 1e-9))
    digits = value / 10.0**exponent
    raised = f"10{str(exponent).translate(str.maketrans('0123456789-', '⁰¹²³⁴⁵⁶⁷⁸⁹⁻'))}"
    return raised if abs(digits - 1) < 1e-6 else f"{digits:.2g}×{raised}"


def log_ticks(axis: Any) -> None:
    """Set the ticks of a logarithmic axis: 1, 2, 5 in each decade, fewer where there is no room."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = _span(axis)
    most = _room(axis)
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    every = [[d * 10.0**k for k in decades for d in digits] for digits in ((1, 2, 5), (1, 3), (1,))]
    inside = [[value for value in values if low <= value <= high] for values in every]
    ticks = next((values for values in inside if len(values) <= most), inside[-1])
    if len(ticks) < 2:  # a range between two powers of ten
        ticks = next((values for values in reversed(inside) if len(values) > 1), ticks)
    step = -(-len(ticks) // most)
    axis.set_major_locator(FixedLocator(ticks[::step]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_powers))


def log_log_ticks(axes: "Axes") -> None:
    """Set powers of ten along the horizontal axis and round losses along the vertical one."""
    log_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)


def token_ticks(axes: "Axes") -> None:
    """Set counts (100k, 1.2M) on the horizontal axis, round numbers on the vertical one."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(min(4, _room(axes.xaxis))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
    plain_ticks(axes.yaxis)


def plain_ticks(axis: Any) -> None:
    """Set round numbers with the same number of decimals, also on a logarithmic axis."""
    from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter

    axis.set_major_locator(MaxNLocator(min(5, _room(axis)), steps=[1, 2, 5, 10], min_n_ticks=3))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(ScalarFormatter(useOffset=False))
