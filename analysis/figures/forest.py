"""Differences to the reference: as a forest by rung, and on the lattice of design choices."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.differences import RungDifference
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput
from scalevec.analysis.figures.panels import PanelGrid, paged
from scalevec.analysis.figures.points import name_points
from scalevec.analysis.figures.style import ArmStyle, Medium, title
from scalevec.analysis.figures.ticks import plain_ticks
from scalevec.analysis.formatting import count, loss_name, percent, signed, unit_of
from scalevec.analysis.tables import ablation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 24
"""A forest of more lines is drawn as small multiples."""
MOST_CELLS = 30
"""Of one page, and of arms with their design choices."""
NAME_INCHES = 2.3
"""Of the name of a cell."""
_CellKey = tuple[str, ...]
MEAN: _CellKey = ()
"""Stands for the mean over all cells."""
_Cells = Mapping[_CellKey, RungDifference]
_Means = Mapping[str, tuple[float | None, tuple[float, float] | None]]
_Line = tuple[Comparison, RungDifference | None]
"""An arm in a cell; None: its mean over all cells."""


def draw_differences(data: FigureInput, medium: Medium) -> Drawing:
    """Draw a line for each arm and cell, a diamond for the mean over all cells, small dots for the pairs.

    Many lines, or lines with long names, become small multiples, a panel per arm.
    """
    comparisons = data.compared()
    cells = _ordered_cells(comparisons)
    pages = []
    for some in paged(cells, MOST_CELLS):
        pages += _pages(data, medium, comparisons, {key: cells[key] for key in some})
    return Drawing(pages, _caption(comparisons))


def _pages(
    data: FigureInput, medium: Medium, comparisons: Sequence[Comparison], cells: _Cells
) -> "list[Figure]":
    """Return the forest of some ``cells``: one of all arms, or a panel per arm."""
    lines = {comparison.arm: _lines(comparison, cells) for comparison in comparisons}
    n_lines = sum(map(len, lines.values()))
    names = _names(cells)
    if n_lines <= MOST_LINES and "\n" not in "".join(names.values()):
        figures = [_single_forest(data, medium, lines, names)]
    else:
        figures = _small_forests(data, medium, lines, names)
    if _margin(comparisons):
        for figure in figures:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center")
    return figures


def _caption(comparisons: Sequence[Comparison]) -> str:
    first = comparisons[0]
    options = first.options
    known = sorted({f"{c.loss_difference.df:.1f}".removesuffix(".0") for c in comparisons}, key=float)
    return (
        f"Difference of the {loss_name(options.y, options.unit)} to {first.reference}, paired by seed; below "
        "zero is better. "
        "Small dots: single pairs. Diamond: mean over all rungs. "
        f"Bars: {percent(options.level)} t intervals with the noise of each rung ({' or '.join(known)} "
        "degrees of freedom); those of one rung are descriptive. No bar: no interval."
    )


def _key(row: RungDifference) -> _CellKey:
    return (row.rung, str(row.n_tokens), *map(str, row.setting.values()))


def _ordered_cells(comparisons: Sequence[Comparison]) -> dict[_CellKey, RungDifference]:
    """Return every cell once, by size."""
    cells = {_key(row): row for comparison in comparisons for row in comparison.by_rung}
    order = sorted(cells, key=lambda key: (cells[key].n_params, cells[key].n_tokens, key))
    return {key: cells[key] for key in order}


def _lines(comparison: Comparison, cells: _Cells) -> dict[_CellKey, _Line]:
    """Return the arm's cells, then its mean over all, where it is not that of the only cell."""
    rows = {_key(row): row for row in comparison.by_rung}
    lines: dict[_CellKey, _Line] = {key: (comparison, rows[key]) for key in cells if key in rows}
    if len(rows) > 1 and comparison.loss_difference.mean is not None:
        lines[MEAN] = (comparison, None)
    return lines


