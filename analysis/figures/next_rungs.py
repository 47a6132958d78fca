"""Rolling hold-outs: the error of the law of the smaller rungs at each next one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput, named_setting
from scalevec.analysis.figures.panels import PanelGrid, arm_by_arm
from scalevec.analysis.figures.style import Medium
from scalevec.analysis.figures.ticks import log_ticks, plain_ticks
from scalevec.analysis.fits.columns import rung_size
from scalevec.analysis.laws import formula_of
from scalevec.analysis.tables.scaling import next_rungs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ERROR = "error of the prediction (%)"
_Panel = dict[str, list[dict[str, Any]]]
"""The records of the rungs that were predicted, by arm."""


def draw_hold_outs(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the relative error against the size of the rung that is predicted, a panel for each setting.

    Where one rung alone is predicted its errors stand arm by arm.
    """
    panels: dict[tuple[str, str], _Panel] = {}
    for setting, part in data.trials.law_parts():
        for record in next_rungs(part):
            if "predicted" in record:
                of_panel = panels.setdefault(("", named_setting(setting)), {})
                of_panel.setdefault(record["arm"], []).append(record)
    if not panels:
        raise DataError("no next rung is predicted: a law needs more rungs than parameters")
    draw = _strips if all(_has_one_size(of_panel) for of_panel in panels.values()) else _lines
    return draw(data, medium, panels)


def _has_one_size(of_panel: _Panel) -> bool:
    return len({record["size"] for records in of_panel.values() for record in records}) == 1


def _lines(data: FigureInput, medium: Medium, panels: Mapping[tuple[str, str], _Panel]) -> Drawing:
    def draw(axis: "Axes", of_panel: _Panel) -> None:
        axis.axhline(0, color=medium.ink, linewidth=0.8)
        for arm, records in of_panel.items():
            style = data.styles[arm]
            x, y = (np.array([record[key] for record in records]) for key in ("size", "relative_error"))
            axis.plot(x, 100 * y, style.marker, color=style.on(medium), linestyle=style.dash)
        axis.set(xscale="log")

    def ticks(axis: "Axes") -> None:
        log_ticks(axis.xaxis)
        plain_ticks(axis.yaxis)

    entries = data.entries(arm for of_panel in panels.values() for arm in of_panel)
    labels = (f"{rung_size(data.trials.options)} of the predicted rung", ERROR)
    return PanelGrid(medium, labels, entries, ticks).drawing(panels, draw, _caption(data, "each next one"))


def _strips(data: FigureInput, medium: Medium, panels: Mapping[tuple[str, str], _Panel]) -> Drawing:
    shown = {arm for of_panel in panels.values() for arm in of_panel}
    arms = [arm for arm in data.trials.arms if arm in shown]

    def draw(axis: "Axes", of_panel: _Panel) -> None:
        axis.axvline(0, color=medium.ink, linewidth=0.8)
        for y, arm in enumerate(arms):
            style = data.styles[arm]
            errors = [100 * record["relative_error"] for record in of_panel.get(arm, ())]
            axis.plot(errors, [y] * len(errors), style.marker, color=style.on(medium))
        arm_by_arm(axis, arms)

    height = 0.3 * len(arms) + 0.5
    grid = PanelGrid(medium, (ERROR, ""), ticks=lambda axis: plain_ticks(axis.xaxis), height=height)
    return replace(grid, alone=height + 0.6).drawing(panels, draw, _caption(data, "the next one"))


def _caption(data: FigureInput, asked: str) -> str:
    law = formula_of(data.trials.options)
    return f"The law {law} of the smaller rungs asked for {asked}: predicted over seen less one."
