"""Training loss along the runs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput, paged
from scalevec.analysis.figures.style import ArmStyle, Medium, plain_ticks, small_multiples, token_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN_FROM = 0.2
"""Share of a run from which on the losses fit on the axis: the first steps would take most of it."""


def draw_curves(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the smoothed training loss against tokens, a panel for each rung and setting, a line per run."""
    curves = data.training_curves()
    settings = curves["trial_id"].map(data.setting_of)
    curves = curves.assign(panel=curves["rung"].where(settings == "", curves["rung"] + ", " + settings))
    cells = [cell.name for cell in data.trials.cells]
    names = [name for name in dict.fromkeys(cells) if name in set(curves["panel"])]
    if not names:
        raise DataError("the training curves belong to no trial of the table")
    # Panels come setting by setting, so that with two or three rungs each row is a setting.
    n_rungs = curves["rung"].nunique()

    def draw(axis: "Axes", name: str) -> None:
        _draw_losses(axis, curves[curves["panel"] == name], data.styles, medium)

    pages = [
        small_multiples(
            medium,
            page,
            draw,
            label="training loss (nats/token)",
            entries=data.entries(curves["arm"]),
            columns=n_rungs if n_rungs < 4 else 0,
        )
        for page in paged(names)
    ]
    return Drawing(
        pages,
        "Training loss (running mean over a fiftieth of the run), one line per seed; the axis leaves out "
        "what is higher than any loss after the first fifth of a run.",
    )


def _draw_losses(axis: "Axes", curves: pd.DataFrame, styles: Mapping[str, ArmStyle], medium: Medium) -> None:
    shown = []
    for (arm, _), curve in curves.groupby(["arm", "trial_id"], sort=True):
        tokens, loss = smoothed(curve)
        style = styles[str(arm)]
        axis.plot(tokens, loss, color=style.on(medium), linestyle=style.dash, linewidth=0.9, alpha=0.85)
        shown.append(loss[tokens >= SHOWN_FROM * tokens[-1]])
    losses = np.concatenate(shown)
    margin = 0.04 * float(np.ptp(losses)) or 0.01
    axis.set_ylim(losses.min() - margin, losses.max() + margin)
    plain_ticks(axis.yaxis, 5)
    axis.set_xlabel("tokens")
    token_axis(axis)


def smoothed(curve: pd.DataFrame, n_points: int = 150) -> tuple[FloatArray, FloatArray]:
    """Return tokens and a running mean of the loss over a fiftieth of the curve, thinned to ``n_points``."""
    ordered = curve.sort_values("tokens")
    window = max(1, len(ordered) // 50)
    loss = ordered["loss"].rolling(window, min_periods=1, center=True).mean().to_numpy(float)
    kept = np.unique(np.linspace(0, len(ordered) - 1, min(n_points, len(ordered))).astype(int))
    return ordered["tokens"].to_numpy(float)[kept], loss[kept]
