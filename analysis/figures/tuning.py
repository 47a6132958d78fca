"""Learning-rate bowls: validation loss against the tuned field, a panel for each tuned rung."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.data import DataError, FloatArray
from analysis.figures.style import ArmStyle, Medium, hide_unused, legend_below, panels, plain_ticks
from analysis.tuning import setting_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_UPRIGHT = 4
"""More rates than these are set slanted."""


def draw_tuning(
    medium: Medium, choices: Sequence[Mapping[str, Any]], styles: Mapping[str, ArmStyle]
) -> "Figure":
    """One panel a tuned rung: mean validation loss against learning rate, parabola, chosen rate (ringed).

    Diverged cells are crosses at the top; a censored choice is an open diamond. Raises :class:`DataError`
    without a tuned rung.
    """
    tuned = [choice for choice in choices if choice["grid"]]
    names = list(dict.fromkeys(_panel_name(choice, tuned) for choice in tuned))
    if not names:
        raise DataError("no rung was tuned")
    rows, columns = panels(len(names))
    figure, axes = medium.figure(
        rows, columns, height=3.1 * rows + 0.4 if columns > 1 else 4.3, wide=columns > 1
    )
    for axis, name in zip(axes.flat, names, strict=False):
        own = [choice for choice in tuned if _panel_name(choice, tuned) == name]
        _draw_panel(axis, own, styles, medium)
        axis.set_title(name)
    hide_unused(axes, len(names))
    axes[0, 0].set_ylabel("validation loss, nats a token")
    arms = {choice["arm"] for choice in tuned}
    legend_below(figure, [(arm, style) for arm, style in styles.items() if arm in arms], medium, 6)
    return figure


def _panel_name(choice: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> str:
    """Rung, and those settings in which the choices differ."""
    return ", ".join(filter(None, [str(choice["rung"]), setting_text(choice, choices)]))


def _draw_panel(
    axis: "Axes", choices: Sequence[Mapping[str, Any]], styles: Mapping[str, ArmStyle], medium: Medium
) -> None:
    for choice in choices:
        _draw_bowl(axis, choice, styles[choice["arm"]], medium)
    rates = [rate for choice in choices for rate in choice["grid"]]
    axis.set_xscale("log")
    ticks = sorted(set(rates))
    turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(ticks) > MOST_UPRIGHT else {}
    axis.set_xticks(ticks, [f"{rate:g}" for rate in ticks], **turned)
    axis.minorticks_off()
    axis.set_xlabel(str(choices[0]["field"]).replace("_", " "))
    plain_ticks(axis.yaxis, 5)


def _draw_bowl(axis: "Axes", choice: Mapping[str, Any], style: ArmStyle, medium: Medium) -> None:
    colour = style.on(medium)
    rates = np.array(choice["grid"], dtype=float)
    losses = np.array([np.nan if loss is None else loss for loss in choice["losses"]], dtype=float)
    seen = np.isfinite(losses)
    axis.plot(rates[seen], losses[seen], style.marker, color=colour, alpha=0.85)
    at_top: dict[str, Any] = {"transform": axis.get_xaxis_transform()}
    axis.plot(rates[~seen], np.full(np.sum(~seen), 0.97), "x", color=colour, **at_top)
    parabola = bowl(rates[seen], losses[seen])
    if parabola is None:
        return
    grid = np.geomspace(rates[seen].min(), rates[seen].max(), 60)
    axis.plot(grid, parabola(np.log(grid)), color=colour, linestyle=style.dash, linewidth=1.2)
    mark = "D" if choice["status"] == "censored" else "o"
    ring: dict[str, Any] = {
        "markersize": 12 * medium.squeeze[1],
        "markerfacecolor": "none",
        "markeredgewidth": 1.2,
    }
    axis.plot(choice["chosen"], parabola(np.log(choice["chosen"])), mark, color=colour, **ring)


def bowl(rates: FloatArray, losses: FloatArray) -> np.polynomial.Polynomial | None:
    """The parabola in ln rate through the lowest loss and its neighbours, which is what tuning reads."""
    order = np.argsort(rates)
    rates, losses = rates[order], losses[order]
    if len(rates) < 3:
        return None
    middle = int(np.clip(np.argmin(losses), 1, len(losses) - 2))
    three = slice(middle - 1, middle + 2)
    return np.polynomial.Polynomial.fit(np.log(rates[three]), losses[three], 2)
