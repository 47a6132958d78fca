"""What laws say beyond their points: multipliers along compute, the next rung, ten times the compute."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scalevec.analysis.comparison.line_laws import ArmLaws
from scalevec.analysis.comparison.pair_laws import laws_to_show
from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput, named_setting
from scalevec.analysis.figures.law_curves import AXES
from scalevec.analysis.figures.panels import Key, PanelGrid, strips
from scalevec.analysis.figures.style import ArmStyle, Medium, band_between
from scalevec.analysis.figures.ticks import log_log_ticks
from scalevec.analysis.fits.columns import rung_size, variable_of
from scalevec.analysis.fits.fit import fitted_arms
from scalevec.analysis.fits.predicted_points import FACTORS, FittedArm
from scalevec.analysis.formatting import named_with_unit, percent
from scalevec.analysis.laws import formula_of
from scalevec.analysis.tables.notes import remark_notes
from scalevec.analysis.tables.scaling import next_rungs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = 31
"""Points of a curve."""
SAME_RATIO = 1.05
"""Runs within this factor of the tokens per parameter of a curve are drawn with it."""
ERROR = "error of the prediction (%)"


def draw_multipliers(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the compute multiplier of each arm against compute, a panel for each setting.

    The line is thin where the reference's law is extrapolated; laws that the runs refute are not drawn;
    markers stand at the compute of the runs.
    """
    laws: dict[Key, dict[str, ArmLaws]] = {}
    reasons, remarks = [], []
    for name, part in data.lines().items():
        for arm in part.others:
            names = {"reference": part.reference, "arm": arm}
            of_arm = laws_to_show(part.pairs(arm), part.options, names)
            if of_arm.laws is None:
                reasons.append(f"{arm}: {of_arm.reason}")
            else:
                laws.setdefault(("", name), {})[arm] = of_arm.laws
                remarks += [(text, arm) for text in [of_arm.unchecked] if text]
    if not laws:
        raise DataError("; ".join(dict.fromkeys(reasons)) or "an arm alone has no multiplier")

    def draw(axis: "Axes", of_setting: dict[str, ArmLaws]) -> None:
        axis.axhline(1, color=medium.ink, linewidth=0.8)
        for arm, of_arm in of_setting.items():
            _draw_multiplier(axis, of_arm, data.styles[arm], medium)
        axis.set(xscale="log", yscale="log")

    entries = data.entries(arm for of_setting in laws.values() for arm in of_setting)
    grid = PanelGrid(medium, (AXES["C"], "compute multiplier"), entries, log_log_ticks, height=2.8)
    reference = data.trials.reference
    caption = (
        f"How many times the compute {reference} needs for the arm's loss. Markers: runs; bands: "
        f"{percent(data.trials.options.level)} t interval from seed noise; thin: beyond the range of "
        f"{reference}."
    )
    return grid.drawing(laws, draw, " ".join([caption, *remark_notes(remarks)]))


def _draw_multiplier(axis: "Axes", laws: ArmLaws, style: ArmStyle, medium: Medium) -> None:
    """Draw the multiplier over the compute at which both sides were run."""
    low, high = max(np.min(x) for x in laws.x), min(np.max(x) for x in laws.x)
    runs = np.unique(laws.x[1])
    runs = runs[(runs >= low) & (runs <= high)]
    along, at_runs = (
        [laws.multiplier("grid", c, c) for c in where] for where in (np.geomspace(low, high, STEPS), runs)
    )
    x = np.array([each.at_flops for each in along])
    bounds = np.array([each.interval or (np.nan, np.nan) for each in along])
    band_between(axis, x, bounds[:, 0], bounds[:, 1], style.on(medium))
    values, values_at_runs = (
        np.array([np.nan if each.estimate is None else each.estimate for each in some])
        for some in (along, at_runs)
    )
    _draw_law(axis, x, values, np.array([each.extrapolated for each in along]), style, medium)
    # Markers stand where runs are, and nowhere else: a reader takes them for data.
    axis.plot(runs, values_at_runs, style.marker, color=style.on(medium))


