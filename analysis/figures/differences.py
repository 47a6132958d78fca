"""Differences to the reference: by rung as points, as a forest, and on the lattice of design choices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.comparison import Comparison
from analysis.differences import RungDifference
from analysis.figures.style import ArmStyle, Medium, hide_unused, label_of, panels, plain_ticks, title
from analysis.words import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Interval = tuple[float, float] | None
_Cells = Mapping[tuple[str, ...], RungDifference]
AXIS = "arm − reference, nats a token"
MOST_LINES = 24
"""A forest of more lines is drawn as small multiples."""


def cell_key(row: RungDifference) -> tuple[str, ...]:
    """What names a cell of a comparison."""
    return (row.rung, str(row.n_tokens), *row.setting.values())


def ordered_cells(comparisons: Sequence[Comparison]) -> dict[tuple[str, ...], RungDifference]:
    """Every cell once, by size."""
    cells = {cell_key(row): row for comparison in comparisons for row in comparison.by_rung}
    order = sorted(cells, key=lambda key: (cells[key].n_params, cells[key].n_tokens, key))
    return {key: cells[key] for key in order}


def draw_differences(
    medium: Medium, comparisons: Sequence[Comparison], styles: Mapping[str, ArmStyle]
) -> "Figure":
    """Difference in each cell and over all, side by side, with intervals; small dots are the pairs."""
    cells = ordered_cells(comparisons)
    place = {key: index for index, key in enumerate(cells)}
    figure, axes = medium.figure(height=3.9, wide=True)
    axis = axes[0, 0]
    axis.axhline(0, color=medium.ink, linewidth=1)
    axis.axvline(len(cells) - 0.5, color=medium.faint, linewidth=0.8, linestyle=":")
    margin = _margin(comparisons)
    if margin:
        axis.axhspan(-margin, margin, **_margin_look(margin, medium))
    width = min(0.16, 0.7 / max(len(comparisons), 1))
    for index, comparison in enumerate(comparisons):
        shift = (index - (len(comparisons) - 1) / 2) * width
        _draw_arm(axis, comparison, styles[comparison.arm], medium, place, shift)
    names = [*(_cell_name(row, cells) for row in cells.values()), "all rungs\n(mean)"]
    axis.set_xticks(range(len(cells) + 1), names)
    axis.set_ylabel(AXIS)
    axis.grid(visible=False, axis="x")
    axis.legend()
    return figure


def _cell_name(row: RungDifference, cells: _Cells) -> str:
    return "\n".join([row.rung, f"N = {count(row.n_params)}", *_budget(row, cells), *row.setting.values()])


def _budget(row: RungDifference, cells: _Cells) -> list[str]:
    """The tokens of a cell, where its rung was run with several numbers of them."""
    budgets = {other.n_tokens for other in cells.values() if other.rung == row.rung}
    return [f"{count(row.n_tokens)} tokens"] if len(budgets) > 1 else []


def _margin(comparisons: Sequence[Comparison]) -> float:
    return float(comparisons[0].equivalence.get("margin") or 0) if comparisons else 0.0


def _margin_look(margin: float, medium: Medium) -> dict[str, Any]:
    label = f"equivalence margin ±{margin:g}"
    return {"color": medium.faint, "alpha": 0.22, "linewidth": 0, "label": label}


def _draw_arm(
    axis: "Axes",
    comparison: Comparison,
    style: ArmStyle,
    medium: Medium,
    place: Mapping[tuple[str, ...], int],
    shift: float,
) -> None:
    colour = style.on(medium)
    points: list[tuple[int, float, Interval]] = [
        (place[cell_key(row)], row.mean, row.interval) for row in comparison.by_rung
    ]
    overall = comparison.loss_difference
    if overall.mean is not None:
        points.append((len(place), overall.mean, overall.interval))
    for row in comparison.by_rung:
        beside = np.full(len(row.differences), place[cell_key(row)] + shift + 0.05)
        axis.plot(beside, row.differences, ".", color=colour, markersize=4, alpha=0.6)
    for x, _, interval in points:
        if interval is not None:
            axis.plot([x + shift] * 2, interval, color=colour, linewidth=1.6)
    axis.plot(
        [x + shift for x, _, _ in points],
        [mean for _, mean, _ in points],
        style.marker,
        color=colour,
        label=label_of(comparison.arm),
    )


def draw_forest(
    medium: Medium, comparisons: Sequence[Comparison], styles: Mapping[str, ArmStyle]
) -> "Figure":
    """The same as a forest: a line for each arm and cell, a diamond for the mean over all cells.

    Many lines, or lines with long names, become small multiples, a panel an arm.
    """
    cells = ordered_cells(comparisons)
    lines = {one.arm: _forest_lines(one, cells) for one in comparisons}
    shown = [one for one in comparisons if lines[one.arm]]
    named = {arm: [title(_line_name(row, cells), 3) for _, row in own] for arm, own in lines.items()}
    lines_each = max((name.count("\n") for names in named.values() for name in names), default=0)
    if sum(map(len, lines.values())) <= MOST_LINES and not lines_each:
        figure, axes = medium.figure(height=0.24 * sum(map(len, lines.values())) + 1.4)
        _draw_forest(axes[0, 0], [line for one in shown for line in lines[one.arm]], styles, medium)
        _name_lines(axes[0, 0], [line for one in shown for line in lines[one.arm]], cells, medium)
        axes[0, 0].set_xlabel(f"loss less that of\n{comparisons[0].reference}, nats a token")
    else:
        rows, columns = panels(len(shown))
        height = ((0.22 + 0.13 * lines_each) * (len(cells) + 1) + 0.5) * rows + 0.9
        figure, axes = medium.figure(rows, columns, height=height, wide=True, sharex=True)
        for place, (axis, one) in enumerate(zip(axes.flat, shown, strict=False)):
            _draw_forest(axis, lines[one.arm], styles, medium)
            names = named[one.arm]
            axis.set_yticks(range(len(names)), names if place % columns == 0 else [""] * len(names))
            axis.tick_params(axis="y", length=0)
            axis.set_title(label_of(one.arm))
            if place + columns >= len(shown):
                axis.tick_params(labelbottom=True)
            if place // columns == rows - 1:
                axis.set_xlabel(f"loss less that of\n{one.reference}, nats a token")
        hide_unused(axes, len(shown))
    if _margin(comparisons):
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center")
    return figure


_Line = tuple[Comparison, RungDifference | None]


def _forest_lines(comparison: Comparison, cells: _Cells) -> list[_Line]:
    """The arm's cells by size, then its mean over all (None), where it is not that of the only cell."""
    own = {cell_key(row): row for row in comparison.by_rung}
    lines: list[_Line] = [(comparison, own[key]) for key in cells if key in own]
    has_mean = len(lines) > 1 and comparison.loss_difference.mean is not None
    return [*lines, (comparison, None)] if has_mean else lines


