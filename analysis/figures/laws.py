"""Loss against size or compute with the fitted laws, and multipliers against compute."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.bands import Band, band
from analysis.data import BoolArray, DataError
from analysis.figures.style import (
    PAPER,
    ArmStyle,
    Medium,
    band_between,
    legend,
    legend_below,
    log_axis,
    plain_ticks,
)
from analysis.multipliers import Lines, line_problem
from analysis.pairs import Pairs
from analysis.settings import FitSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {"N": "parameters N", "D": "training tokens D", "C": "compute C, FLOPs"}
MULTIPLIER_POINTS = 25
MOST_INSIDE = 5
"""Arms of which a legend has room inside the axes."""


def draw_loss(
    medium: Medium,
    rows: pd.DataFrame,
    settings: FitSettings,
    styles: Mapping[str, ArmStyle],
    fitted: Sequence[str],
) -> "Figure":
    """Loss of completed trials against N, D or C (``settings.x``), with law and band for ``fitted`` arms."""
    figure, axes = medium.figure()
    axis = axes[0, 0]
    for arm, style in styles.items():
        own = rows[rows["arm"] == arm]
        if len(own):
            _draw_arm(axis, own, settings, style, medium, with_law=arm in fitted)
    axis.set(xscale="log", yscale="log", xlabel=AXES[settings.x], ylabel="test loss, nats a token")
    values = settings.variable(settings.x, rows)
    log_axis(axis.xaxis, values.min(), values.max(), crowded=medium is PAPER)
    plain_ticks(axis.yaxis)
    with_points = set(rows["arm"])
    _legend(figure, axis, [(arm, style) for arm, style in styles.items() if arm in with_points], medium)
    return figure


def _legend(figure: "Figure", axis: "Axes", entries: Sequence[tuple[str, ArmStyle]], medium: Medium) -> None:
    """Inside the axes where there is room, beside them for many arms."""
    if len(entries) <= MOST_INSIDE:
        legend(axis, entries, medium)
    else:
        legend_below(figure, entries, medium, 3)


def _draw_arm(
    axis: "Axes",
    rows: pd.DataFrame,
    settings: FitSettings,
    style: ArmStyle,
    medium: Medium,
    *,
    with_law: bool,
) -> None:
    colour = style.on(medium)
    law = _arm_band(rows, settings) if with_law else None
    if law is not None:
        axis.plot(law.x, law.loss, color=colour, linestyle=style.dash)
        if law.low is not None and law.high is not None:
            band_between(axis, law.x, law.low, law.high, colour)
    x = settings.variable(settings.x, rows)
    axis.plot(x, rows["loss"], style.marker, color=colour, alpha=0.75)


def _arm_band(rows: pd.DataFrame, settings: FitSettings) -> Band | None:
    try:
        return band(settings.variable(settings.x, rows), rows["loss"].to_numpy(float), settings)
    except DataError:  # the fit itself says why there is no law; the points are drawn all the same
        return None


def draw_multipliers(
    medium: Medium,
    pairs: Mapping[str, Pairs],
    settings: FitSettings,
    styles: Mapping[str, ArmStyle],
) -> "Figure":
    """Compute multiplier of each arm against compute; thin where the reference's law is extrapolated.

    Raises :class:`DataError` with the reasons where no arm has one.
    """
    lines, reasons = _lines(pairs, settings)
    if not lines:
        raise DataError("; ".join(dict.fromkeys(reasons)))
    figure, axes = medium.figure()
    axis = axes[0, 0]
    axis.axhline(1, color=medium.ink, linewidth=0.8)
    low, high = np.inf, 0.0
    for arm, line in lines.items():
        own = _shared_range(pairs[arm])
        low, high = min(low, own[0]), max(high, own[1])
        _draw_multiplier(axis, line, own, settings, styles[arm], medium)
    axis.set(xscale="log", yscale="log", xlabel=AXES["C"], ylabel="compute multiplier")
    log_axis(axis.xaxis, low, high, crowded=medium is PAPER)
    plain_ticks(axis.yaxis)
    _legend(figure, axis, [(arm, styles[arm]) for arm in lines], medium)
    return figure


def _lines(pairs: Mapping[str, Pairs], settings: FitSettings) -> tuple[dict[str, Lines], list[str]]:
    found: dict[str, Lines] = {}
    reasons = []
    for arm, own in pairs.items():
        problem = line_problem(own, settings.law)
        if problem:
            reasons.append(f"{arm}: {problem}")
            continue
        try:
            found[arm] = Lines(own, settings, "C")
        except DataError as error:
            reasons.append(f"{arm}: {error}")
    return found, reasons


def _shared_range(pairs: Pairs) -> tuple[float, float]:
    complete = pairs.complete
    return (
        float(max(complete["compute_reference"].min(), complete["compute_arm"].min())),
        float(min(complete["compute_reference"].max(), complete["compute_arm"].max())),
    )


def _draw_multiplier(
    axis: "Axes",
    line: Lines,
    span: tuple[float, float],
    settings: FitSettings,
    style: ArmStyle,
    medium: Medium,
) -> None:
    grid = np.geomspace(*span, MULTIPLIER_POINTS)
    found = [line.multiplier("grid", c, c, settings.level) for c in grid]
    values = np.array([one.estimate if one.estimate is not None else np.nan for one in found])
    outside = np.array([one.extrapolated for one in found])
    bounds = np.array([one.interval or (np.nan, np.nan) for one in found])
    colour = style.on(medium)
    band_between(axis, grid, bounds[:, 0], bounds[:, 1], colour)
    inside = np.where(outside, np.nan, values)
    axis.plot(grid, inside, color=colour, linestyle=style.dash, marker=style.marker, markevery=6)
    edge = _with_neighbour(outside)
    axis.plot(grid, np.where(edge, values, np.nan), color=colour, linewidth=0.5)


def _with_neighbour(outside: BoolArray) -> BoolArray:
    """The extrapolated points and those beside them, so that the two parts of a line meet."""
    beside = outside.copy()
    beside[:-1] |= outside[1:]
    beside[1:] |= outside[:-1]
    return np.asarray(beside & outside.any())
