"""Panels in a grid with shared axes, on as many pages as their height asks for, with one legend below."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.figures.figure_input import Drawing, FigureInput
from scalevec.analysis.figures.points import name_points
from scalevec.analysis.figures.style import LETTER, ArmStyle, Medium, font_points, label_of, title, wrapped
from scalevec.analysis.figures.ticks import plain_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Key = tuple[str, str]
"""The row and the column of a panel; either may be empty."""
Content = TypeVar("Content")
MOST_INCHES = 9.0
"""Of a figure's height: what is more goes onto further pages."""
ROOM = 1.4
"""Inches of a page for what stands around the panels: names, axes, a legend of some lines."""
LEGEND_HANDLE, LEGEND_LINE = 5.0, 1.5
"""Of a legend, in em: an entry without its text, and a line."""
LEGEND_COLUMNS = 6


@dataclass(frozen=True)
class _Panel:
    """A panel on a page, with its title and the name of its row; an empty one has no key."""

    key: Key | None
    title: str = ""
    side: str = ""


_Page = list[list[_Panel]]


@dataclass(frozen=True)
class PanelGrid:
    """How the panels of a figure stand together."""

    medium: Medium
    labels: tuple[str, str]
    """Of the horizontal and of the vertical axis."""
    entries: Sequence[tuple[str, ArmStyle]] = ()
    """The legend."""
    ticks: Callable[["Axes"], None] = lambda _: None
    """Sets the ticks of a panel once all of them are drawn, since they share their axes."""
    height: float = 2.3
    """Of a panel in inches on the page of a report."""
    alone: float = 4.0
    """The same of the only panel of a figure."""
    share: tuple[Literal["all", "col", "none"], Literal["all", "row", "col", "none"]] = ("all", "all")
    """Which panels share the horizontal and the vertical axis."""
    ratios: tuple[float, ...] = ()
    """The heights of rows that differ in what they show; then the name of a row is that of its axis."""

    def drawing(
        self, panels: Mapping[Key, Content], draw: Callable[["Axes", Content], None], caption: str
    ) -> Drawing:
        """Return the figure of ``panels``; the caption says how many of them have no room on the medium."""
        layout = self._layout(list(panels))
        on_pages = layout[: self.medium.most_pages]
        n_shown = sum(panel.key is not None for page in on_pages for row in page for panel in row)
        if n_shown < len(panels):
            caption += f" Here: {n_shown} of {len(panels)} panels; scalevec figures writes all of them."
        return Drawing([self._page(page, panels, draw) for page in on_pages], caption)

    def pages(self, panels: Mapping[Key, Content], draw: Callable[["Axes", Content], None]) -> "list[Figure]":
        """Return ``panels`` by row and column, filled by ``draw``; a single row is wrapped into several."""
        return [self._page(page, panels, draw) for page in self._layout(list(panels))]

    def _layout(self, keys: Sequence[Key]) -> list[_Page]:
        most_rows = max(1, int((MOST_INCHES - ROOM) / (self.height * self.medium.squeeze[1])))
        rows, columns = _names(keys)
        most_wrapped, most_columns = self.medium.most_columns
        if self.ratios or (len(rows) > 1 and len(columns) > 1):
            return [
                _matrix(some_rows, some_columns, set(keys))
                for some_columns in paged(columns, most_columns)
                for some_rows in paged(rows, most_rows)
            ]
        width = wrapped_columns(len(keys), most_wrapped)
        return [_wrapped(page, width) for page in paged(keys, most_rows * width)]

    def _page(
        self, page: _Page, panels: Mapping[Key, Content], draw: Callable[["Axes", Content], None]
    ) -> "Figure":
        n_columns = len(page[0])
        height = self.alone if len(page) == n_columns == 1 else self.height * len(page) + 0.6
        sharing: dict[str, Any] = {"sharex": self.share[0], "sharey": self.share[1]}
        if self.ratios:
            sharing["height_ratios"] = self.ratios[: len(page)]
        figure, axes = self.medium.figure(len(page), n_columns, height=height, wide=n_columns > 1, **sharing)
        drawn = []
        for axis, panel in zip(axes.flat, chain(*page), strict=True):
            axis.set_title(title(panel.title, figure.get_figwidth() / n_columns - 0.3))
            if panel.key is None:
                axis.set_axis_off()
            else:
                draw(axis, panels[panel.key])
                drawn.append(axis)
        for axis in drawn:
            self.ticks(axis)
        self._label(figure, axes, page, drawn)
        legend_below(figure, self.entries, self.medium)
        return figure

    def _label(self, figure: "Figure", axes: Any, page: _Page, drawn: "Sequence[Axes]") -> None:
        """Name the axes, and number them at the lowest panel of each column and at the first of each row."""
        for column in axes.T:
            for axis in [axis for axis in column if axis in drawn][-1:]:
                axis.tick_params(labelbottom=True)
                axis.set_xlabel(self._across(page))
        for row, in_row in zip(axes, page, strict=True):
            for axis in [axis for axis in row if axis in drawn][:1]:
                axis.tick_params(labelleft=True)
                axis.set_ylabel(in_row[-1].side if self.ratios else "")
            if in_row[-1].side and not self.ratios:
                self._name_row(row[-1], in_row[-1].side)
        if self.ratios:
            return
        if axes.size == 1 or self.medium.axes is not None:
            for axis in axes[:, 0]:
                axis.set_ylabel(self.labels[1])
        else:
            letter = LETTER * font_points("axes.labelsize")
            figure.supylabel(wrapped(self.labels[1], figure.get_figheight(), letter), fontsize="medium")

    def _across(self, page: _Page) -> str:
        """Return the name of the horizontal axis, and what all panels have in common and no title says."""
        keys = [panel.key for panel in chain(*page) if panel.key]
        if len(keys) == 1 or any(panel.side for panel in chain(*page)):
            return self.labels[0]
        common = [name for name in keys[0] if name and all(name in key for key in keys)]
        return ", ".join([self.labels[0], *common])

    def _name_row(self, axis: "Axes", name: str) -> None:
        """Write the name of a row upright at the right of its last panel."""
        text = title(name, self.height * self.medium.squeeze[1] - 0.2, LETTER)
        axis.text(1.03, 0.5, text, rotation=-90, ha="left", va="center", transform=axis.transAxes)


