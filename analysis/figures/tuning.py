"""Learning-rate bowls: validation loss against the tuned field, a panel for each tuned rung."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.data import DataError, FloatArray
from analysis.figures.style import ArmStyle, Medium, hide_unused, legend_below, panels, plain_ticks, title
from analysis.tuning import setting_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PLACES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "log": np.log,
    "log(1-x)": lambda values: -np.log1p(-values),
    "linear": lambda values: values,
}
"""Where a value of the field is on the axis of its parabola."""
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
        axis.set_title(title(name, columns))
    hide_unused(axes, len(names))
    axes[0, 0].set_ylabel("validation loss, nats a token")
    arms = {choice["arm"] for choice in tuned}
    legend_below(figure, [(arm, style) for arm, style in styles.items() if arm in arms], medium)
    return figure


def _panel_name(choice: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> str:
    """Rung, those settings in which the choices differ, and the field where there are several."""
    several = len({other["field"] for other in choices}) > 1
    field = str(choice["field"]).replace("_", " ") if several else ""
    return ", ".join(filter(None, [str(choice["rung"]), setting_text(choice, choices), field]))


def _draw_panel(
    axis: "Axes", choices: Sequence[Mapping[str, Any]], styles: Mapping[str, ArmStyle], medium: Medium
) -> None:
    scale = _scale(choices)
    for choice in choices:
        _draw_bowl(axis, choice, styles[choice["arm"]], medium, scale)
    rates = [rate for choice in choices for rate in choice["grid"]]
    if scale == "log":
        axis.set_xscale("log")
    ticks = sorted(set(rates))
    turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(ticks) > MOST_UPRIGHT else {}
    axis.set_xticks(_drawn(np.array(ticks), scale), [f"{rate:.3g}" for rate in ticks], **turned)
    axis.minorticks_off()
    axis.set_xlabel(str(choices[0]["field"]).replace("_", " "))
    plain_ticks(axis.yaxis, 5)


def _draw_bowl(axis: "Axes", choice: Mapping[str, Any], style: ArmStyle, medium: Medium, scale: str) -> None:
    colour = style.on(medium)
    rates = np.array(choice["grid"], dtype=float)
    losses = np.array([np.nan if loss is None else loss for loss in choice["losses"]], dtype=float)
    seen = np.isfinite(losses)
    at = _drawn(rates, scale)
    axis.plot(at[seen], losses[seen], style.marker, color=colour, alpha=0.85)
    at_top: dict[str, Any] = {"transform": axis.get_xaxis_transform()}
    axis.plot(at[~seen], np.full(np.sum(~seen), 0.97), "x", color=colour, **at_top)
    own = _scale([choice])
    parabola = bowl(rates[seen], losses[seen], own)
    if parabola is None:
        return
    grid = _between(rates[seen].min(), rates[seen].max(), own)
    axis.plot(
        _drawn(grid, scale), parabola(PLACES[own](grid)), color=colour, linestyle=style.dash, linewidth=1.2
    )
    mark = "D" if choice["status"] == "censored" else "o"
    ring: dict[str, Any] = {
        "markersize": 12 * medium.squeeze[1],
        "markerfacecolor": "none",
        "markeredgewidth": 1.2,
    }
    chosen = np.array([choice["chosen"]], dtype=float)
    axis.plot(_drawn(chosen, scale), parabola(PLACES[own](chosen)), mark, color=colour, **ring)


def _scale(choices: Sequence[Mapping[str, Any]]) -> str:
    """The axis of all these parabolas: linear as soon as one of them needs it, the logarithm if none says."""
    scales = [str(choice.get("axis", "log")) for choice in choices]
    return "linear" if "linear" in scales else scales[0]


def _drawn(values: FloatArray, scale: str) -> FloatArray:
    """Where ``values`` are drawn: a logarithm is the axis's own, another scale is drawn by its places."""
    return values if scale == "log" else PLACES[scale](values)


def _between(low: float, high: float, scale: str) -> FloatArray:
    """60 values from ``low`` to ``high``, evenly spaced on the scale."""
    if scale == "linear":
        return np.linspace(low, high, 60)
    return np.geomspace(low, high, 60) if scale == "log" else 1 - np.geomspace(1 - low, 1 - high, 60)


def bowl(rates: FloatArray, losses: FloatArray, scale: str = "log") -> np.polynomial.Polynomial | None:
    """The parabola on its axis through the lowest loss and its neighbours, which is what tuning reads."""
    order = np.argsort(rates)
    rates, losses = rates[order], losses[order]
    if len(rates) < 3:
        return None
    middle = int(np.clip(np.argmin(losses), 1, len(losses) - 2))
    three = slice(middle - 1, middle + 2)
    return np.polynomial.Polynomial.fit(PLACES[scale](rates[three]), losses[three], 2)
