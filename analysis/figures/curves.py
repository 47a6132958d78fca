"""What training recorded step by step: losses, statistics of the scale vectors, measures of the theory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.data import DataError, FloatArray
from analysis.figures.style import (
    DASHES,
    SOLID,
    ArmStyle,
    Medium,
    band_between,
    hide_unused,
    legend_below,
    log_axis,
    nth_style,
    panels,
    plain_ticks,
    title,
)
from analysis.words import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STATISTICS = {
    "mean": "mean of the entries",
    "deviation": "standard deviation of the entries",
    "near_zero": "share of entries near zero",
}
"""What is recorded of the scale vectors of a kind (``sv/KIND/NAME``), and the axis it stands on."""
WIDE = 50
"""Values that span more than this factor stand on a logarithmic axis."""
QUANTITIES = {
    "sharpness": "sharpness",
    "relative_error": "relative error of\nthe predicted step",
    "cosine_predicted": "cosine, actual and\npredicted step",
    "cosine_gradient": "cosine, actual step\nand gradient",
    "eigenvalue_max": "largest eigenvalue of\nthe preconditioner",
    "conserved_drift": "drift of the\nconserved quantity",
}
"""What is shown of what was measured (``theory/KIND/QUANTITY`` or ``theory/QUANTITY``), and its axis."""


def draw_curves(
    medium: Medium, curves: pd.DataFrame, names: Sequence[str], styles: Mapping[str, ArmStyle]
) -> "Figure":
    """Smoothed training loss against tokens, a panel for each of ``names`` (of ``rung``), a line a run."""
    rows, columns = panels(len(names))
    figure, axes = medium.figure(rows, columns, height=_height(rows, columns), wide=columns > 1)
    for axis, name in zip(axes.flat, names, strict=False):
        _draw_losses(axis, curves[curves["rung"] == name], styles, medium)
        axis.set_title(title(name, columns))
        axis.set_xlabel("tokens")
    hide_unused(axes, len(names))
    for row in axes:
        row[0].set_ylabel("training loss, nats a token")
    arms = set(curves["arm"])
    legend_below(figure, [(arm, style) for arm, style in styles.items() if arm in arms], medium)
    return figure


def _height(rows: int, columns: int) -> float:
    """Of panels with a legend below; a narrow single panel needs room for its labels."""
    return 4.3 if columns == 1 else 2.7 * rows + 0.4


def _draw_losses(axis: "Axes", curves: pd.DataFrame, styles: Mapping[str, ArmStyle], medium: Medium) -> None:
    for (arm, _), own in curves.groupby(["arm", "trial_id"], sort=True):
        tokens, loss = smoothed(own)
        style = styles[str(arm)]
        axis.plot(tokens, loss, color=style.on(medium), linestyle=style.dash, linewidth=0.9, alpha=0.85)
    _token_axis(axis)


def _token_axis(axis: "Axes", most: int = 4) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(most))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))


def smoothed(curve: pd.DataFrame, n_points: int = 150) -> tuple[FloatArray, FloatArray]:
    """Tokens and a running mean of the loss over a fiftieth of the curve, thinned to ``n_points``."""
    ordered = curve.sort_values("tokens")
    window = max(1, len(ordered) // 50)
    loss = ordered["loss"].rolling(window, min_periods=1, center=True).mean().to_numpy(float)
    kept = np.unique(np.linspace(0, len(ordered) - 1, min(n_points, len(ordered))).astype(int))
    return ordered["tokens"].to_numpy(float)[kept], loss[kept]


def draw_vectors(medium: Medium, statistics: pd.DataFrame, name: str, arms: Sequence[str]) -> "Figure":
    """One statistic of the scale vectors along the run, a panel an arm, a line a kind, a band over layers.

    ``statistics`` holds key, tokens, value, low, high, arm and setting; seeds are averaged, several settings
    stand side by side. Raises :class:`DataError` where the statistic was not recorded.
    """
    own = statistics[statistics["key"].str.fullmatch(f"sv/[^/]+/{name}")]
    seen = set(own["arm"])
    settings = sorted(set(own["setting"]))
    shown = [(arm, setting) for arm in arms if arm in seen for setting in settings]
    if not shown:
        raise DataError(f"no run recorded {name} of its scale vectors")
    styles = kind_styles(sorted({key.split("/")[1] for key in own["key"]}))
    rows, columns = panels(len(shown)) if len(settings) == 1 else (len(shown) // len(settings), len(settings))
    height = _height(rows, columns) + 0.5
    figure, axes = medium.figure(rows, columns, height=height, wide=columns > 1, sharey=True)
    for axis, (arm, setting) in zip(axes.flat, shown, strict=False):
        here = own[(own["arm"] == arm) & (own["setting"] == setting)]
        for kind, style in styles.items():
            _draw_line(axis, here[here["key"] == f"sv/{kind}/{name}"], style, medium)
        axis.set_title("\n".join(title(part, columns) for part in (arm, setting) if part))
        axis.set_xlabel("tokens")
        _token_axis(axis)
        plain_ticks(axis.yaxis, 5)
    hide_unused(axes, len(shown))
    for row in axes:
        row[0].set_ylabel(STATISTICS[name])
    entries = [(kind.replace("_", " "), style) for kind, style in styles.items()]
    legend_below(figure, entries, medium)
    return figure


def kind_styles(kinds: Sequence[str]) -> dict[str, ArmStyle]:
    """A colour and a marker for each map, solid for its input vector, dashed for its output vector."""
    maps = {kind: kind.removesuffix("_input").removesuffix("_output") for kind in kinds}
    places = {name: place for place, name in enumerate(sorted(set(maps.values())))}
    dash = {kind: DASHES[1] if kind.endswith("_output") else SOLID for kind in kinds}
    return {kind: replace(nth_style(places[maps[kind]]), dash=dash[kind]) for kind in kinds}


def _draw_line(axis: "Axes", rows: pd.DataFrame, style: ArmStyle, medium: Medium) -> None:
    """The mean over seeds of value, low and high at each number of tokens."""
    if rows.empty:
        return
    means = rows.groupby("tokens", sort=True)[["value", "low", "high"]].mean()
    tokens, colour = means.index.to_numpy(float), style.on(medium)
    if (means["high"] > means["low"]).any():
        band_between(axis, tokens, means["low"].to_numpy(float), means["high"].to_numpy(float), colour)
    every = max(1, len(tokens) // 5)
    axis.plot(
        tokens,
        means["value"].to_numpy(float),
        color=colour,
        linestyle=style.dash,
        marker=style.marker,
        markevery=every,
        linewidth=1.0,
    )


def draw_theory(medium: Medium, statistics: pd.DataFrame, styles: Mapping[str, ArmStyle]) -> "Figure":
    """The :data:`QUANTITIES` measured, a panel each, a line an arm: mean over kinds and layers, and range.

    Several settings stand side by side, a column each. Raises :class:`DataError` where none was measured.
    """
    own = statistics.assign(quantity=statistics["key"].str.rpartition("/")[2])
    quantities = [name for name in QUANTITIES if name in set(own["quantity"])]
    settings = sorted(set(own["setting"]))
    if not quantities:
        raise DataError(f"no run measured any of {', '.join(QUANTITIES)}")
    shown = [(quantity, setting) for quantity in quantities for setting in settings]
    rows, columns = panels(len(shown)) if len(settings) == 1 else (len(quantities), len(settings))
    figure, axes = medium.figure(rows, columns, height=2.4 * rows + 0.6, wide=columns > 1)
    for place, (axis, (quantity, setting)) in enumerate(zip(axes.flat, shown, strict=False)):
        here = own[(own["quantity"] == quantity) & (own["setting"] == setting)]
        for arm, style in styles.items():
            _draw_line(axis, _over_kinds(here[here["arm"] == arm]), style, medium)
        # Side by side, a row is a quantity and a column is a setting: each is named once.
        if len(settings) == 1 or place < columns:
            axis.set_title(title(setting, columns))
        if len(settings) == 1 or place % columns == 0:
            axis.set_ylabel(QUANTITIES[quantity])
        axis.set_xlabel("tokens")
        _token_axis(axis, 4 if columns < 3 else 2)
        if len(here):
            _value_axis(axis, here)
    hide_unused(axes, len(shown))
    arms = set(own["arm"])
    legend_below(figure, [(arm, style) for arm, style in styles.items() if arm in arms], medium)
    return figure


def _value_axis(axis: "Axes", rows: pd.DataFrame) -> None:
    """Logarithmic where all values are positive and span a factor above :data:`WIDE`."""
    low, high = float(rows["low"].min()), float(rows["high"].max())
    if low > 0 and high > WIDE * low:
        axis.set_yscale("log")
        log_axis(axis.yaxis, low, high, crowded=True)
    else:
        plain_ticks(axis.yaxis, 5)


def _over_kinds(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each run and number of tokens: mean of the kinds' values, least low and largest high."""
    groups = rows.groupby(["trial_id", "tokens"], sort=True)
    return groups.agg(value=("value", "mean"), low=("low", "min"), high=("high", "max")).reset_index()
