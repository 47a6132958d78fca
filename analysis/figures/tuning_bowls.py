"""Learning-rate bowls: validation loss against the tuned field, a panel for each tuned rung."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput
from scalevec.analysis.figures.panels import Key, PanelGrid
from scalevec.analysis.figures.style import ArmStyle, Medium
from scalevec.analysis.figures.ticks import plain_ticks
from scalevec.analysis.formatting import joined

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRANSFORMS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "log": np.log,
    "log(1-x)": lambda values: -np.log1p(-values),
    "linear": lambda values: values,
}
"""What a parabola is quadratic in, by the axis that tuning.json names."""
MOST_RATES = 4
"""Of more rates than these not all are named."""
_Choices = Sequence[Mapping[str, Any]]


def setting_text(choice: Mapping[str, Any], choices: _Choices) -> str:
    """Those settings of ``choice`` in which ``choices`` differ, as text."""
    settings = [other["setting"] for other in choices]
    differing = ((k, v) for k, v in choice["setting"].items() if any(s.get(k) != v for s in settings))
    return ", ".join(
        f"{key} {f'{value:g}' if isinstance(value, float) else value}" for key, value in differing
    )


def draw_tuning(data: FigureInput, medium: Medium) -> Drawing:
    """Draw a panel per tuned rung and setting: mean validation loss, parabola, chosen value (ringed).

    Diverged cells are crosses at the top; a censored choice is an open diamond.
    """
    if not data.choices:
        raise DataError("nothing was tuned, or the source is a table, which keeps no record of tuning")
    tuned = [choice for choice in data.choices if choice["grid"] and choice["arm"] in data.styles]
    if not tuned:
        raise DataError("no rung was tuned")
    fields = dict.fromkeys(str(choice["field"]) for choice in tuned)
    pages = [
        page
        for field in fields
        for page in _pages(data, medium, field, [choice for choice in tuned if choice["field"] == field])
    ]
    seeds = sorted({seed for choice in tuned for seed in choice["seeds"]})
    axes = "in " + joined([_in_words(field, tuned) for field in fields])
    shared = set(data.trials.rows["seed"]) & set(seeds)
    used = "some are compared too" if shared else "no comparison trial uses them"
    return Drawing(
        pages,
        f"Mean validation loss (tuning seeds: {joined([str(seed) for seed in seeds])}; {used}). Thick curve: "
        f"the parabola through the lowest point and its neighbours, {axes}. Ring: "
        "chosen; open diamond: censored at the edge; cross at the top: diverged.",
    )


def _pages(data: FigureInput, medium: Medium, field: str, choices: _Choices) -> "list[Figure]":
    """Return the pages of one tuned field, a row for each setting and a column for each rung."""
    ordered = sorted(choices, key=lambda choice: (setting_text(choice, choices), choice["n_params"]))
    panels: dict[Key, list[Mapping[str, Any]]] = {}
    for choice in ordered:
        panels.setdefault((setting_text(choice, choices), str(choice["rung"])), []).append(choice)
    panels = _told_once(panels)
    n_settings, n_rungs = (len({key[side] for key in panels}) for side in (0, 1))
    scale = _scale(choices)
    rates = sorted({rate for choice in choices for rate in choice["grid"]})

    def draw(axis: "Axes", of_panel: _Choices) -> None:
        for choice in of_panel:
            _draw_bowl(axis, choice, data.styles[choice["arm"]], medium, scale)
        if scale == "log":
            axis.set_xscale("log")

    def ticks(axis: "Axes") -> None:
        step = -(-len(rates) // MOST_RATES)
        axis.set_xticks(_drawn(np.array(rates[::step]), scale), [f"{rate:.3g}" for rate in rates[::step]])
        axis.minorticks_off()
        plain_ticks(axis.yaxis)

    entries = data.entries(choice["arm"] for choice in choices)
    # Rungs differ in their losses, so each has an axis of its own; settings of one rung are compared.
    share: Any = "all" if n_rungs == 1 else "col" if n_settings > 1 else "none"
    labels = (field.replace("_", " "), "validation loss (nats/token)")
    return PanelGrid(medium, labels, entries, ticks, height=2.5, share=("all", share)).pages(panels, draw)


def _in_words(field: str, choices: _Choices) -> str:
    """Return what the parabolas of ``field`` are quadratic in."""
    name = "rate" if field == "learning_rate" else field.replace("_", " ")
    of_scale = {
        "log": f"the log of the {name}",
        "log(1-x)": f"the log of 1 - {name}",
        "linear": f"the {name}",
    }
    return of_scale[_scale([choice for choice in choices if choice["field"] == field])]


def _told_once(panels: Mapping[Key, list[Mapping[str, Any]]]) -> dict[Key, list[Mapping[str, Any]]]:
    """Return the panels, one where settings share what was tuned; it is named by all of them."""
    settings: dict[tuple[str, str], list[str]] = {}
    for (setting, rung), choices in panels.items():
        told = str([[choice[name] for name in ("arm", "grid", "losses", "chosen")] for choice in choices])
        settings.setdefault((rung, told), []).append(setting)
    return {(_joined(names), rung): panels[names[0], rung] for (rung, _), names in settings.items()}


def _joined(settings: Sequence[str]) -> str:
    """Return ``tokens per parameter 8, 16, 32`` of settings that begin alike."""
    begin, _, first = settings[0].rpartition(" ")
    return " ".join(filter(None, [begin, ", ".join([first, *(s.rpartition(" ")[2] for s in settings[1:])])]))


def _draw_bowl(axis: "Axes", choice: Mapping[str, Any], style: ArmStyle, medium: Medium, scale: str) -> None:
    colour = style.on(medium)
    rates = np.array(choice["grid"], dtype=float)
    losses = np.array([np.nan if loss is None else loss for loss in choice["losses"]], dtype=float)
    finite = np.isfinite(losses)
    x = _drawn(rates, scale)
    axis.plot(x[finite], losses[finite], style.marker, color=colour, alpha=0.85)
    axis.plot(x[finite], losses[finite], color=colour, linewidth=0.6, alpha=0.4)
    at_top: dict[str, Any] = {"transform": axis.get_xaxis_transform()}
    axis.plot(x[~finite], np.full(np.sum(~finite), 0.97), "x", color=colour, **at_top)
    fitted_on = _scale([choice])
    parabola = bowl(rates[finite], losses[finite], fitted_on)
    if parabola is None:
        return
    # Beyond the points that it goes through it would say what nobody measured.
    low, high = parabola.domain
    through = [rate for rate in rates[finite] if low <= TRANSFORMS[fitted_on](rate) <= high]
    grid = _between(min(through), max(through), fitted_on)
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