def _draw_forest(
    axis: "Axes", lines: Sequence[_Line], styles: Mapping[str, ArmStyle], medium: Medium
) -> None:
    axis.axvline(0, color=medium.ink, linewidth=0.8)
    margin = _margin([comparison for comparison, _ in lines])
    if margin:
        axis.axvspan(-margin, margin, **_margin_look(margin, medium))
    for y, (comparison, row) in enumerate(lines):
        style = styles[comparison.arm]
        mean, interval, marker = _forest_point(comparison, row, style)
        if interval is not None:
            axis.plot(interval, [y] * 2, color=style.on(medium), linewidth=1.2)
        axis.plot(mean, y, marker, color=style.on(medium), markersize=6 if row is None else 3.6)
    axis.set_ylim(len(lines) - 0.4, -0.6)
    plain_ticks(axis.xaxis, 5)
    axis.grid(visible=False, axis="y")


def _forest_point(
    comparison: Comparison, row: RungDifference | None, style: ArmStyle
) -> tuple[float, Interval, str]:
    if row is not None:
        return row.mean, row.interval, style.marker
    overall = comparison.loss_difference
    return overall.mean or 0.0, overall.interval, "d"


def _line_name(row: RungDifference | None, cells: _Cells) -> str:
    return "all (mean)" if row is None else ", ".join([row.rung, *_budget(row, cells), *row.setting.values()])


def _name_lines(axis: "Axes", lines: Sequence[_Line], cells: _Cells, medium: Medium) -> None:
    """Each line's cell; the first of an arm's lines begins with its name, and a rule stands above it."""
    names = []
    several = len(lines) > len({comparison.arm for comparison, _ in lines})
    for y, (comparison, row) in enumerate(lines):
        is_first = y == 0 or lines[y - 1][0] is not comparison
        name = _line_name(row, cells)
        names.append(f"{comparison.arm}   {name}" if is_first else name)
        if is_first and y and several:
            axis.axhline(y - 0.5, color=medium.faint, linewidth=0.5)
    axis.set_yticks(range(len(lines)), names)
    axis.tick_params(axis="y", length=0)


@dataclass(frozen=True)
class LatticePoint:
    """An arm on the lattice: its ``choices``, its mean difference (0: the reference) and interval."""

    arm: str
    choices: Sequence[bool]
    mean: float
    interval: Interval


def draw_lattice(
    medium: Medium, points: Sequence[LatticePoint], names: Sequence[str], reference: str
) -> "Figure":
    """Every arm with its design choices (``names``) as dots, and its mean difference with its interval."""
    figure, axes = medium.figure(
        1,
        2,
        height=0.26 * len(points) + 1.2,
        gridspec_kw={"width_ratios": [0.27 * len(names), 3.0]},
        sharey=True,
    )
    dots, axis = axes[0]
    axis.axvline(0, color=medium.ink, linewidth=0.8)
    for y, point in enumerate(points):
        _draw_choices(dots, y, point.choices, medium)
        if point.interval is not None:
            axis.plot(point.interval, [y] * 2, color=medium.ink, linewidth=1.2)
        inside = "white" if point.arm == reference else medium.ink
        axis.plot(point.mean, y, "o", color=medium.ink, markerfacecolor=inside)
    dots.set_xticks(range(len(names)), names, rotation=90)
    dots.xaxis.tick_top()
    dots.set_xlim(-0.6, len(names) - 0.4)
    dots.set_yticks(range(len(points)), [point.arm for point in points])
    dots.set_ylim(len(points) - 0.4, -0.6)
    dots.spines[["left", "bottom"]].set_visible(False)
    dots.tick_params(length=0)
    dots.grid(visible=False)
    plain_ticks(axis.xaxis, 5)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_xlabel(f"loss less that of\n{reference}, nats a token")
    return figure


def _draw_choices(axis: "Axes", y: int, has: Sequence[bool], medium: Medium) -> None:
    """A filled dot for each choice that the arm has, joined by a line; a faint one for the others."""
    size = 3.2
    axis.plot(range(len(has)), [y] * len(has), ".", color=medium.faint, alpha=0.3, markersize=size)
    filled = [x for x, chosen in enumerate(has) if chosen]
    axis.plot(filled, [y] * len(filled), "o-", color=medium.ink, markersize=size, linewidth=0.7)
