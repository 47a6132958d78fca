"""Draw figures by name, as files for a paper and as SVG for a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from scalevec.analysis.errors import DataError, require_choice
from scalevec.analysis.figures.figure_input import FigureInput, figure_input
from scalevec.analysis.figures.files import FORMATS, file_bytes, page_svg, require_formats, write_atomically
from scalevec.analysis.figures.panels import Drawing, draw_on, layout, on_linear_axes, page
from scalevec.analysis.figures.style import COLUMN, LETTER, PAGE, PAPER, TEXT, Medium, font_points, wrapped
from scalevec.analysis.formatting import footnotes
from scalevec.analysis.options import AnalysisOptions, OptionChanges, chosen_options
from scalevec.analysis.registry import FIGURES

WIDTHS = {"page": PAPER, "text": TEXT, "column": COLUMN}
"""How wide figures in files are."""
SWITCHED = "loss"
"""The figure of which a page can hide arms and change the axes."""
MOST_PAGES = 4
"""Of a figure in a report: what thousands of trials have no room for is left to files."""


@dataclass(frozen=True)
class Written:
    """The files that were written, the caption of each figure, and why a figure could not be drawn."""

    paths: tuple[Path, ...]
    captions: dict[str, str]
    left_out: dict[str, str]


@dataclass(frozen=True)
class PageFigure:
    """The SVG elements of a figure, its caption, and what a reader may switch.

    ``linear`` are the elements once more on linear axes; ``arms`` are those that can be hidden, by number.
    """

    svgs: tuple[str, ...]
    caption: str
    linear: tuple[str, ...] = ()
    arms: Mapping[str, str] = field(default_factory=dict)


def write_figures(
    results: pd.DataFrame,
    folder: Path | str,
    *,
    reference: str,
    choices: Sequence[Mapping[str, Any]] = (),
    curves: pd.DataFrame | None = None,
    statistics: pd.DataFrame | None = None,
    formats: Sequence[str] = FORMATS,
    only: Sequence[str] = (),
    width: str = "page",
    palette: Mapping[str, str] | None = None,
    rename: Mapping[str, str] | None = None,
    order: Sequence[str] = (),
    style: Path | str | None = None,
    options: AnalysisOptions | None = None,
    **changes: Unpack[OptionChanges],
) -> Written:
    """Write the figures of ``results`` to ``folder``, each as NAME.FORMAT at the width of a paper.

    A figure of many panels is several pages: NAME-1.FORMAT and so on. Nothing is written unless all can be
    drawn.

    Args:
        results: Tidy rows, one per trial.
        folder: Where the files go; created if it is not there.
        reference: The arm that the others are compared with; alone it has the figures of one arm.
        formats: Some of :data:`FORMATS`.
        only: Some of :data:`FIGURES`, which must all be possible; by default every figure that the source
            has the data for.
        choices: The entries of a sweep's tuning.json.
        curves: Training curves: trial_id, arm, rung, seed, tokens, loss (nats/token).
        statistics: What runs recorded: trial_id, arm, rung, seed, tokens, key (``sv/KIND/NAME``,
            ``theory/...``), value, low, high.
        width: One of :data:`WIDTHS`: ``page`` for a paper of two columns, 3.25 inches for a single panel and
            6.75 for several; ``text`` 5.5; ``column`` 3.25.
        palette: Colours of arms, by their names; an arm that is not in it has its usual colour.
        rename: What arms are called in figures, by their names.
        order: Arms that come first, in this order, after the reference.
        style: A style sheet of matplotlib, over ours.
        options: How the arms are compared; ``x`` is the horizontal axis of the figure ``loss``.
        **changes: Fields of :class:`AnalysisOptions` that replace those of ``options``.

    Returns:
        The paths that were written, the captions, and why each other figure was left out.

    Raises:
        DataError: Nothing can be drawn, a figure of ``only`` cannot, or an option is not allowed.

    Example:
        >>> write_figures(results, "figures", reference="baseline", only=["loss"])  # doctest: +SKIP
    """
    require_formats(tuple(formats))
    for name in only:
        require_choice("figure", name, FIGURES)
    require_choice("width", width, WIDTHS)
    chosen = chosen_options(options, changes)
    recorded = (choices, curves, statistics)
    data = figure_input(results, reference, chosen, *recorded, palette=palette, rename=rename, order=order)
    medium = WIDTHS[width] if style is None else WIDTHS[width].over(Path(style))
    names = only or list(FIGURES)
    files, captions, left_out = _drawn_files(data, names, formats, medium, are_needed=bool(only))
    for name, content in files.items():
        write_atomically(Path(folder, name), content)
    return Written(tuple(Path(folder, name) for name in files), captions, left_out)


def draw(
    ax: Any,
    results: pd.DataFrame,
    figure: str = "loss",
    *,
    reference: str,
    choices: Sequence[Mapping[str, Any]] = (),
    curves: pd.DataFrame | None = None,
    statistics: pd.DataFrame | None = None,
    palette: Mapping[str, str] | None = None,
    options: AnalysisOptions | None = None,
    **changes: Unpack[OptionChanges],
) -> str:
    """Draw a figure of ``results`` on axes of your own.

    Args:
        ax: The axes of matplotlib for its panel, or an array of them, one for each panel.
        results: Tidy rows, one per trial.
        figure: One of :data:`FIGURES`.
        reference: As of :func:`write_figures`, and so are ``choices`` to ``changes``.

    Returns:
        The caption.

    Raises:
        DataError: The figure cannot be drawn from these rows, or has another number of panels than ``ax``.

    Example:
        >>> draw(ax, results, "differences", reference="baseline", palette={"new": "C3"})  # doctest: +SKIP
    """
    require_choice("figure", figure, FIGURES)
    recorded = (choices, curves, statistics)
    chosen = chosen_options(options, changes)
    data = figure_input(results, reference, chosen, *recorded, palette=palette)
    drawing: Drawing = FIGURES[figure].load()(data)
    draw_on(ax, drawing)
    return drawing.caption


def _drawn_files(
    data: FigureInput, names: Sequence[str], formats: Sequence[str], medium: Medium, *, are_needed: bool
) -> tuple[dict[str, bytes], dict[str, str], dict[str, str]]:
    """Return the files by name, captions, and why a figure was not drawn, which none ``needed`` may be."""
    files: dict[str, bytes] = {}
    with medium.style():
        drawings, left_out = _drawings(data, names)
        stamp = _stamp(data)
        for name, drawing in drawings.items():
            grids = layout(drawing, medium)
            for number, grid in enumerate(grids, start=1):
                figure = page(drawing, grid, medium)
                if stamp:
                    letter = LETTER * font_points("axes.labelsize")
                    figure.suptitle(wrapped(stamp, figure.get_figwidth(), letter))
                stem = name if len(grids) == 1 else f"{name}-{number}"
                for form in dict.fromkeys(formats):
                    files[f"{stem}.{form}"] = file_bytes(figure, form, stem)
    if left_out and (are_needed or not files):
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        raise DataError(f"figures that cannot be drawn from this source: {reasons}")
    captions = {
        name: " ".join([drawing.caption, *footnotes(data.names)]) for name, drawing in drawings.items()
    }
    return files, captions, left_out


def page_figures(data: FigureInput, names: Sequence[str]) -> dict[str, PageFigure]:
    """Return those figures of ``names`` that can be drawn, as SVG in the colours of a page."""
    figures = {}
    with PAGE.style():
        for name, drawing in _drawings(data, names)[0].items():
            grids = layout(drawing, PAGE)
            more = f" Here: {MOST_PAGES} of {len(grids)} pages; scalevec figures writes all of them."
            caption = f"{_stamp(data)}{drawing.caption}{more * (len(grids) > MOST_PAGES)}"
            figure = PageFigure(_page_svgs(data, name, name, drawing), caption)
            if name == SWITCHED:
                arms = {
                    style.gid.removeprefix("arm-"): arm for arm, style in drawing.legend.items() if style.gid
                }
                linear = _page_svgs(data, name, f"{name}-linear", on_linear_axes(drawing))
                figure = replace(figure, linear=linear, arms=arms if len(arms) > 1 else {})
            figures[name] = figure
    return figures


def _page_svgs(data: FigureInput, name: str, stem: str, drawing: Drawing) -> tuple[str, ...]:
    """The pages of the figure ``name``; ``stem`` begins their ids."""
    return tuple(
        page_svg(page(drawing, grid, PAGE), f"{stem}{number}", FIGURES[name].shows, data.names)
        for number, grid in enumerate(layout(drawing, PAGE)[:MOST_PAGES])
    )


def _stamp(data: FigureInput) -> str:
    """Return how far the plan is, as a sentence; empty once every planned pair has a result."""
    arms = data.trials.interim()
    return f"Interim: {'; '.join(arms)}. " if arms else ""


def _drawings(data: FigureInput, names: Sequence[str]) -> tuple[dict[str, Drawing], dict[str, str]]:
    """Return each drawing, and why a figure could not be drawn."""
    drawings, left_out = {}, {}
    for name in names:
        try:
            drawings[name] = FIGURES[name].load()(data)
        except DataError as error:
            left_out[name] = str(error)
    return drawings, left_out
