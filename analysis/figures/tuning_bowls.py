"""Learning-rate bowls: validation loss against the tuned field, a panel for each tuned rung."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import FigureInput
from scalevec.analysis.figures.panels import Drawing, Key
from scalevec.analysis.figures.style import ArmStyle
from scalevec.analysis.formatting import joined

_Transform = Callable[[FloatArray], FloatArray]
TRANSFORMS: dict[str, tuple[_Transform, _Transform]] = {
    "log": (np.log, np.exp),
    "log(1-x)": (lambda values: -np.log1p(-values), lambda values: -np.expm1(-values)),
    "linear": (np.asarray, np.asarray),
}
"""What a parabola is quadratic in and back, by the axis that tuning.json names."""
MOST_RATES = 4
"""Of more rates than these not all are named."""
STEPS = 60
"""Points of a parabola."""
_Choices = Sequence[Mapping[str, Any]]


def setting_text(choice: Mapping[str, Any], choices: _Choices) -> str:
    """Those settings of ``choice`` in which ``choices`` differ, as text."""
    settings = [other["setting"] for other in choices]
    differing = ((k, v) for k, v in choice["setting"].items() if any(s.get(k) != v for s in settings))
    return ", ".join(
        f"{key} {f'{value:g}' if isinstance(value, float) else value}" for key, value in differing
    )


def draw_tuning(data: FigureInput) -> Drawing:
    """Draw a panel per tuned rung, setting and field: mean validation loss, parabola, chosen value (ringed).

    Diverged cells are crosses at the top; a censored choice is an open diamond.
    """
    if not data.choices:
        raise DataError("nothing was tuned, or the source is a table, which keeps no record of tuning")
    tuned = [choice for choice in data.choices if choice["grid"] and choice["arm"] in data.styles]
    if not tuned:
        raise DataError("no rung was tuned")
    fields = dict.fromkeys(str(choice["field"]) for choice in tuned)
    panels: dict[Key, list[Mapping[str, Any]]] = {}
    for field in fields:
        of_field = [choice for choice in tuned if choice["field"] == field]
        for choice in sorted(of_field, key=lambda each: (setting_text(each, of_field), each["n_params"])):
            parts = [setting_text(choice, of_field), field.replace("_", " ") if len(fields) > 1 else ""]
            panels.setdefault((", ".join(filter(None, parts)), str(choice["rung"])), []).append(choice)
    panels = _told_once(panels)
    seeds = sorted({seed for choice in tuned for seed in choice["seeds"]})
    shared = set(data.trials.rows["seed"]) & set(seeds)
    used = "some are compared too" if shared else "no comparison trial uses them"
    return Drawing(
        {key: partial(_draw, choices, data.styles) for key, choices in panels.items()},
        ("", "validation loss (nats/token)"),
        f"Mean validation loss (tuning seeds: {joined([str(seed) for seed in seeds])}; {used}). Thick curve: "
        "the parabola through the lowest point and its neighbours, on its axis. Ring: chosen; open "
        "diamond: censored at the edge; cross at the top: diverged.",
        data.legend(choice["arm"] for choice in tuned),
        height=2.5,
        share=("none", "none"),
    )


def _told_once(panels: Mapping[Key, list[Mapping[str, Any]]]) -> dict[Key, list[Mapping[str, Any]]]:
    """Return the panels, one where settings share what was tuned: named by them, if the rung has others."""
    settings: dict[tuple[str, str], list[str]] = {}
    for (setting, rung), choices in panels.items():
        told = str(
            [[each[name] for name in ("arm", "field", "grid", "losses", "chosen")] for each in choices]
        )
        settings.setdefault((rung, told), []).append(setting)
    of_rung = Counter(rung for _, rung in panels)
    return {
        ("" if 1 < len(names) == of_rung[rung] else " or ".join(names), rung): panels[names[0], rung]
        for (rung, _), names in settings.items()
    }


def _draw(choices: _Choices, styles: Mapping[str, ArmStyle], axis: Axes) -> None:
    scale = _scale(choices)
    # Matplotlib takes the logarithm of an axis itself, no other transform.
    drawn = TRANSFORMS["linear" if scale == "log" else scale][0]
    rates = sorted({rate for choice in choices for rate in choice["grid"]})
    named = rates[:: -(-len(rates) // MOST_RATES)]
    for choice in choices:
        _draw_bowl(axis, choice, styles[choice["arm"]], drawn)
    axis.set(xscale="log" if scale == "log" else "linear", xlabel=str(choices[0]["field"]).replace("_", " "))
    axis.set_xticks(drawn(np.array(named)), [f"{rate:.3g}" for rate in named])
    axis.minorticks_off()


def _draw_bowl(axis: Axes, choice: Mapping[str, Any], style: ArmStyle, drawn: _Transform) -> None:
    colour, scale = style.color, _scale([choice])
    rates = np.array(choice["grid"], dtype=float)
    losses = np.array([np.nan if loss is None else loss for loss in choice["losses"]], dtype=float)
    finite = np.isfinite(losses)
    axis.plot(drawn(rates[finite]), losses[finite], style.marker, color=colour, alpha=0.85)
    top = axis.get_xaxis_transform()
    axis.plot(drawn(rates[~finite]), np.full(np.sum(~finite), 0.97), "x", color=colour, transform=top)
    parabola = bowl(rates[finite], losses[finite], scale)
    if parabola is None:
        return
    # Beyond the points that it goes through it would say what nobody measured.
    low, high = parabola.domain
    position = np.linspace(low, high, STEPS)
    axis.plot(drawn(TRANSFORMS[scale][1](position)), parabola(position), color=colour, linestyle=style.dash)
    chosen = np.array([choice["chosen"]], dtype=float)
    mark = "D" if choice["status"] == "censored" else "o"
    at = parabola(TRANSFORMS[scale][0](chosen))
    axis.plot(drawn(chosen), at, mark, color=colour, fillstyle="none", markersize=8)


def _scale(choices: _Choices) -> str:
    """Return the axis of these parabolas: linear as soon as one needs it, the logarithm if none says."""
    scales = [str(choice.get("axis", "log")) for choice in choices]
    return "linear" if "linear" in scales else scales[0]


def bowl(rates: FloatArray, losses: FloatArray, scale: str = "log") -> np.polynomial.Polynomial | None:
    """Return the parabola through the lowest loss and its neighbours on its axis, as tuning reads it."""
    order = np.argsort(rates)
    rates, losses = rates[order], losses[order]
    if len(rates) < 3:
        return None
    middle = int(np.clip(np.argmin(losses), 1, len(losses) - 2))
    three = slice(middle - 1, middle + 2)
    return np.polynomial.Polynomial.fit(TRANSFORMS[scale][0](rates[three]), losses[three], 2)
