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
LEAST_SHOWN = ("residual", "products")
"""Measurements whose names end so say how another was computed; they are not drawn."""


def draw_curves(
    medium: Medium, curves: pd.DataFrame, rungs: Sequence[str], styles: Mapping[str, ArmStyle]
) -> "Figure":
    """Smoothed training loss against tokens, a panel a rung, one thin line a seed."""
    rows, columns = panels(len(rungs))
    figure, axes = medium.figure(rows, columns, height=2.7 * rows + 0.4, wide=columns > 1)
    for axis, rung in zip(axes.flat, rungs, strict=False):
        _draw_losses(axis, curves[curves["rung"] == rung], styles, medium)
        axis.set_title(rung)
        axis.set_xlabel("tokens")
    hide_unused(axes, len(rungs))
    for row in axes:
        row[0].set_ylabel("training loss, nats a token")
    arms = set(curves["arm"])
    legend_below(figure, [(arm, style) for arm, style in styles.items() if arm in arms], medium, 6)
    return figure


def _draw_losses(axis: "Axes", curves: pd.DataFrame, styles: Mapping[str, ArmStyle], medium: Medium) -> None:
    for (arm, _), own in curves.groupby(["arm", "trial_id"], sort=True):
        tokens, loss = smoothed(own)
        style = styles[str(arm)]
        axis.plot(tokens, loss, color=style.on(medium), linestyle=style.dash, linewidth=0.9, alpha=0.85)
    _token_axis(axis)


def _token_axis(axis: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(4))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))


def smoothed(curve: pd.DataFrame, n_points: int = 150) -> tuple[FloatArray, FloatArray]:
    """Tokens and a running mean of the loss over a fiftieth of the curve, thinned to ``n_points``."""
    ordered = curve.sort_values("tokens")
    window = max(1, len(ordered) // 50)
    loss = ordered["loss"].rolling(window, min_periods=1, center=True).mean().to_numpy(float)
    kept = np.unique(np.linspace(0, len(ordered) - 1, min(n_points, len(ordered))).astype(int))
    return ordered["tokens"].to_numpy(float)[kept], loss[kept]


def largest_rung(statistics: pd.DataFrame, rungs: Sequence[str]) -> str:
    """The last of ``rungs`` (smallest first) at which anything was recorded."""
    seen = set(statistics["rung"])
    return [rung for rung in rungs if rung in seen][-1]


def draw_vectors(
    medium: Medium,
    statistics: pd.DataFrame,
    name: str,
    arms: Sequence[str],
) -> "Figure":
    """One statistic of the scale vectors along the run, a panel an arm, a line a kind, a band over layers.

    ``statistics`` holds key, tokens, value, low, high and arm of one rung; seeds are averaged. Raises
    :class:`DataError` where the statistic was not recorded.
    """
    own = statistics[statistics["key"].str.fullmatch(f"sv/[^/]+/{name}")]
    shown = [arm for arm in arms if arm in set(own["arm"])]
    if not shown:
        raise DataError(f"no run recorded {name} of its scale vectors")
    kinds = sorted({key.split("/")[1] for key in own["key"]})
    styles = kind_styles(kinds)
    rows, columns = panels(len(shown))
    figure, axes = medium.figure(rows, columns, height=2.7 * rows + 0.9, wide=columns > 1, sharey=True)
    for axis, arm in zip(axes.flat, shown, strict=False):
        of_arm = own[own["arm"] == arm]
        for kind, style in styles.items():
            _draw_line(axis, of_arm[of_arm["key"] == f"sv/{kind}/{name}"], style, medium)
        axis.set_title(arm)
        axis.set_xlabel("tokens")
        _token_axis(axis)
        plain_ticks(axis.yaxis, 5)
    hide_unused(axes, len(shown))
    for row in axes:
        row[0].set_ylabel(STATISTICS[name])
    entries = [(kind.replace("_", " "), style) for kind, style in styles.items()]
    legend_below(figure, entries, medium, 4 if columns > 1 else 2)
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
    """Every quantity under ``theory/``, a panel each, a line an arm: mean over kinds and layers, and range.

    Raises :class:`DataError` where nothing was measured.
    """
    own = statistics[statistics["key"].str.startswith("theory/")]
    own = own.assign(quantity=own["key"].str.rpartition("/")[2])
    quantities = [q for q in dict.fromkeys(sorted(own["quantity"])) if not q.endswith(LEAST_SHOWN)]
    if not quantities:
        raise DataError("no run measured anything of the theory; ask for it with measure: in the sweep file")
    rows, columns = panels(len(quantities))
    figure, axes = medium.figure(rows, columns, height=2.5 * rows + 0.4, wide=columns > 1)
    for axis, quantity in zip(axes.flat, quantities, strict=False):
        of_quantity = own[own["quantity"] == quantity]
        for arm, style in styles.items():
            _draw_line(axis, _over_kinds(of_quantity[of_quantity["arm"] == arm]), style, medium)
        axis.set_title(quantity.replace("_", " "))
        axis.set_xlabel("tokens")
        _token_axis(axis)
        _value_axis(axis, of_quantity)
    hide_unused(axes, len(quantities))
    arms = set(own["arm"])
    legend_below(figure, [(arm, style) for arm, style in styles.items() if arm in arms], medium, 6)
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
