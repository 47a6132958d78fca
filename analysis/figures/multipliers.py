"""Compute multipliers along compute."""

from typing import TYPE_CHECKING

import numpy as np

from scalevec.analysis.comparison.line_laws import ArmLaws
from scalevec.analysis.comparison.pair_laws import laws_to_show
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import FigureInput, named_setting
from scalevec.analysis.figures.law_curves import AXES
from scalevec.analysis.figures.panels import Drawing, Key, Panel
from scalevec.analysis.figures.style import ArmStyle, draw_curve, draw_points, ink
from scalevec.analysis.formatting import percent
from scalevec.analysis.tables.notes import remark_notes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = 31
"""Points of a curve."""


def draw_multipliers(data: FigureInput) -> Drawing:
    """Draw the compute multiplier of each arm against compute, a panel for each setting.

    The line is thin where the reference's law is extrapolated; laws that the runs refute are not drawn;
    markers stand at the compute of the runs.
    """
    laws: dict[Key, dict[str, ArmLaws]] = {}
    reasons, remarks = [], []
    for setting, part in data.trials.lines():
        for arm in part.others:
            of_arm = laws_to_show(part.paired(arm))
            if of_arm.laws is None:
                reasons.append(f"{arm}: {of_arm.reason}")
            else:
                laws.setdefault(("", named_setting(setting)), {})[arm] = of_arm.laws
                remarks += [(text, arm) for text in [of_arm.unchecked] if text]
    if not laws:
        raise DataError("; ".join(dict.fromkeys(reasons)) or "an arm alone has no multiplier")
    reference = data.trials.reference
    caption = (
        f"How many times the compute {reference} needs for the arm's loss. Markers: runs; bands: "
        f"{percent(data.trials.options.level)} t interval from seed noise; thin: beyond the range of "
        f"{reference}."
    )
    return Drawing(
        {key: _panel(of_setting, data) for key, of_setting in laws.items()},
        (AXES["C"], "compute multiplier"),
        " ".join([caption, *remark_notes(remarks)]),
        data.legend(arm for of_setting in laws.values() for arm in of_setting),
        height=2.8,
    )


def _panel(laws: dict[str, ArmLaws], data: FigureInput) -> Panel:
    def draw(axis: "Axes") -> None:
        axis.axhline(1, color=ink(), linewidth=0.8)
        for arm, of_arm in laws.items():
            _draw_multiplier(axis, of_arm, data.styles[arm])
        axis.set(xscale="log", yscale="log")

    return draw


def _draw_multiplier(axis: "Axes", laws: ArmLaws, style: ArmStyle) -> None:
    """Draw the multiplier over the compute at which both sides were run."""
    low, high = max(np.min(x) for x in laws.x), min(np.max(x) for x in laws.x)
    along = [laws.multiplier("grid", c) for c in np.geomspace(low, high, STEPS)]
    bounds = np.array([each.interval or (np.nan, np.nan) for each in along]).T
    values = np.array([each.estimate for each in along], float)
    is_beyond = np.array([each.extrapolated for each in along])
    draw_curve(axis, np.array([each.at_flops for each in along]), values, bounds, style, is_beyond)
    # Markers stand where runs are, and nowhere else: a reader takes them for data.
    runs = np.unique(laws.x[1])
    runs = runs[(runs >= low) & (runs <= high)]
    draw_points(axis, runs, np.array([laws.multiplier("run", c).estimate for c in runs], float), style)
