"""The fitted laws beyond the data: to ten times the largest compute, with what one further run may show."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput, named_setting
from scalevec.analysis.figures.law_curves import AXES
from scalevec.analysis.figures.panels import PanelGrid
from scalevec.analysis.figures.style import ArmStyle, Medium, band_between
from scalevec.analysis.figures.ticks import log_log_ticks
from scalevec.analysis.fits.ahead import FACTORS, FittedArm
from scalevec.analysis.fits.columns import variable_of
from scalevec.analysis.fits.fit import fitted_arms
from scalevec.analysis.fits.intervals import NoInterval
from scalevec.analysis.formatting import joined, named_with_unit, percent
from scalevec.analysis.laws import formula_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = 31
SAME_RATIO = 1.05
"""Runs within this factor of the tokens per parameter of a curve are drawn with it."""


def draw_predictions(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the laws to ten times the largest compute, thin beyond the data, a panel for each setting."""
    panels: dict[tuple[str, str], list[FittedArm]] = {}
    reasons: list[str] = []
    options = replace(data.trials.options, where=None, hold_out="none")
    for setting, part in data.trials.law_parts():
        try:
            fitted = [arm for arm, _ in fitted_arms(part.rows, options) if arm.ahead()]
        except DataError as error:
            reasons.append(str(error))
            continue
        if fitted:
            panels["", named_setting(setting)] = fitted
    if not panels:
        raise DataError("; ".join(reasons) or f"law {options.law} has no larger compute")

    def draw(axis: "Axes", fitted: list[FittedArm]) -> None:
        for arm in fitted:
            _draw_arm(axis, arm, data.styles[arm.data.arm], medium)
        axis.set(xscale="log", yscale="log")

    entries = data.entries(arm.data.arm for of_panel in panels.values() for arm in of_panel)
    labels = (AXES[_axis(next(iter(panels.values()))[0])], named_with_unit(options.y, options.unit))
    return PanelGrid(medium, labels, entries, log_log_ticks, height=2.8).drawing(
        panels,
        draw,
        f"{formula_of(options)} at the tokens per parameter of each arm's largest run; points: runs of that "
        f"ratio; thin: beyond the data; bands: {percent(options.level)} of the law and, paler, of one "
        f"further run, given the form of the law.{_without_bands(panels.values())}",
    )


def _without_bands(panels: Iterable[Sequence[FittedArm]]) -> str:
    """Return which laws have no band, and why, as sentences that begin with a space."""
    arms_by_reason: dict[str, dict[str, None]] = {}
    for arm in chain(*panels):
        if isinstance(arm.uncertainty, NoInterval):
            reason = arm.uncertainty.reason.removeprefix("no interval: ")
            arms_by_reason.setdefault(reason, {})[arm.data.arm] = None
    return "".join(f" No band of {joined(list(arms))}: {reason}." for reason, arms in arms_by_reason.items())


def _axis(arm: FittedArm) -> str:
    return arm.data.options.x if arm.data.points.law.variables == ("x",) else "C"


def _draw_arm(axis: "Axes", arm: FittedArm, style: ArmStyle, medium: Medium) -> None:
    """Draw one law and its runs."""
    colour, x_name, rows = style.on(medium), _axis(arm), arm.data.rows
    seen = variable_of(rows, x_name, arm.data.options)
    if arm.data.points.law.variables != ("x",) and "n_tokens" in rows:
        ratio = rows["n_tokens"].to_numpy(float) / variable_of(rows, "N", arm.data.options)
        shown = np.abs(np.log(ratio / ratio[np.argmax(seen)])) < np.log(SAME_RATIO)
    else:
        shown = np.ones(len(rows), bool)
    # Along one ratio compute is the square of N and of D.
    first = (seen[shown].min() / seen.max()) ** (1 if x_name == "C" else 2)
    points = arm.line({f"{c:g}": c for c in np.geomspace(first, max(FACTORS.values()), STEPS)})
    x = np.array([point.at.get(x_name) or 6 * point.at["N"] * point.at["D"] for point in points])
    is_beyond = np.array([max(point.decades.values()) > 0 for point in points])
    y = np.array([point.value for point in points])
    axis.plot(x, np.where(is_beyond, np.nan, y), color=colour, linestyle=style.dash)
    axis.plot(x, y, color=colour, linewidth=0.5)
    for ends in ([point.confidence for point in points], [point.prediction for point in points]):
        low, high = np.array([span or (np.nan, np.nan) for span in ends]).T
        band_between(axis, x, low, high, colour)
    axis.plot(seen[shown], rows[arm.data.options.y].to_numpy(float)[shown], style.marker, color=colour)
