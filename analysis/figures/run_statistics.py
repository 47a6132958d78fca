"""What runs recorded along the way: statistics of their scale vectors, and measurements of the theory."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import MOST_PANELS, Drawing, FigureInput, paged
from scalevec.analysis.figures.style import (
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
    small_multiples,
    title,
    token_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_SETTINGS = 4
"""Columns of a figure that shows settings side by side; what is more goes onto a further page."""
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


def _recorded(data: FigureInput, prefix: str, absent: str) -> Iterator[pd.DataFrame]:
    """Yield the statistics under ``prefix`` of the largest rung and budget, with their setting, by page.

    Raises :class:`DataError` where there are none (``absent`` says so).
    """
    if data.statistics is None or data.statistics.empty:
        raise DataError("what runs recorded along the way is kept with a sweep, not in a table")
    rows = data.of_trials(data.statistics)
    rows = rows[rows["key"].str.startswith(prefix)]
    if rows.empty:
        raise DataError(absent)
    sizes = rows["rung"].map(data.trials.rows.groupby("rung")["n_params"].max())
    rows = rows[sizes == sizes.max()]
    rows = rows.assign(setting=rows["trial_id"].map(data.setting_of))
    budgets = rows["trial_id"].map(lambda trial: data.cells[trial].n_tokens if trial in data.cells else 0)
    rows = rows.loc[budgets == budgets.groupby(rows["setting"]).transform("max")]
    return (rows[rows["setting"].isin(page)] for page in paged(rows["setting"], MOST_SETTINGS))


def _draw_vectors(statistic: str, data: FigureInput, medium: Medium) -> Drawing:
    """Draw one statistic of the scale vectors, a panel per arm and setting, a line per kind of vector."""
    pages = []
    for recorded in _recorded(data, "sv/", "no run recorded statistics of its scale vectors"):
        rows = recorded[recorded["key"].str.fullmatch(f"sv/[^/]+/{statistic}")]
        settings = sorted(set(rows["setting"]))
        arms = [arm for arm in data.trials.arms if arm in set(rows["arm"])]
        if not arms:
            raise DataError(f"no run recorded {statistic} of its scale vectors")
        for page in paged(arms, MOST_PANELS // len(settings)):
            pages.append(_vector_page(statistic, rows, page, settings, medium))
    name = STATISTICS[statistic].capitalize()
    return Drawing(pages, f"{name} of the scale vectors, mean over seeds; bands: range over layers.")


draw_vector_mean = partial(_draw_vectors, "mean")
draw_vector_deviation = partial(_draw_vectors, "deviation")
draw_vector_near_zero = partial(_draw_vectors, "near_zero")


def _vector_page(
    statistic: str, rows: pd.DataFrame, arms: Sequence[str], settings: Sequence[str], medium: Medium
) -> "Figure":
    shown = {", ".join(filter(None, [arm, setting])): (arm, setting) for arm in arms for setting in settings}
    styles = kind_styles(sorted({key.split("/")[1] for key in rows["key"]}))

    def draw(axis: "Axes", name: str) -> None:
        arm, setting = shown[name]
        here = rows[(rows["arm"] == arm) & (rows["setting"] == setting)]
        for kind, style in styles.items():
            _draw_line(axis, here[here["key"] == f"sv/{kind}/{statistic}"], style, medium)
        axis.set_xlabel("tokens")
        token_axis(axis)
        plain_ticks(axis.yaxis, 5)

    entries = [(kind.replace("_", " "), style) for kind, style in styles.items()]
    layout = {"columns": len(settings), "sharey": True}
    return small_multiples(medium, list(shown), draw, label=STATISTICS[statistic], entries=entries, **layout)


def kind_styles(kinds: Sequence[str]) -> dict[str, ArmStyle]:
    """Return a colour and a marker for each map, solid for its input vector, dashed for its output vector."""
    maps = {kind: kind.removesuffix("_input").removesuffix("_output") for kind in kinds}
    numbers = {name: number for number, name in enumerate(sorted(set(maps.values())))}
    dash = {kind: DASHES[1] if kind.endswith("_output") else SOLID for kind in kinds}
    return {kind: replace(nth_style(numbers[maps[kind]]), dash=dash[kind]) for kind in kinds}


def _draw_line(axis: "Axes", rows: pd.DataFrame, style: ArmStyle, medium: Medium) -> None:
    """Draw the mean over seeds of value, low and high at each number of tokens."""
    if rows.empty:
        return
    means = rows.groupby("tokens", sort=True)[["value", "low", "high"]].mean()
    tokens, colour = means.index.to_numpy(float), style.on(medium)
    if (means["high"] > means["low"]).any():
        band_between(axis, tokens, means["low"].to_numpy(float), means["high"].to_numpy(float), colour)
    axis.plot(
        tokens,
        means["value"].to_numpy(float),
        color=colour,
        linestyle=style.dash,
        marker=style.marker,
        markevery=max(1, len(tokens) // 5),
        linewidth=1.0,
    )


def draw_theory(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the :data:`QUANTITIES` measured, a panel each, a line per arm: mean over kinds and layers, range.

    Several settings stand side by side, a column each.
    """
    absent = "no run measured anything of the theory; ask for it with measure: in the sweep file"
    pages = [_theory_page(rows, data, medium) for rows in _recorded(data, "theory/", absent)]
    return Drawing(pages, "Measured at the largest rung: mean and range over kinds of matrices and layers.")


