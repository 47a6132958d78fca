"""Panels in a grid with shared axes, on as many pages as their height asks for, with one legend below."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.style import LETTER, ArmStyle, Medium, font_points, round_ticks, title, wrapped

Key = tuple[str, str]
"""The row and the column of a panel; either may be empty."""
Panel = Callable[[Axes], None]
"""Draws a panel on axes of matplotlib."""
Grid = list[list[Key]]
"""The panels of a page."""
MOST_INCHES = 9.0
"""Of a figure's height: what is more goes onto further pages."""
AROUND = 1.0
"""Inches of a page for what stands around the panels: titles, axes, a line of the legend."""
LEGEND_HANDLE, LEGEND_LINE = 5.0, 1.5
"""Of a legend, in em: an entry without its text, and a line."""
LEGEND_COLUMNS = 6


@dataclass(frozen=True)
class Drawing:
    """A figure: its panels, and its caption for a reader who sees nothing else."""

    panels: Mapping[Key, Panel]
    labels: tuple[str, str]
    """Of the horizontal and of the vertical axis; the first is empty where panels name their own."""
    caption: str
    legend: Mapping[str, ArmStyle]
    height: float = 2.3
    """Of a panel in inches on the page of a report."""
    share: tuple[Literal["all", "none"], Literal["all", "row", "none"]] = ("all", "all")
    """Which panels share the horizontal and the vertical axis."""
    ratios: tuple[float, ...] = ()
    """The heights of rows that differ in what they show; then the name of a row is that of its axis."""

    def names(self, key: Key) -> tuple[str, str]:
        """Return the title of a panel and the name of its vertical axis."""
        return (key[1], key[0]) if self.ratios else (", ".join(filter(None, key)), self.labels[1])


def on_linear_axes(drawing: Drawing) -> Drawing:
    """Return the same figure with both axes linear."""

    def linear(panel: Panel, axis: Axes) -> None:
        panel(axis)
        axis.set(xscale="linear", yscale="linear")

    return replace(drawing, panels={key: partial(linear, panel) for key, panel in drawing.panels.items()})