def _names(cells: _Cells) -> dict[_CellKey, str]:
    """Return the name of each cell, on as many lines as it needs, and of the mean of all."""
    names = {}
    for key, row in cells.items():
        budgets = {other.n_tokens for other in cells.values() if other.rung == row.rung}
        tokens = [f"{count(row.n_tokens)} tokens"] if len(budgets) > 1 else []
        names[key] = title(", ".join([row.rung, *tokens, *map(str, row.setting.values())]), NAME_INCHES)
    return names if len(names) == 1 else {**names, MEAN: "mean of all"}


def _single_forest(
    data: FigureInput,
    medium: Medium,
    lines: Mapping[str, Mapping[_CellKey, _Line]],
    names: Mapping[_CellKey, str],
) -> "Figure":
    """Draw all arms below each other; the first line of an arm begins with its name, a rule stands above."""
    n_lines = sum(map(len, lines.values()))
    figure, axes = medium.figure(height=0.24 * n_lines + 1.4, wide=bool(data.names))
    axis = axes[0, 0]
    _draw_lines(axis, [line for of_arm in lines.values() for line in of_arm.values()], data.styles, medium)
    ticks: list[str] = []
    for arm, of_arm in lines.items():
        if ticks and n_lines > len(lines):
            axis.axhline(len(ticks) - 0.5, color=medium.faint, linewidth=0.5)
        # One cell is named above, not beside each arm.
        first, *others = (names[key] if len(names) > 1 else "" for key in of_arm)
        ticks += [f"{arm}   {first}".rstrip(), *others]
    axis.set_yticks(range(n_lines), ticks)
    _label_differences(axis, data)
    if len(names) == 1:
        axis.set_title(*names.values())
    return figure


def _small_forests(
    data: FigureInput,
    medium: Medium,
    lines: Mapping[str, Mapping[_CellKey, _Line]],
    names: Mapping[_CellKey, str],
) -> "list[Figure]":
    """Draw a panel per arm; all of them have the same cells, named at the left of each row."""
    breaks = max(name.count("\n") for name in names.values())

    def draw(axis: "Axes", of_arm: Mapping[_CellKey, _Line]) -> None:
        _draw_lines(axis, [of_arm.get(key) for key in names], data.styles, medium)
        axis.set_yticks(range(len(names)), names.values())

    height = (0.22 + 0.18 * breaks) * len(names) + 0.4
    grid = PanelGrid(medium, (_axis_label(data), ""), height=height, alone=height + 0.9)
    return grid.pages({("", arm): of_arm for arm, of_arm in lines.items()}, draw)


def _axis_label(data: FigureInput) -> str:
    options = data.trials.options
    unit = f"({name})" if (name := unit_of(options.y, options.unit)) else ""
    parts = filter(None, [data.reference_in_lines, unit])
    return "loss difference to\n" + ("\n" if data.names else " ").join(parts)


def _label_differences(axis: "Axes", data: FigureInput) -> None:
    axis.set_xlabel(_axis_label(data))
    if data.names:  # which leave little room beside them
        axis.locator_params(axis="x", nbins=3, min_n_ticks=2)


def _margin(comparisons: Sequence[Comparison]) -> float:
    return float(comparisons[0].equivalence.get("margin") or 0)


def _draw_lines(
    axis: "Axes", lines: Sequence[_Line | None], styles: Mapping[str, ArmStyle], medium: Medium
) -> None:
    """Draw lines from the top; None leaves one free."""
    axis.axvline(0, color=medium.ink, linewidth=0.8)
    margin = _margin([line[0] for line in lines if line])
    if margin:
        label = f"equivalence margin ±{margin:g}"
        axis.axvspan(-margin, margin, color=medium.faint, alpha=0.22, linewidth=0, label=label)
    for y, (comparison, row) in ((y, line) for y, line in enumerate(lines) if line):
        style = styles[comparison.arm]
        estimate = comparison.loss_difference if row is None else row
        look: dict[str, Any] = {"color": style.on(medium)}
        if row is not None and row.n > 1:
            (dots,) = axis.plot(row.differences, [y + 0.26] * row.n, ".", markersize=2.6, alpha=0.6, **look)
            name_points(dots, _pair_names(comparison.arm, row))
        if estimate.interval is not None:
            axis.plot(estimate.interval, [y] * 2, linewidth=1.2, **look)
        marker, size = ("d", 6.0) if row is None else (style.marker, 3.6)
        axis.plot(estimate.mean or 0.0, y, marker, markersize=size, **look)
    axis.set_ylim(len(lines) - 0.4, -0.6)
    plain_ticks(axis.xaxis)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)