def _theory_page(rows: pd.DataFrame, data: FigureInput, medium: Medium) -> "Figure":
    rows = rows.assign(quantity=rows["key"].str.rpartition("/")[2])
    quantities = [name for name in QUANTITIES if name in set(rows["quantity"])]
    settings = sorted(set(rows["setting"]))
    if not quantities:
        raise DataError(f"no run measured any of {', '.join(QUANTITIES)}")
    shown = [(quantity, setting) for quantity in quantities for setting in settings]
    side_by_side = len(settings) > 1
    n_rows, columns = (len(quantities), len(settings)) if side_by_side else panels(len(shown))
    figure, axes = medium.figure(n_rows, columns, height=1.95 * n_rows + 0.6, wide=columns > 1)
    for panel, (axis, (quantity, setting)) in enumerate(zip(axes.flat, shown, strict=False)):
        here = rows[(rows["quantity"] == quantity) & (rows["setting"] == setting)]
        for arm, style in data.styles.items():
            _draw_line(axis, _over_kinds(here[here["arm"] == arm]), style, medium)
        # Side by side, a row is a quantity and a column is a setting: each is named once.
        if not side_by_side or panel < columns:
            axis.set_title(title(setting, columns))
        if not side_by_side or panel % columns == 0:
            axis.set_ylabel(QUANTITIES[quantity])
        axis.set_xlabel("tokens")
        token_axis(axis, 4 if columns < 3 else 2)
        if len(here):
            _value_axis(axis, here)
    hide_unused(axes, len(shown))
    legend_below(figure, data.entries(rows["arm"]), medium)
    return figure


def _value_axis(axis: "Axes", rows: pd.DataFrame) -> None:
    """Set a logarithmic axis where all values are positive and span a factor above :data:`WIDE`."""
    low, high = float(rows["low"].min()), float(rows["high"].max())
    if low > 0 and high > WIDE * low:
        axis.set_yscale("log")
        log_axis(axis.yaxis, low, high, crowded=True)
    else:
        plain_ticks(axis.yaxis, 5)


def _over_kinds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return for each run and number of tokens the mean of the kinds' values, least low and largest high."""
    groups = rows.groupby(["trial_id", "tokens"], sort=True)
    return groups.agg(value=("value", "mean"), low=("low", "min"), high=("high", "max")).reset_index()