def _names(keys: Sequence[Key]) -> tuple[list[str], list[str]]:
    """Return the rows and the columns of ``keys``, each once and in their order."""
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*keys, strict=True))
    return rows, columns


def _wrapped(keys: Sequence[Key], width: int) -> _Page:
    """Return a page of the panels of a single row or column, named by what tells them apart."""
    rows, _ = _names(keys)
    shown = [_Panel(key, key[0] if len(rows) > 1 else key[1] or key[0]) for key in keys]
    if len(keys) == 1:
        shown = [_Panel(keys[0], ", ".join(filter(None, reversed(keys[0]))))]
    shown += [_Panel(None)] * (-len(shown) % width)
    return [shown[first : first + width] for first in range(0, len(shown), width)]


def _matrix(rows: Sequence[str], columns: Sequence[str], keys: set[Key]) -> _Page:
    """Return a page where each column is named above and each row at its right."""
    return [
        [
            _Panel(
                (row, column) if (row, column) in keys else None,
                column if row == rows[0] else "",
                row if column == columns[-1] else "",
            )
            for column in columns
        ]
        for row in rows
    ]


def strips(
    data: FigureInput,
    medium: Medium,
    panels: Mapping[Key, Mapping[str, FloatArray]],
    label: str,
    caption: str,
    *,
    at: float | None = None,
    names: Mapping[Key, Mapping[str, Sequence[str]]] | None = None,
    has_own_axes: bool = False,
) -> Drawing:
    """Draw the values of each arm [values] on a line of their own, the first arm at the top.

    With ``names`` of the points, a stroke is their mean; ``at`` is where a line stands for no difference.
    """
    shown = {arm for of_panel in panels.values() for arm in of_panel}
    arms = [arm for arm in data.trials.arms if arm in shown]

    def draw(axis: "Axes", key: Key) -> None:
        if at is not None:
            axis.axvline(at, color=medium.ink, linewidth=0.8)
        for arm, values in panels[key].items():
            style, y = data.styles[arm], arms.index(arm)
            (points,) = axis.plot(
                values, np.full(len(values), y), style.marker, color=style.on(medium), alpha=0.6
            )
            if names is not None:
                name_points(points, names[key][arm])
                axis.plot([values.mean()] * 2, [y - 0.36, y + 0.36], color=style.on(medium))
        axis.set_yticks(range(len(arms)), arms)
        axis.set_ylim(len(arms) - 0.4, -0.6)
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)

    height = 0.3 * len(arms) + 0.5
    grid = PanelGrid(
        medium,
        (label, ""),
        ticks=lambda axis: plain_ticks(axis.xaxis),
        height=height,
        alone=height + 0.6,
        share=("none" if has_own_axes else "all", "all"),
    )
    return grid.drawing({key: key for key in panels}, draw, caption)


def wrapped_columns(n_panels: int, most: int) -> int:
    """Return how many of ``n_panels`` stand side by side; four stand two by two."""
    return min(most, 2 if n_panels == 4 else n_panels)


def paged(names: Iterable[Any], most: int) -> list[list[Any]]:
    """Return the distinct ``names`` in their order, as many on each page, at most ``most``."""
    distinct = list(dict.fromkeys(names))
    n_pages = max(1, -(-len(distinct) // most))
    return [[distinct[at] for at in page] for page in np.array_split(np.arange(len(distinct)), n_pages)]


def legend(owner: Any, entries: Iterable[tuple[str, ArmStyle]], medium: Medium, **placement: Any) -> None:
    """Add a legend of ``owner`` (axes or a figure) that shows every entry with its marker and its dash."""
    from matplotlib.lines import Line2D

    handles, labels = [], []
    for name, style in entries:
        handle = Line2D([], [], color=style.on(medium), marker=style.marker, linestyle=style.dash)
        handle.set_fillstyle("none" if style.is_hollow else "full")
        handles.append(handle)
        labels.append(label_of(name))
    owner.legend(handles, labels, **placement)


def legend_below(figure: "Figure", entries: Sequence[tuple[str, ArmStyle]], medium: Medium) -> None:
    """Add one legend below all panels, as wide as they are; the figure grows by its further rows."""
    if not entries:
        return
    if medium.axes is not None:
        legend(np.ravel(medium.axes)[0], entries, medium)
        return
    width, height = figure.get_size_inches()
    em = font_points("legend.fontsize") / 72
    longest = max(len(label_of(name)) for name, _ in entries)
    columns = int(min(LEGEND_COLUMNS, len(entries), width / (em * (LEGEND_HANDLE + LETTER * longest))))
    columns = max(1, columns)
    lines = -(-len(entries) // columns)
    figure.set_size_inches(width, min(height + LEGEND_LINE * em * (lines - 1), MOST_INCHES))
    legend(figure, entries, medium, loc="outside lower center", ncols=columns)
