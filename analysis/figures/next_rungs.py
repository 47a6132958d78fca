"""Rolling hold-outs: the error of the law of the smaller rungs at each next one."""

from typing import TYPE_CHECKING, Any

import numpy as np

from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput, named_setting
from scalevec.analysis.figures.panels import PanelGrid
from scalevec.analysis.figures.style import Medium
from scalevec.analysis.figures.ticks import log_ticks, plain_ticks
from scalevec.analysis.fits.columns import rung_size
from scalevec.analysis.laws import formula_of
from scalevec.analysis.tables.hold_outs import rolling_of_parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARGIN = 2.0
"""The factor by which the axis goes beyond the predicted sizes: there may be only one."""


def draw_hold_outs(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the relative error against the size of the rung that is predicted, a panel for each setting."""
    panels: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for setting, record in rolling_of_parts(data.trials):
        if "predicted" in record:
            of_panel = panels.setdefault(("", named_setting(setting)), {})
            of_panel.setdefault(record["arm"], []).append(record)
    if not panels:
        raise DataError("no next rung is predicted: a law needs more rungs than parameters")
    sizes = [
        record["size"] for of_panel in panels.values() for of_arm in of_panel.values() for record in of_arm
    ]

    def draw(axis: "Axes", of_panel: dict[str, list[dict[str, Any]]]) -> None:
        axis.axhline(0, color=medium.ink, linewidth=0.8)
        for arm, records in of_panel.items():
            style = data.styles[arm]
            x, y = (np.array([record[key] for record in records]) for key in ("size", "relative_error"))
            axis.plot(x, 100 * y, style.marker, color=style.on(medium), linestyle=style.dash)
        axis.set(xscale="log", xlim=(min(sizes) / MARGIN, max(sizes) * MARGIN))

    def ticks(axis: "Axes") -> None:
        log_ticks(axis.xaxis)
        plain_ticks(axis.yaxis)

    entries = data.entries(arm for of_panel in panels.values() for arm in of_panel)
    labels = (f"{rung_size(data.trials.options)} of the predicted rung", "error of the prediction (%)")
    law = formula_of(data.trials.options)
    return PanelGrid(medium, labels, entries, ticks).drawing(
        panels,
        draw,
        f"The law {law} of the smaller rungs asked for each next one: predicted over seen less one.",
    )
