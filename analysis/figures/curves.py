"""Curves along the runs: training loss against the reference, and what was recorded of vectors and theory."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import FigureInput
from scalevec.analysis.figures.panels import Drawing, Key, Panel
from scalevec.analysis.figures.style import draw_curve, ink
from scalevec.analysis.formatting import count

SHARES = np.linspace(0.2, 1.0, 81)
"""Of a run, where curves are compared: in the first steps losses fall too fast for a difference to show."""
WINDOW = 0.04
"""Share of a run over which the loss is averaged."""
MOST_TOGETHER = 5
"""Arms in one panel; of more, each has a panel of its own."""
WIDE = 50
"""Values that span more than this factor stand on a logarithmic axis."""
QUANTITIES = {
    "sv/mean": "mean of the scale vectors",
    "sv/deviation": "standard deviation of their entries",
    "sv/near_zero": "share of entries near zero",
    "theory/sharpness": "sharpness",
    "theory/relative_error": "relative error of the predicted step",
    "theory/cosine_predicted": "cosine, actual and predicted step",
    "theory/cosine_gradient": "cosine, actual step and gradient",
    "theory/eigenvalue_max": "largest eigenvalue of the preconditioner",
    "theory/conserved_drift": "drift of the conserved quantity",
}
"""What is shown of what was recorded (``sv/KIND/NAME``, ``theory/[KIND/]NAME``), and its title."""
_Curves = Mapping[str, pd.DataFrame]
"""By arm: columns value, low and high, by the place along the run."""


def draw_curves(data: FigureInput) -> Drawing:
    """Draw the training loss less that of the reference, by seed, a panel for each rung and setting."""
    rows = data.placed(data.curves, "training curves")
    panels: dict[Key, _Curves] = {}
    for cell, of_place in rows[np.isfinite(rows["loss"])].groupby(["setting", "rung"], sort=False):
        if curves := _differences(of_place, data):
            panels[cell] = curves
    if not panels:
        raise DataError("no training curve has one of the reference with its seed beside it")
    arms = {arm for of_panel in panels.values() for arm in of_panel}
    if is_apart := len(arms) > MOST_TOGETHER:
        panels = {
            (", ".join(filter(None, key)), arm): {arm: curve}
            for key, of_panel in panels.items()
            for arm, curve in of_panel.items()
        }
    reference = data.trials.reference
    return Drawing(
        {key: partial(_draw_along, curves, data) for key, curves in panels.items()},
        ("share of the run (%)", f"training loss difference to {reference} (nats/token)"),
        f"Training loss less that of {reference} at the same step, mean over seeds (running mean over "
        f"{100 * WINDOW:g} % of the run, the first fifth left out); bands: range over seeds. Below zero is "
        "better.",
        {} if is_apart else data.legend(arms),
        height=2.1,
    )


def _draw_along(curves: _Curves, data: FigureInput, axis: Axes, *, along_tokens: bool = False) -> None:
    """Draw a curve for each arm, with some markers; differences have a line at zero."""
    values = pd.concat([curve["value"] for curve in curves.values()])
    if along_tokens:
        axis.xaxis.set_major_formatter(lambda value, _: count(value))
    else:
        axis.axhline(0, color=ink(), linewidth=0.8)
    if along_tokens and 0 < values.min() < values.max() / WIDE:
        axis.set_yscale("log")
    for arm, curve in curves.items():
        x, style = curve.index.to_numpy(float), data.styles[arm]
        y, low, high = (curve[name].to_numpy(float) for name in ("value", "low", "high"))
        draw_curve(axis, x, y, (low, high), style)
        step = max(1, len(x) // 5)
        axis.plot(x[step // 2 :: step], y[step // 2 :: step], style.marker, color=style.color)


def _differences(rows: pd.DataFrame, data: FigureInput) -> dict[str, pd.DataFrame]:
    """Return the difference of each arm to the reference: its mean over seeds, and their range."""
    losses = {run: smoothed(curve) for run, curve in rows.groupby(["arm", "seed"], sort=False)}
    result = {}
    for name in data.trials.others:
        pairs = [
            loss - losses[data.trials.reference, seed]
            for (arm, seed), loss in losses.items()
            if arm == name and (data.trials.reference, seed) in losses
        ]
        if pairs:
            of_seeds = pd.DataFrame(np.array(pairs).T, index=100 * SHARES)
            result[name] = of_seeds.agg(["mean", "min", "max"], axis=1).set_axis(
                ["value", "low", "high"], axis=1
            )
    return result


def smoothed(curve: pd.DataFrame) -> FloatArray:
    """Return the running mean of the loss of one run (tokens, loss) at :data:`SHARES` of its tokens."""
    tokens = curve["tokens"].to_numpy(float)
    return np.asarray(np.interp(SHARES, tokens / tokens[-1], running_mean(curve, center=True)))


def running_mean(curve: pd.DataFrame, *, center: bool) -> FloatArray:
    """Return the mean of the loss of one run over :data:`WINDOW` around each row, or before it."""
    window = max(1, round(WINDOW * len(curve)))
    return curve["loss"].rolling(window, min_periods=1, center=center).mean().to_numpy(float)


def draw_statistics(data: FigureInput) -> Drawing:
    """Draw the :data:`QUANTITIES` recorded at the largest rung and budget of each setting, a panel each.

    The mean over seeds, kinds and layers; of one arm alone its range over kinds too.
    """
    rows = data.placed(data.statistics, "statistics of runs")
    rows = rows.assign(quantity=rows["key"].str.partition("/")[0] + "/" + rows["key"].str.rpartition("/")[2])
    rows = rows[rows["quantity"].isin(QUANTITIES)]
    if rows.empty:
        raise DataError(
            "no run recorded statistics of scale vectors or of the theory (measure: in the sweep file)"
        )
    rows = rows[rows["n_params"] == rows["n_params"].max()]
    rows = rows[rows["n_tokens"] == rows.groupby("setting")["n_tokens"].transform("max")]
    by_kind = rows.groupby(["quantity", "setting", "arm", "trial_id", "tokens"])
    of_runs = by_kind.agg(value=("value", "mean"), low=("low", "min"), high=("high", "max"))
    means = of_runs.groupby(["quantity", "setting", "arm", "tokens"]).mean()
    is_alone = len(data.styles) == 1
    if not is_alone:
        means[["low", "high"]] = np.nan
    panels: dict[Key, Panel] = {}
    for name, shown in QUANTITIES.items():
        for setting in dict.fromkeys(rows["setting"]):
            if (name, setting) in {key[:2] for key in means.index}:
                here = means.loc[name, setting]
                curves = {arm: here.loc[arm] for arm in data.trials.arms if arm in here.index}
                panels[shown, setting] = partial(_draw_along, curves, data, along_tokens=True)
    caption = "Recorded at the largest rung: mean over seeds, kinds of matrices or vectors, and layers."
    caption += " Band: range over kinds." if is_alone else ""
    return Drawing(panels, ("tokens", ""), caption, data.legend(rows["arm"]), share=("all", "none"))
