"""What runs recorded along the way: statistics of their scale vectors, and measurements of the theory."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput
from scalevec.analysis.figures.panels import PanelGrid
from scalevec.analysis.figures.style import DASHES, SOLID, ArmStyle, Medium, band_between, nth_style
from scalevec.analysis.figures.ticks import log_ticks, token_ticks
from scalevec.analysis.formatting import few

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BANDS = 4
"""Of more lines in a panel the ranges would hide each other."""
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


def _recorded(data: FigureInput, prefix: str, absent: str) -> pd.DataFrame:
    """Return the statistics under ``prefix`` of the largest rung and budget, with their setting.

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
    chosen: pd.DataFrame = rows.loc[budgets == budgets.groupby(rows["setting"]).transform("max")]
    return chosen


def _draw_vectors(statistic: str, data: FigureInput, medium: Medium) -> Drawing:
    """Draw one statistic of the scale vectors, a panel per arm and setting, a line per kind of vector."""
    recorded = _recorded(data, "sv/", "no run recorded statistics of its scale vectors")
    rows = recorded[recorded["key"].str.fullmatch(f"sv/[^/]+/{statistic}")]
    if rows.empty:
        raise DataError(f"no run recorded {statistic} of its scale vectors")
    of_all = kind_styles(_kinds(rows))
    remark = ""
    if statistic == "near_zero":
        rows, remark = _some_near_zero(rows)
    styles = {kind: of_all[kind] for kind in _kinds(rows)}
    has_bands = len(styles) <= MOST_BANDS

    def draw(axis: "Axes", here: pd.DataFrame) -> None:
        for kind, style in styles.items():
            _draw_line(axis, here[here["key"] == f"sv/{kind}/{statistic}"], style, medium, has_band=has_bands)

    panels = {
        (arm, setting): rows[(rows["arm"] == arm) & (rows["setting"] == setting)]
        for arm in data.trials.arms
        for setting in sorted(set(rows["setting"]))
    }
    entries = [(kind.replace("_", " "), style) for kind, style in styles.items()]
    grid = PanelGrid(medium, ("tokens", STATISTICS[statistic]), entries, token_ticks, height=2.1)
    bands = "; bands: range over layers" if has_bands else " and layers"
    return grid.drawing(
        {key: here for key, here in panels.items() if len(here)},
        draw,
        f"{STATISTICS[statistic].capitalize()} of the scale vectors, mean over seeds{bands}.{remark}",
    )


def _kinds(rows: pd.DataFrame) -> list[str]:
    return sorted({key.split("/")[1] for key in rows["key"]})


def _some_near_zero(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The kinds and arms that ever have an entry near zero, and a remark that names the others.

    Raises :class:`DataError` where there are none.
    """
    some = rows[rows["value"] > 0]
    if some.empty:
        raise DataError("no scale vector had an entry near zero at any time")
    without = {name: sorted(set(rows[name]) - set(some[name])) for name in ("arm", "key")}
    names = [*without["arm"], *(key.split("/")[1].replace("_", " ") for key in without["key"])]
    remark = f" Never near zero, and not drawn: {few(names)}." if names else ""
    return rows[rows["key"].isin(some["key"]) & rows["arm"].isin(some["arm"])], remark


draw_vector_mean = partial(_draw_vectors, "mean")
draw_vector_deviation = partial(_draw_vectors, "deviation")
draw_vector_near_zero = partial(_draw_vectors, "near_zero")


def kind_styles(kinds: Sequence[str]) -> dict[str, ArmStyle]:
    """Return a colour and a marker for each map, solid for its input vector, dashed for its output vector."""
    maps = {kind: kind.removesuffix("_input").removesuffix("_output") for kind in kinds}
    numbers = {name: number for number, name in enumerate(sorted(set(maps.values())))}
    dash = {kind: DASHES[1] if kind.endswith("_output") else SOLID for kind in kinds}
    return {kind: replace(nth_style(numbers[maps[kind]]), dash=dash[kind]) for kind in kinds}


def _draw_line(axis: "Axes", rows: pd.DataFrame, style: ArmStyle, medium: Medium, *, has_band: bool) -> None:
    """Draw the mean over seeds of value, low and high at each number of tokens."""
    if rows.empty:
        return
    means = rows.groupby("tokens", sort=True)[["value", "low", "high"]].mean()
    tokens, colour = means.index.to_numpy(float), style.on(medium)
    if has_band and (means["high"] > means["low"]).any():
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
    """Draw the :data:`QUANTITIES` measured, a row each, a line per arm: mean over kinds and layers.

    Several settings stand side by side, a column each.
    """
    absent = "no run measured anything of the theory; ask for it with measure: in the sweep file"
    rows = _recorded(data, "theory/", absent)
    rows = rows.assign(quantity=rows["key"].str.rpartition("/")[2])
    quantities = [name for name in QUANTITIES if name in set(rows["quantity"])]
    if not quantities:
        raise DataError(f"no run measured any of {', '.join(QUANTITIES)}")
    is_log = {name: _spans_decades(rows[rows["quantity"] == name]) for name in quantities}

    def draw(axis: "Axes", here: pd.DataFrame) -> None:
        for arm, style in data.styles.items():
            _draw_line(axis, _over_kinds(here[here["arm"] == arm]), style, medium, has_band=False)
        if is_log[here["quantity"].iloc[0]]:
            axis.set_yscale("log")

    def ticks(axis: "Axes") -> None:
        token_ticks(axis)
        if axis.get_yscale() == "log":
            log_ticks(axis.yaxis)

    panels = {
        (QUANTITIES[quantity], setting): rows[(rows["quantity"] == quantity) & (rows["setting"] == setting)]
        for quantity in quantities
        for setting in sorted(set(rows["setting"]))
    }
    ratios = (1.0,) * len(quantities)
    grid = PanelGrid(
        medium, ("tokens", ""), data.entries(rows["arm"]), ticks, share=("all", "row"), ratios=ratios
    )
    return grid.drawing(
        {key: here for key, here in panels.items() if len(here)},
        draw,
        "Measured at the largest rung: mean over seeds, kinds of matrices and layers.",
    )


def _spans_decades(rows: pd.DataFrame) -> bool:
    """Return whether all values are positive and span a factor above :data:`WIDE`."""
    low, high = float(rows["value"].min()), float(rows["value"].max())
    return low > 0 and high > WIDE * low


def _over_kinds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return for each run and number of tokens the mean of the kinds' values, least low and largest high."""
    groups = rows.groupby(["trial_id", "tokens"], sort=True)
    return groups.agg(value=("value", "mean"), low=("low", "min"), high=("high", "max")).reset_index()
