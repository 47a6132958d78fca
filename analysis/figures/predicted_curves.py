"""The fitted laws beyond the data: to ten times the largest compute, with what one further run may show."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput, named_setting
from scalevec.analysis.figures.law_curves import AXES
from scalevec.analysis.figures.panels import PanelGrid
from scalevec.analysis.figures.style import ArmStyle, Medium, band_between
from scalevec.analysis.figures.ticks import log_log_ticks
from scalevec.analysis.fits.columns import variable_of
from scalevec.analysis.fits.fit import fitted_arms
from scalevec.analysis.fits.predicted_points import FACTORS, FittedArm
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
    options = replace(data.trials.options, where=None)
    for setting, part in data.trials.law_parts():
        try:
            fitted = [arm for arm in fitted_arms(part.rows, options) if len(arm.line(FACTORS))]
        except DataError as error:
            reasons.append(str(error))
            continue
        if fitted:
            panels["", named_setting(setting)] = fitted
    if not panels:
        raise DataError("; ".join(reasons) or f"law {options.law} has no larger compute")
    missing: dict[str, dict[str, None]] = {}

    def draw(axis: "Axes", fitted: list[FittedArm]) -> None:
        for arm in fitted:
            _draw_arm(axis, arm, data.styles[arm.data.arm], medium)
        axis.set(xscale="log", yscale="log")

    for arm in (arm for of_panel in panels.values() for arm in of_panel):
        for note in arm.predict()["note"]:
            if note:
                missing.setdefault(note.removeprefix("no interval: "), {})[arm.data.arm] = None
    entries = data.entries(arm.data.arm for of_panel in panels.values() for arm in of_panel)
    labels = (AXES[next(iter(panels.values()))[0].axis[0]], named_with_unit(options.y, options.unit))
    return PanelGrid(medium, labels, entries, log_log_ticks, height=2.8).drawing(
        panels,
        draw,
        f"{formula_of(options)} at the tokens per parameter of each arm's largest run; points: runs of that "
        f"ratio; thin: beyond the data; bands: {percent(options.level)} of the law and, paler, of one "
        "further run, with the law's own error by its rolling hold-outs."
        + "".join(f" No band of {joined(list(arms))}: {reason}." for reason, arms in missing.items()),
    )


def _draw_arm(axis: "Axes", arm: FittedArm, style: ArmStyle, medium: Medium) -> None:
    """Draw one law and its runs."""
    colour, rows, (x_name, _) = style.on(medium), arm.data.rows, arm.axis
    seen = variable_of(rows, x_name, arm.data.options)
    shown = np.ones(len(rows), bool)
    if arm.data.points.law.variables != ("x",) and "n_tokens" in rows:
        ratio = rows["n_tokens"].to_numpy(float) / variable_of(rows, "N", arm.data.options)
        shown = np.abs(np.log(ratio / ratio[np.argmax(seen)])) < np.log(SAME_RATIO)
    # Along one ratio compute is the square of N and of D.
    first = (seen[shown].min() / seen.max()) ** (1 if x_name == "C" else 2)
    line = arm.line({f"{c:g}": c for c in np.geomspace(first, max(FACTORS.values()), STEPS)})
    law, run = arm.predict(line), arm.predict(line, "run")
    x = (law[x_name] if x_name in law else 6 * law["N"] * law["D"]).to_numpy(float)
    y = law["value"].to_numpy(float)
    axis.plot(x, np.where(law["decades"] > 0, np.nan, y), color=colour, linestyle=style.dash)
    axis.plot(x, y, color=colour, linewidth=0.5)
    for ends in (law, run):
        band_between(axis, x, ends["low"].to_numpy(float), ends["high"].to_numpy(float), colour)
    axis.plot(seen[shown], rows[arm.data.options.y].to_numpy(float)[shown], style.marker, color=colour)
