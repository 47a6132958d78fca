"""Learning-rate bowls: validation loss against the tuned field, a panel for each tuned rung."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.data.tuning import setting_text
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput
from scalevec.analysis.figures.style import ArmStyle, Medium, plain_ticks, small_multiples
from scalevec.analysis.formatting import joined

if TYPE_CHECKING:
    from matplotlib.axes import Axes


TRANSFORMS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "log": np.log,
    "log(1-x)": lambda values: -np.log1p(-values),
    "linear": lambda values: values,
}
"""What a parabola is quadratic in, by the axis that tuning.json names."""
MOST_UPRIGHT = 4
"""More tick labels than these are slanted."""


def draw_tuning(data: FigureInput, medium: Medium) -> Drawing:
    """Draw a panel per tuned rung and setting: mean validation loss, parabola, chosen value (ringed).

    Diverged cells are crosses at the top; a censored choice is an open diamond.
    """
    if not data.choices:
        raise DataError("nothing was tuned, or the source is a table, which keeps no record of tuning")
    tuned = [choice for choice in data.choices if choice["grid"] and choice["arm"] in data.styles]
    if not tuned:
        raise DataError("no rung was tuned")
    # Setting by setting, so that with two or three rungs each row of panels is a setting.
    ordered = sorted(tuned, key=lambda choice: (setting_text(choice, tuned), choice["n_params"]))
    names = list(dict.fromkeys(_panel_name(choice, tuned) for choice in ordered))
    n_rungs = len({choice["rung"] for choice in tuned})
    figure = small_multiples(
        medium,
        names,
        lambda axis, name: _draw_panel(
            axis, [choice for choice in tuned if _panel_name(choice, tuned) == name], data.styles, medium
        ),
        label="validation loss (nats/token)",
        entries=data.entries(choice["arm"] for choice in tuned),
        columns=n_rungs if n_rungs < 4 else 0,
        row_height=3.1,
    )
    seeds = sorted({seed for choice in tuned for seed in choice["seeds"]})
    shared = set(data.trials.rows["seed"]) & set(seeds)
    used = "some are compared too" if shared else "no comparison trial uses them"
    return Drawing(
        [figure],
        f"Mean validation loss (tuning seeds: {joined([str(seed) for seed in seeds])}; {used}). Curve: the "
        "parabola through the lowest point and its neighbours, in the log of the rate. Ring: chosen; open "
        "diamond: censored at the edge; cross at the top: diverged.",
    )


def _panel_name(choice: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> str:
    """Return the rung, those settings in which the choices differ, and the field where there are several."""
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
    finite = np.isfinite(losses)
    x = _drawn(rates, scale)
    axis.plot(x[finite], losses[finite], style.marker, color=colour, alpha=0.85)
    at_top: dict[str, Any] = {"transform": axis.get_xaxis_transform()}
    axis.plot(x[~finite], np.full(np.sum(~finite), 0.97), "x", color=colour, **at_top)
    fitted_on = _scale([choice])
    parabola = bowl(rates[finite], losses[finite], fitted_on)
    if parabola is None:
        return
    grid = _between(rates[finite].min(), rates[finite].max(), fitted_on)
    fitted = parabola(TRANSFORMS[fitted_on](grid))
    axis.plot(_drawn(grid, scale), fitted, color=colour, linestyle=style.dash, linewidth=1.2)
    mark = "D" if choice["status"] == "censored" else "o"
    ring: dict[str, Any] = {
        "markersize": 12 * medium.squeeze[1],
        "markerfacecolor": "none",
        "markeredgewidth": 1.2,
    }
    chosen = np.array([choice["chosen"]], dtype=float)
    axis.plot(_drawn(chosen, scale), parabola(TRANSFORMS[fitted_on](chosen)), mark, color=colour, **ring)


def _scale(choices: Sequence[Mapping[str, Any]]) -> str:
    """Return the axis of these parabolas: linear as soon as one needs it, the logarithm if none says."""
    scales = [str(choice.get("axis", "log")) for choice in choices]
    return "linear" if "linear" in scales else scales[0]


def _drawn(values: FloatArray, scale: str) -> FloatArray:
    """Return where ``values`` are drawn: matplotlib's axis takes the logarithm itself, no other transform."""
    return values if scale == "log" else TRANSFORMS[scale](values)


def _between(low: float, high: float, scale: str) -> FloatArray:
    """Return 60 values from ``low`` to ``high``, evenly spaced on the scale."""
    if scale == "linear":
        return np.linspace(low, high, 60)
    return np.geomspace(low, high, 60) if scale == "log" else 1 - np.geomspace(1 - low, 1 - high, 60)


def bowl(rates: FloatArray, losses: FloatArray, scale: str = "log") -> np.polynomial.Polynomial | None:
    """Return the parabola through the lowest loss and its neighbours on its axis, as tuning reads it."""
    order = np.argsort(rates)
    rates, losses = rates[order], losses[order]
    if len(rates) < 3:
        return None
    middle = int(np.clip(np.argmin(losses), 1, len(losses) - 2))
    three = slice(middle - 1, middle + 2)
    return np.polynomial.Polynomial.fit(TRANSFORMS[scale](rates[three]), losses[three], 2)
