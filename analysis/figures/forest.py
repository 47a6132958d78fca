"""Differences to the reference with intervals, a line for each cell."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.differences import RungDifference
from scalevec.analysis.figures.figure_input import FigureInput, named_setting
from scalevec.analysis.figures.panels import Drawing, Key, name_lines, paged
from scalevec.analysis.figures.style import ArmStyle, draw_points, ink, title
from scalevec.analysis.formatting import count, degrees, loss_name, percent, signed, unit_of

MOST_LINES = 30
"""Of a panel."""
NAME_INCHES = 2.3
"""Of the name of a cell."""
_Line = tuple[str, Comparison | None, RungDifference | None]
"""Its name, an arm and a cell, or no cell: its mean over all of them. Without an arm the line is free."""
_Cell = tuple[str, ...]


def draw_differences(data: FigureInput) -> Drawing:
    """Draw a panel for each arm: a line for each cell, a diamond for the mean, small dots for the pairs.

    Arms that have one cell in common stand in one panel.
    """
    comparisons = data.compared()
    cells = {_cell(row): row for comparison in comparisons for row in comparison.by_rung}
    order = sorted(cells, key=lambda cell: (cells[cell].n_params, cells[cell].n_tokens, cell))
    names = {cell: _name(cells[cell], list(cells.values())) for cell in order}
    panels: dict[Key, list[_Line]] = {}
    if len(order) == 1:
        of_arms = {comparison.arm: comparison for comparison in comparisons}
        for arms in paged(of_arms, MOST_LINES):
            key = (names[order[0]], arms[0] if len(comparisons) > MOST_LINES else "")
            panels[key] = [(arm, of_arms[arm], of_arms[arm].by_rung[0]) for arm in arms]
    else:
        pages = paged(order, MOST_LINES)
        for number, some in enumerate(pages, start=1):
            part = f"part {number} of {len(pages)}" if len(pages) > 1 else ""
            for comparison in comparisons:
                panels[part, comparison.arm] = _lines(comparison, {cell: names[cell] for cell in some})
    breaks = max(name.count("\n") for name in names.values())
    # Shared axes have one list of names, that of the panel which was drawn last.
    are_alike = len({tuple(name for name, *_ in lines) for lines in panels.values()}) == 1
    n_lines = max(map(len, panels.values()))
    unit = f" ({name})" if (name := unit_of(data.trials.options.y, data.trials.options.unit)) else ""
    return Drawing(
        {key: partial(_draw_lines, lines, data) for key, lines in panels.items()},
        (f"loss difference to {data.trials.reference}{unit}", ""),
        _caption(comparisons, has_mean=len(order) > 1),
        {},
        height=(0.22 + 0.18 * breaks) * n_lines + 0.4,
        share=("all", "all" if are_alike else "none"),
    )


def _caption(comparisons: Sequence[Comparison], *, has_mean: bool) -> str:
    first = comparisons[0]
    options = first.options
    known = sorted({c.loss_difference.df for c in comparisons if c.loss_difference.interval})
    several = f"{known[0]:.3g} to " if known and degrees(known[0]) != degrees(known[-1]) else ""
    noise = f" ({several}{degrees(known[-1])})" if known else ""
    margin = f" Grey: within the equivalence margin ±{_margin(first):g}." if _margin(first) else ""
    return (
        f"Difference of the {loss_name(options.y, options.unit)} to {first.reference}, paired by seed; below "
        "zero is better. "
        f"Small dots: single pairs. {'Diamond: mean over all rungs. ' if has_mean else ''}"
        f"Bars: {percent(options.level)} t intervals with the noise of each rung{noise}; those of one rung "
        f"are descriptive. No bar: no interval.{margin}"
    )


def _margin(comparison: Comparison) -> float:
    return float(comparison.equivalence.get("margin") or 0)


def _cell(row: RungDifference) -> _Cell:
    return (row.rung, str(row.n_tokens), *map(str, row.setting.values()))


def _name(row: RungDifference, cells: Sequence[RungDifference]) -> str:
    """Return the name of a cell, on as many lines as it needs."""
    budgets = {other.n_tokens for other in cells if other.rung == row.rung}
    tokens = [f"{count(row.n_tokens)} tokens"] if len(budgets) > 1 else []
    return title(", ".join(filter(None, [row.rung, *tokens, named_setting(row.setting)])), NAME_INCHES)


def _lines(comparison: Comparison, names: dict[_Cell, str]) -> list[_Line]:
    """Return the lines of an arm: its cells among those of all arms, then its mean."""
    rows = {_cell(row): row for row in comparison.by_rung}
    lines: list[_Line] = [
        (name, comparison if cell in rows else None, rows.get(cell)) for cell, name in names.items()
    ]
    has_mean = len(rows) > 1 and comparison.loss_difference.mean is not None
    return [*lines, ("mean of all", comparison if has_mean else None, None)]


def _draw_lines(lines: Sequence[_Line], data: FigureInput, axis: Axes) -> None:
    """Draw the ``lines`` of a panel from the top."""
    axis.axvline(0, color=ink(), linewidth=0.8)
    drawn = [(y, comparison, row) for y, (_, comparison, row) in enumerate(lines) if comparison]
    for y, comparison, row in drawn:
        _draw_line(axis, y, comparison, row, data.styles[comparison.arm])
    margin = next((_margin(comparison) for _, comparison, _ in drawn), 0.0)
    if margin:
        axis.axvspan(-margin, margin, color="grey", alpha=0.22, linewidth=0)
    name_lines(axis, [name for name, *_ in lines])


def _draw_line(
    axis: Axes, y: int, comparison: Comparison, row: RungDifference | None, style: ArmStyle
) -> None:
    estimate = comparison.loss_difference if row is None else row
    if row is not None and row.n > 1:
        dots = ArmStyle(style.color, ".")
        cell = ", ".join([comparison.arm, row.rung, *row.setting.values(), f"{count(row.n_tokens)} tokens"])
        pairs = zip(row.seeds, row.differences, strict=True)
        names = [f"{cell}, seed {seed}: {signed(difference)}" for seed, difference in pairs]
        draw_points(axis, np.array(row.differences), np.full(row.n, y + 0.26), dots, names, 2.6)
    if estimate.interval is not None:
        # The ends of the mean's interval, which may be shorter than its diamond is wide, stand above it.
        ends = "|-" if row is None else "-"
        axis.plot(estimate.interval, [y] * 2, ends, markersize=8, linewidth=1.2, color=style.color)
    marker, size = ("d", 4.2) if row is None else (style.marker, 3.6)
    axis.plot(estimate.mean or 0.0, y, marker, markersize=size, color=style.color)
