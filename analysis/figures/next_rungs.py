"""Rolling hold-outs: the error of the law of the smaller rungs at each next one."""

from typing import TYPE_CHECKING, Any

import numpy as np

from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput, paged
from scalevec.analysis.figures.style import Medium, log_axis, small_multiples
from scalevec.analysis.fits.columns import rung_size
from scalevec.analysis.laws import formula_of
from scalevec.analysis.tables.hold_outs import rolling_of_parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_hold_outs(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the relative error against the size of the rung that is predicted, a panel for each setting."""
    panels: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for setting, record in rolling_of_parts(data.trials):
        if "predicted" in record:
            of_panel = panels.setdefault(", ".join(setting.values()), {})
            of_panel.setdefault(record["arm"], []).append(record)
    if not panels:
        raise DataError("no next rung is predicted: a law needs more rungs than parameters")

    def draw(axis: "Axes", name: str) -> None:
        axis.axhline(0, color=medium.ink, linewidth=0.8)
        for arm, records in panels[name].items():
            style = data.styles[arm]
            x, y = (np.array([record[key] for record in records]) for key in ("size", "relative_error"))
            axis.plot(x, 100 * y, style.marker, color=style.on(medium), linestyle=style.dash)
        sizes = [record["size"] for records in panels[name].values() for record in records]
        axis.set_xscale("log")
        log_axis(axis.xaxis, min(sizes), max(sizes))
        axis.set_xlabel(f"{rung_size(data.trials.options)} of the predicted rung")

    entries = data.entries(arm for of_panel in panels.values() for arm in of_panel)
    pages = [
        small_multiples(medium, page, draw, label="predicted over seen less one, %", entries=entries)
        for page in paged(panels)
    ]
    law = formula_of(data.trials.options)
    return Drawing(pages, f"The law {law} of the smaller rungs asked for each next one; zero: as seen.")