def layout(drawing: Drawing, medium: Medium) -> list[Grid]:
    """Return the panels of each page."""
    keys = list(drawing.panels)
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*keys, strict=True))
    if drawing.ratios:
        return [
            [[(row, column) for column in some] for row in rows]
            for some in paged(columns, medium.most_columns)
        ]
    n_columns = len(columns) if len(rows) > 1 and len(columns) > 1 else len(keys)
    width = -(-n_columns // -(-n_columns // medium.most_columns))
    most_rows = max(1, int((MOST_INCHES / medium.squeeze - AROUND) / drawing.height))
    firsts = paged(range(0, len(keys), width), most_rows)
    return [[keys[first : first + width] for first in of_page] for of_page in firsts]


def page(drawing: Drawing, grid: Grid, medium: Medium) -> Figure:
    """Return the figure of a page of :func:`layout`."""
    n_rows, n_columns = len(grid), len(grid[0])
    width = medium.widths[n_columns > 1]
    height = round((drawing.height * (sum(drawing.ratios) or n_rows) + AROUND) * medium.squeeze, 1)
    figure = Figure(figsize=(width, min(height, MOST_INCHES)), layout="constrained")
    sharex, sharey = drawing.share
    heights = drawing.ratios or None
    axes = figure.subplots(
        n_rows, n_columns, squeeze=False, sharex=sharex, sharey=sharey, height_ratios=heights
    )
    letter = LETTER * font_points("axes.labelsize")
    for at, axis in np.ndenumerate(axes):
        row, column = at
        key = grid[row][column] if column < len(grid[row]) else None
        if key is None or key not in drawing.panels:
            axis.set_axis_off()
            continue
        drawing.panels[key](axis)
        name, label = drawing.names(key)
        if row == 0 or not drawing.ratios:
            axis.set_title(title(name, width / n_columns - 0.3))
        if column == 0 and (drawing.ratios or axes.size == 1):
            axis.set_ylabel(label if drawing.ratios else wrapped(label, height - 0.6, letter))
    for of_column in axes.T:
        lowest = [axis for axis in of_column if axis.axison][-1]
        lowest.tick_params(labelbottom=True)
        across = lowest.get_xlabel() or drawing.labels[0]
        label = wrapped(across, width / n_columns - 0.2, letter)
        is_wider = _is_wider_than_panel(label, lowest, width / n_columns)
        lowest.set_xlabel(label, loc="right" if is_wider else "center")
    if axes.size > 1 and not drawing.ratios:
        figure.supylabel(wrapped(drawing.labels[1], height - 0.4, letter), fontsize="medium")
    _legend_below(figure, drawing.legend)
    round_ticks(list(axes.flat))
    return figure


def draw_on(axes: Any, drawing: Drawing) -> None:
    """Draw the panels on somebody's own ``axes``; raise :class:`DataError` unless there is one for each."""
    given = np.ravel(axes)
    if len(given) != len(drawing.panels):
        raise DataError(
            f"the figure has {len(drawing.panels)} panels, and {len(given)} axes are given: give one for "
            "each panel, or choose by where what is drawn"
        )
    for axis, (key, draw) in zip(given, drawing.panels.items(), strict=True):
        draw(axis)
        name, label = drawing.names(key)
        axis.set(title=name, ylabel=label, xlabel=axis.get_xlabel() or drawing.labels[0])
    round_ticks(list(given))
    if drawing.legend:
        given[0].legend(*_handles(drawing.legend))


def paged(names: Iterable[Any], most: int) -> list[list[Any]]:
    """Return ``names`` in their order, about as many on each page, at most ``most``."""
    every = list(names)
    n_pages = max(1, -(-len(every) // most))
    return [[every[at] for at in part] for part in np.array_split(np.arange(len(every)), n_pages)]


def name_lines(axis: Axes, names: Sequence[str]) -> None:
    """Name the lines of a panel, the first at its top."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)


def _is_wider_than_panel(label: str, axis: Axes, inches: float) -> bool:
    """Return whether ``label`` is wider than what the names of lines leave of a column of ``inches``."""
    if not isinstance(axis.yaxis.get_major_locator(), FixedLocator):
        return False
    names = [tick.get_text() for tick in axis.get_yticklabels()]
    return _inches([label], "axes.labelsize") > inches - _inches(names, "ytick.labelsize")


def _inches(texts: Iterable[str], font: Literal["axes.labelsize", "ytick.labelsize"]) -> float:
    """Return about how wide the longest line of ``texts`` is."""
    letters = max((len(line) for text in texts for line in text.split("\n")), default=0)
    return letters * LETTER * font_points(font) / 72


def _handles(arms: Mapping[str, ArmStyle]) -> tuple[list[Any], list[str]]:
    """Return handles and labels of a legend that shows every arm with its marker and its dash."""
    handles = [
        Line2D([], [], color=style.color, marker=style.marker, linestyle=style.dash)
        for style in arms.values()
    ]
    # Matplotlib skips names with a leading underscore.
    return handles, [f" {name}" if name.startswith("_") else name for name in arms]


def _legend_below(figure: Figure, arms: Mapping[str, ArmStyle]) -> None:
    """Add one legend below all panels, as wide as they are; the figure grows by its further rows."""
    if not arms:
        return
    width, height = figure.get_size_inches()
    em = font_points("legend.fontsize") / 72
    entry = em * (LEGEND_HANDLE + LETTER * max(map(len, arms)))
    columns = max(1, int(min(LEGEND_COLUMNS, len(arms), width / entry)))
    lines = -(-len(arms) // columns)
    figure.set_size_inches(width, min(round(height + LEGEND_LINE * em * (lines - 1), 1), MOST_INCHES))
    figure.legend(*_handles(arms), loc="outside lower center", ncols=columns)
