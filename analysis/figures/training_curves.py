"""Training loss along the runs, as its difference to the reference's at the same step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput
from scalevec.analysis.figures.panels import Key, PanelGrid
from scalevec.analysis.figures.style import Medium, band_between
from scalevec.analysis.figures.ticks import plain_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARES = np.linspace(0.2, 1.0, 81)
"""Of a run, where curves are compared: in the first steps losses fall too fast for a difference to show."""
WINDOW = 0.04
"""Share of a run over which the loss is averaged."""
MOST_TOGETHER = 5
"""Arms in one panel; of more, each has a panel of its own."""


@dataclass(frozen=True)
class _Differences:
    """Of one arm to the reference, at :data:`SHARES`: a row per seed [seeds, shares]."""

    arm: str
    of_seeds: FloatArray


def draw_curves(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the training loss less that of the reference, by seed, a panel for each rung and setting."""
    panels = _panels(data)
    if not panels:
        raise DataError("no training curve has one of the reference with its seed beside it")
    arms = {each.arm for of_panel in panels.values() for each in of_panel}
    is_apart = len(arms) > MOST_TOGETHER
    if is_apart:
        panels = {
            (", ".join(filter(None, key)), each.arm): [each]
            for key, of_panel in panels.items()
            for each in of_panel
        }

    def draw(axis: "Axes", of_panel: list[_Differences]) -> None:
        axis.axhline(0, color=medium.ink, linewidth=0.8)
        for each in of_panel:
            style, mean = data.styles[each.arm], each.of_seeds.mean(axis=0)
            colour = style.on(medium)
            axis.plot(100 * SHARES, mean, color=colour, linestyle=style.dash, linewidth=1.1)
            if len(each.of_seeds) > 1:
                low, high = each.of_seeds.min(axis=0), each.of_seeds.max(axis=0)
                band_between(axis, 100 * SHARES, low, high, colour)

    reference = data.trials.reference
    grid = PanelGrid(
        medium,
        ("share of the run (%)", f"training loss difference to {reference} (nats/token)"),
        [] if is_apart else [(arm, replace(style, marker="")) for arm, style in data.entries(arms)],
        _ticks,
        height=2.1,
    )
    return grid.drawing(
        panels,
        draw,
        f"Training loss less that of {reference} at the same step, mean over seeds (running mean over "
        f"{100 * WINDOW:g} % of the run, the first fifth left out); bands: range over seeds. Below zero is "
        "better.",
    )


def _ticks(axis: "Axes") -> None:
    axis.set_xticks([20, 40, 60, 80, 100])
    plain_ticks(axis.yaxis)


def _panels(data: FigureInput) -> dict[Key, list[_Differences]]:
    """Return the differences by setting and rung, in the order of the cells."""
    curves = data.training_curves()
    runs = curves["trial_id"] if data.places else curves["rung"] + curves["arm"] + curves["seed"].map(str)
    place_of: Mapping[str, Key] = data.places or dict(
        zip(runs, (("", str(rung)) for rung in curves["rung"]), strict=True)
    )
    losses: dict[Key, dict[tuple[str, int], FloatArray]] = {key: {} for key in place_of.values()}
    for run, curve in curves.groupby(runs, sort=True):
        if str(run) in place_of:
            first = curve.iloc[0]
            losses[place_of[str(run)]][first["arm"], first["seed"]] = smoothed(curve)
    panels = {key: _differences(of_panel, data) for key, of_panel in losses.items()}
    return {key: of_panel for key, of_panel in panels.items() if of_panel}


def _differences(losses: Mapping[tuple[str, int], FloatArray], data: FigureInput) -> list[_Differences]:
    reference = {seed: loss for (arm, seed), loss in losses.items() if arm == data.trials.reference}
    result = []
    for name in data.trials.others:
        of_arm = {seed: loss for (arm, seed), loss in losses.items() if arm == name}
        if pairs := [loss - reference[seed] for seed, loss in of_arm.items() if seed in reference]:
            result.append(_Differences(name, np.array(pairs)))
    return result


def smoothed(curve: pd.DataFrame) -> FloatArray:
    """Return the running mean of the loss of one run (tokens, loss) at :data:`SHARES` of its tokens."""
    ordered = curve.sort_values("tokens")
    window = max(1, round(WINDOW * len(ordered)))
    loss = ordered["loss"].rolling(window, min_periods=1, center=True).mean().to_numpy(float)
    tokens = ordered["tokens"].to_numpy(float)
    return np.asarray(np.interp(SHARES, tokens / tokens[-1], loss))
