"""Loss against size or compute with the fitted laws, and multipliers against compute."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.bands import Band, band
from analysis.data import BoolArray, DataError
from analysis.figures.style import (
    PAPER,
    ArmStyle,
    Medium,
    band_between,
    hide_unused,
    legend,
    legend_below,
    log_axis,
    panels,
    plain_ticks,
)
from analysis.multipliers import Lines, line_to_show_problem
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
    parts: Mapping[str, pd.DataFrame],
    settings: FitSettings,
    styles: Mapping[str, ArmStyle],
    fitted: Sequence[str],
) -> "Figure":
    """Loss of completed trials against N, D or C (``settings.x``), with law and band for ``fitted`` arms.

    ``parts`` are the rows of each setting by its name: a panel each.
    """
    rows, columns = panels(len(parts))
    figure, axes = _law_figure(medium, rows, columns)
    for axis, (name, trials) in zip(axes.flat, parts.items(), strict=False):
        for arm, style in styles.items():
            own = trials[trials["arm"] == arm]
            if len(own):
                _draw_arm(axis, own, settings, style, medium, with_law=arm in fitted)
        axis.set(xscale="log", yscale="log", xlabel=AXES[settings.x], title=name)
        values = settings.variable(settings.x, trials)
        log_axis(axis.xaxis, values.min(), values.max(), crowded=medium is PAPER)
        plain_ticks(axis.yaxis)
    hide_unused(axes, len(parts))
    for row in axes:
        row[0].set_ylabel("test loss, nats a token")
    seen = {arm for trials in parts.values() for arm in trials["arm"]}
    _legend(figure, axes, [(arm, style) for arm, style in styles.items() if arm in seen], medium)
    return figure


def _law_figure(medium: Medium, rows: int, columns: int) -> tuple["Figure", Any]:
    height = 4.1 if columns == 1 else 3.1 * rows + 0.4
    return medium.figure(rows, columns, height=height, wide=columns > 1)


def _legend(figure: "Figure", axes: Any, entries: Sequence[tuple[str, ArmStyle]], medium: Medium) -> None:
    """Inside a single panel where there is room, below the panels otherwise."""
    if axes.size == 1 and len(entries) <= MOST_INSIDE:
        legend(axes[0, 0], entries, medium)
    else:
        legend_below(figure, entries, medium)


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
    parts: Mapping[str, Mapping[str, Pairs]],
    settings: FitSettings,
    styles: Mapping[str, ArmStyle],
) -> "Figure":
    """Compute multiplier of each arm against compute; thin where the reference's law is extrapolated.

    ``parts`` are the pairs of each arm by the name of their setting: a panel each. Raises
    :class:`DataError` with the reasons where no arm has a multiplier.
    """
    found = {name: _lines(pairs, settings) for name, pairs in parts.items()}
    lines = {name: own for name, (own, _) in found.items() if own}
    if not lines:
        raise DataError("; ".join(dict.fromkeys(reason for _, own in found.values() for reason in own)))
    rows, columns = panels(len(lines))
    figure, axes = _law_figure(medium, rows, columns)
    for axis, (name, own) in zip(axes.flat, lines.items(), strict=False):
        axis.axhline(1, color=medium.ink, linewidth=0.8)
        spans = [_shared_range(parts[name][arm]) for arm in own]
        for span, (arm, line) in zip(spans, own.items(), strict=True):
            _draw_multiplier(axis, line, span, settings, styles[arm], medium)
        axis.set(xscale="log", yscale="log", xlabel=AXES["C"], title=name)
        low, high = min(low for low, _ in spans), max(high for _, high in spans)
        log_axis(axis.xaxis, low, high, crowded=medium is PAPER)
        plain_ticks(axis.yaxis)
    hide_unused(axes, len(lines))
    for row in axes:
        row[0].set_ylabel("compute multiplier")
    seen = {arm for own in lines.values() for arm in own}
    _legend(figure, axes, [(arm, style) for arm, style in styles.items() if arm in seen], medium)
    return figure


def _lines(pairs: Mapping[str, Pairs], settings: FitSettings) -> tuple[dict[str, Lines], list[str]]:
    found: dict[str, Lines] = {}
    reasons = []
    for arm, own in pairs.items():
        problem = line_to_show_problem(own, settings.law)
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