def _pair_names(arm: str, row: RungDifference) -> list[str]:
    cell = ", ".join([arm, row.rung, *map(str, row.setting.values()), f"{count(row.n_tokens)} tokens"])
    pairs = zip(row.seeds, row.differences, strict=True)
    return [f"{cell}, seed {seed}: {signed(difference)}" for seed, difference in pairs]


def draw_ablation(data: FigureInput, medium: Medium) -> Drawing:
    """Draw every arm with its design choices as dots, and its mean difference with its interval."""
    fields = ablation.strategies(data.trials)
    if not fields:
        raise DataError(f"the source lacks {', '.join(ablation.FIELDS)}")
    means: _Means = {c.arm: (c.loss_difference.mean, c.loss_difference.interval) for c in data.compared()}
    arms = [arm for arm in ablation.by_choices(fields, list(means)) if means[arm][0] is not None]
    figures = [
        _ablation_page(data, medium, [data.trials.reference, *page], means, fields)
        for page in paged(arms, MOST_CELLS)
    ]
    caption = f"Design choices of each arm, and its loss difference. {ablation.CHOICES_NOTE}"
    return Drawing(figures, caption)


def _ablation_page(
    data: FigureInput,
    medium: Medium,
    arms: Sequence[str],
    means: _Means,
    fields: Mapping[str, ablation.Fields],
) -> "Figure":
    names = ablation.DOTS
    widths = {"width_ratios": [0.27 * len(names), 3.0]}
    height, wide = 0.26 * len(arms) + 1.2, bool(data.names)
    figure, axes = medium.figure(1, 2, height=height, wide=wide, gridspec_kw=widths, sharey=True)
    dots, axis = axes[0]
    axis.axvline(0, color=medium.ink, linewidth=0.8)
    for y, arm in enumerate(arms):
        _draw_choices(dots, y, ablation.dots(fields[arm]), medium)
        mean, interval = means.get(arm, (0.0, None))
        if interval is not None:
            axis.plot(interval, [y] * 2, color=medium.ink, linewidth=1.2)
        inside = "white" if arm == data.trials.reference else medium.ink
        axis.plot(mean, y, "o", color=medium.ink, markerfacecolor=inside)
    dots.set_xticks(range(len(names)), names, rotation=90)
    dots.xaxis.tick_top()
    dots.set_xlim(-0.6, len(names) - 0.4)
    dots.set_yticks(range(len(arms)), arms)
    dots.set_ylim(len(arms) - 0.4, -0.6)
    dots.spines[["left", "bottom"]].set_visible(False)
    dots.tick_params(length=0)
    dots.grid(visible=False)
    plain_ticks(axis.xaxis)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    _label_differences(axis, data)
    return figure


def _draw_choices(axis: "Axes", y: int, has: Sequence[bool], medium: Medium) -> None:
    """Draw a filled dot for each choice that the arm has, joined by a line; a faint one for the others."""
    size = 3.2
    axis.plot(range(len(has)), [y] * len(has), ".", color=medium.faint, alpha=0.3, markersize=size)
    filled = [x for x, chosen in enumerate(has) if chosen]
    axis.plot(filled, [y] * len(filled), "o-", color=medium.ink, markersize=size, linewidth=0.7)
