"""Compute multipliers against compute, from the laws of both sides of the pairs."""

from typing import TYPE_CHECKING

import numpy as np

from scalevec.analysis.comparison.line_laws import ArmLaws
from scalevec.analysis.comparison.pair_laws import laws_to_show
from scalevec.analysis.comparison.scale import unchecked
from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput
from scalevec.analysis.figures.law_curves import AXES
from scalevec.analysis.figures.panels import PanelGrid
from scalevec.analysis.figures.style import ArmStyle, Medium, band_between
from scalevec.analysis.figures.ticks import log_log_ticks
from scalevec.analysis.formatting import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MULTIPLIER_POINTS = 25


def draw_multipliers(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the compute multiplier of each arm against compute, a panel for each setting.

    The line is thin where the reference's law is extrapolated; laws that the runs refute are not drawn;
    markers stand at the compute of the runs.
    """
    laws: dict[tuple[str, str], dict[str, ArmLaws]] = {}
    reasons, remarks = [], []
    for name, part in data.lines().items():
        for arm in part.others:
            names = {"reference": part.reference, "arm": arm}
            of_arm = laws_to_show(part.pairs(arm), part.options, names)
            if of_arm.laws is None:
                reasons.append(f"{arm}: {of_arm.reason}")
            else:
                laws.setdefault(("", name), {})[arm] = of_arm.laws
                remarks += [f"{arm}: {text}." for text in [unchecked(of_arm.held)] if text]
    if not laws:
        raise DataError("; ".join(dict.fromkeys(reasons)) or "an arm alone has no multiplier")

    def draw(axis: "Axes", of_setting: dict[str, ArmLaws]) -> None:
        axis.axhline(1, color=medium.ink, linewidth=0.8)
        for arm, of_arm in of_setting.items():
            _draw_multiplier(axis, of_arm, _shared_range(of_arm), data.styles[arm], medium)
        axis.set(xscale="log", yscale="log")

    entries = data.entries(arm for of_setting in laws.values() for arm in of_setting)
    grid = PanelGrid(medium, (AXES["C"], "compute multiplier"), entries, log_log_ticks, height=2.8)
    reference = data.trials.reference
    return grid.drawing(
        laws,
        draw,
        f"How many times the compute {reference} needs for the arm's loss. Markers: runs; bands: "
        f"{percent(data.trials.options.level)} t interval from seed noise; thin: beyond the range of "
        + " ".join([f"{reference}.", *dict.fromkeys(remarks)]),
    )


def _shared_range(laws: ArmLaws) -> tuple[float, float]:
    """Return the least and the largest compute at which both sides were run."""
    return float(max(np.min(x) for x in laws.x)), float(min(np.max(x) for x in laws.x))


def _draw_multiplier(
    axis: "Axes", laws: ArmLaws, span: tuple[float, float], style: ArmStyle, medium: Medium
) -> None:
    grid = np.geomspace(*span, MULTIPLIER_POINTS)
    values, bounds, outside = _along(laws, grid)
    colour = style.on(medium)
    band_between(axis, grid, bounds[:, 0], bounds[:, 1], colour)
    axis.plot(grid, np.where(outside, np.nan, values), color=colour, linestyle=style.dash)
    edge = _with_neighbour(outside & np.isfinite(values))
    axis.plot(grid, np.where(edge, values, np.nan), color=colour, linewidth=0.5)
    # Markers stand where runs are, and nowhere else: a reader takes them for data.
    runs = np.unique(laws.x[1])
    runs = runs[(runs >= span[0]) & (runs <= span[1])]
    axis.plot(runs, _along(laws, runs)[0], style.marker, color=colour)


def _along(laws: ArmLaws, c: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the multipliers at ``c`` [points], their intervals [points, 2] and which are extrapolated."""
    results = [laws.multiplier("grid", at, at) for at in c]
    values = np.array([np.nan if result.estimate is None else result.estimate for result in results])
    bounds = np.array([result.interval or (np.nan, np.nan) for result in results])
    outside = np.array([result.extrapolated for result in results])
    return values, bounds, outside


def _with_neighbour(outside: BoolArray) -> BoolArray:
    """Return the extrapolated points and those beside them, so that the two parts of a line meet."""
    beside = outside.copy()
    beside[:-1] |= outside[1:]
    beside[1:] |= outside[:-1]
    return np.asarray(beside & outside.any())
