"""From the reference to the last arm in steps, each arm's difference beside that of the arm before it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import FigureInput
from scalevec.analysis.figures.panels import Drawing, name_lines
from scalevec.analysis.figures.style import font_points, ink
from scalevec.analysis.formatting import loss_name, percent, signed, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_steps(data: FigureInput) -> Drawing:
    """Draw a bar for each arm, in their order, from the mean difference of the arm above it to its own.

    Raises :class:`DataError` where fewer than two arms have a mean difference to the reference.
    """
    arms = [each for each in data.compared() if each.loss_difference.mean is not None]
    if len(arms) < 2:
        raise DataError("one arm is no series of steps: the figure differences shows it")
    options = data.trials.options
    unit = f" ({name})" if (name := unit_of(options.y, options.unit)) else ""
    return Drawing(
        {("", ""): lambda axis: _draw(axis, arms, data)},
        (f"mean loss difference to {data.trials.reference}{unit}", ""),
        f"Mean difference of the {loss_name(options.y, options.unit)} to {data.trials.reference} over all "
        "rungs; below zero is better. A bar goes from the arm above it to its own arm, the number is that "
        f"step. Lines: {percent(options.level)} t interval of the arm's difference to "
        f"{data.trials.reference}, not of the step. --order chooses the order of the steps.",
        {},
        height=0.3 * (len(arms) + 1) + 0.4,
    )


def _draw(axis: "Axes", arms: Sequence[Comparison], data: FigureInput) -> None:
    ends = [0.0, *(float(each.loss_difference.mean or 0.0) for each in arms)]
    axis.axvline(0, color=ink(), linewidth=0.8)
    for y, (each, (before, after)) in enumerate(zip(arms, pairwise(ends), strict=True), start=1):
        colour = data.styles[each.arm].color
        axis.plot([before] * 2, [y - 1.3, y + 0.3], color="grey", linewidth=0.6)
        axis.barh(y, after - before, 0.6, left=before, color=colour, alpha=0.45, linewidth=0)
        interval = each.loss_difference.interval or (after, after)
        axis.plot(interval, [y] * 2, linewidth=1.2, color=colour)
        axis.plot(after, y, "d", markersize=5, color=colour)
        at = (max(before, after, *interval), y)
        size = font_points("legend.fontsize")
        axis.annotate(
            signed(after - before), at, (5, 0), textcoords="offset points", va="center", fontsize=size
        )
    low, high = axis.get_xlim()
    axis.set_xlim(low, high + 0.25 * (high - low))  # room for the numbers
    name_lines(axis, [data.trials.reference, *(each.arm for each in arms)])
