"""What runs recorded along the way: statistics of their scale vectors, and measurements of the theory."""

from typing import TYPE_CHECKING

import pandas as pd

from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput
from scalevec.analysis.figures.panels import PanelGrid
from scalevec.analysis.figures.style import Medium, band_between
from scalevec.analysis.figures.ticks import log_ticks, token_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 50
"""Values that span more than this factor stand on a logarithmic axis."""
QUANTITIES = {
    "sv/mean": "mean of the\nscale vectors",
    "sv/deviation": "standard deviation\nof their entries",
    "sv/near_zero": "share of entries\nnear zero",
    "theory/sharpness": "sharpness",
    "theory/relative_error": "relative error of\nthe predicted step",
    "theory/cosine_predicted": "cosine, actual and\npredicted step",
    "theory/cosine_gradient": "cosine, actual step\nand gradient",
    "theory/eigenvalue_max": "largest eigenvalue of\nthe preconditioner",
    "theory/conserved_drift": "drift of the\nconserved quantity",
}
"""What is shown of what was recorded (``sv/KIND/NAME``, ``theory/[KIND/]NAME``), and its axis."""


def draw_statistics(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the :data:`QUANTITIES` recorded, a row each, a line per arm: mean over seeds, kinds and layers.

    Several settings stand side by side, a column each.
    """
    rows = _recorded(data)
    panels = {
        (axis, setting): rows[(rows["quantity"] == name) & (rows["setting"] == setting)]
        for name, axis in QUANTITIES.items()
        for setting in sorted(set(rows["setting"]))
        if name in set(rows["quantity"])
    }
    spans = rows.groupby("quantity")["value"].agg(["min", "max"])
    is_log = (spans["min"] > 0) & (spans["max"] > WIDE * spans["min"])

    def draw(axis: "Axes", here: pd.DataFrame) -> None:
        for arm, style in data.styles.items():
            if (of_arm := here[here["arm"] == arm]).empty:
                continue
            means = _over_kinds(of_arm).groupby("tokens", sort=True)[["value", "low", "high"]].mean()
            tokens, colour = means.index.to_numpy(float), style.on(medium)
            low, value, high = (means[name].to_numpy(float) for name in ("low", "value", "high"))
            if len(data.styles) == 1 and (high > low).any():
                band_between(axis, tokens, low, high, colour)
            axis.plot(
                tokens,
                value,
                color=colour,
                linestyle=style.dash,
                marker=style.marker,
                markevery=max(1, len(tokens) // 5),
                linewidth=1.0,
            )
        if is_log[here["quantity"].iloc[0]]:
            axis.set_yscale("log")

    def ticks(axis: "Axes") -> None:
        token_ticks(axis)
        if axis.get_yscale() == "log":
            log_ticks(axis.yaxis)

    ratios = (1.0,) * len({axis for axis, _ in panels})
    entries = data.entries(rows["arm"])
    grid = PanelGrid(medium, ("tokens", ""), entries, ticks, share=("all", "row"), ratios=ratios)
    caption = "Recorded at the largest rung: mean over seeds, kinds of matrices or vectors, and layers."
    return grid.drawing({key: here for key, here in panels.items() if len(here)}, draw, caption)


def _recorded(data: FigureInput) -> pd.DataFrame:
    """The statistics of the largest rung and budget, with their quantity and setting.

    Raises :class:`DataError` where there are none.
    """
    if data.statistics is None or data.statistics.empty:
        raise DataError("what runs recorded along the way is kept with a sweep, not in a table")
    rows = data.of_trials(data.statistics)
    quantities = rows["key"].str.partition("/")[0] + "/" + rows["key"].str.rpartition("/")[2]
    rows = rows.assign(quantity=quantities)[quantities.isin(QUANTITIES)]
    if rows.empty:
        raise DataError(
            "no run recorded statistics of scale vectors or of the theory (measure: in the sweep file)"
        )
    sizes = rows["rung"].map(data.trials.rows.groupby("rung")["n_params"].max())
    rows = rows[sizes == sizes.max()]
    rows = rows.assign(setting=rows["trial_id"].map(data.setting_of))
    budgets = rows["trial_id"].map(lambda trial: data.cells[trial].n_tokens if trial in data.cells else 0)
    chosen: pd.DataFrame = rows.loc[budgets == budgets.groupby(rows["setting"]).transform("max")]
    return chosen


def _over_kinds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return for each run and number of tokens the mean of the kinds' values, least low and largest high."""
    groups = rows.groupby(["trial_id", "tokens"], sort=True)
    return groups.agg(value=("value", "mean"), low=("low", "min"), high=("high", "max")).reset_index()