def _draw_law(
    axis: "Axes", x: FloatArray, y: FloatArray, is_beyond: BoolArray, style: ArmStyle, medium: Medium
) -> None:
    """Draw a line that is thin where it goes beyond the data."""
    axis.plot(x, np.where(is_beyond, np.nan, y), color=style.on(medium), linestyle=style.dash)
    axis.plot(x, y, color=style.on(medium), linewidth=0.5)


def draw_hold_outs(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the relative error against the size of the rung that is predicted, a panel for each setting.

    Where one rung alone is predicted its errors stand arm by arm.
    """
    panels: dict[Key, dict[str, list[dict[str, Any]]]] = {}
    for setting, part in data.trials.law_parts():
        for record in next_rungs(part):
            if "predicted" in record:
                of_panel = panels.setdefault(("", named_setting(setting)), {})
                of_panel.setdefault(record["arm"], []).append(record)
    if not panels:
        raise DataError("no next rung is predicted: a law needs more rungs than parameters")
    errors = {
        key: {
            arm: (
                np.array([record["size"] for record in records], float),
                np.array([100 * record["relative_error"] for record in records]),
            )
            for arm, records in of_panel.items()
        }
        for key, of_panel in panels.items()
    }
    has_one_size = all(len({x for x, _ in of.values() for x in x.tolist()}) == 1 for of in errors.values())
    asked = "the next one" if has_one_size else "each next one"
    law = formula_of(data.trials.options)
    caption = f"The law {law} of the smaller rungs asked for {asked}: predicted over seen less one."
    if has_one_size:
        values = {key: {arm: y for arm, (_, y) in of.items()} for key, of in errors.items()}
        return strips(data, medium, values, ERROR, caption, at=0)

    def draw(axis: "Axes", of_panel: dict[str, tuple[FloatArray, FloatArray]]) -> None:
        axis.axhline(0, color=medium.ink, linewidth=0.8)
        for arm, (x, y) in of_panel.items():
            style = data.styles[arm]
            axis.plot(x, y, style.marker, color=style.on(medium), linestyle=style.dash)
        axis.set(xscale="log")

    entries = data.entries(arm for of_panel in errors.values() for arm in of_panel)
    labels = (f"{rung_size(data.trials.options)} of the predicted rung", ERROR)
    return PanelGrid(medium, labels, entries, log_log_ticks).drawing(errors, draw, caption)


def draw_predictions(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the laws to ten times the largest compute, thin beyond the data, a panel for each setting."""
    panels: dict[Key, list[FittedArm]] = {}
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

    def draw(axis: "Axes", fitted: list[FittedArm]) -> None:
        for arm in fitted:
            _draw_prediction(axis, arm, data.styles[arm.data.arm], medium)
        axis.set(xscale="log", yscale="log")

    arms = [arm for of_panel in panels.values() for arm in of_panel]
    missing = [(str(note), arm.data.arm) for arm in arms for note in arm.predict()["note"] if note]
    labels = (AXES[arms[0].axis[0]], named_with_unit(options.y, options.unit))
    grid = PanelGrid(medium, labels, data.entries(arm.data.arm for arm in arms), log_log_ticks, height=2.8)
    caption = (
        f"{formula_of(options)} at the tokens per parameter of each arm's largest run; points: runs of that "
        f"ratio; thin: beyond the data; bands: {percent(options.level)} of the law and, paler, of one "
        "further run, with the law's own error by its rolling hold-outs."
    )
    return grid.drawing(panels, draw, " ".join([caption, *remark_notes(missing)]))


def _draw_prediction(axis: "Axes", arm: FittedArm, style: ArmStyle, medium: Medium) -> None:
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
    _draw_law(axis, x, law["value"].to_numpy(float), (law["decades"] > 0).to_numpy(), style, medium)
    for ends in (law, run):
        band_between(axis, x, ends["low"].to_numpy(float), ends["high"].to_numpy(float), colour)
    axis.plot(seen[shown], rows[arm.data.options.y].to_numpy(float)[shown], style.marker, color=colour)
