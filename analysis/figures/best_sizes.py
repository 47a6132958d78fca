"""What a budget is best spent on: isoFLOP parabolas, the best N and D, a law's surface, envelopes."""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes

from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.tidy import variable_of
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.curves import WINDOW, running_mean
from scalevec.analysis.figures.figure_input import FigureInput, named_setting
from scalevec.analysis.figures.law_curves import AXES, trial_names
from scalevec.analysis.figures.panels import Drawing, Key, Panel
from scalevec.analysis.figures.style import ArmStyle, draw_curve, draw_points, ink, power_of_ten
from scalevec.analysis.fits.compute_optimal import best_of_budgets
from scalevec.analysis.fits.isoflop import BudgetLine, budget_lines
from scalevec.analysis.fits.predicted_points import FittedArm
from scalevec.analysis.formatting import named_with_unit, percent
from scalevec.analysis.laws import formula_of

STEPS = 25
"""Budgets for which the best N and D are shown, and places of an axis."""
BEYOND = 10.0
"""How far beyond the largest compute of a run they are drawn."""
LEVELS = 10
"""Of equal loss."""
BINS = 40
"""Of compute, in each of which the lowest curve counts."""
_BestOfArms = dict[str, tuple[FittedArm, pd.DataFrame]]
"""By arm: its law, and the best sizes along its budgets."""


def draw_isoflop(data: FigureInput) -> Drawing:
    """Draw the loss of each compute budget against N with its parabola, a panel for each arm and setting.

    Raises :class:`DataError` where no budget was run at three sizes.
    """
    panels: dict[Key, Panel] = {}
    for setting, arm, part in _arms_by_setting(data):
        rows = part.of_arm(arm, "completed")
        lines = budget_lines(rows, data.trials.options) if len(rows) else ()
        if bending := [line for line in lines if line.bends]:
            panels[setting, arm] = partial(_draw_parabolas, bending, data.styles[arm])
    if not panels:
        raise DataError("no compute budget was run at three sizes")
    options = data.trials.options
    return Drawing(
        panels,
        (AXES["N"], named_with_unit(options.y, options.unit)),
        "Loss of the runs of each compute budget (its C stands at its curve, FLOPs) against their size; "
        "lines: parabolas in ln N; rings: their minima, where these lie between the sizes that were run.",
        {},
        height=2.6,
    )


def _draw_parabolas(lines: list[BudgetLine], style: ArmStyle, axis: Axes) -> None:
    for line in lines:
        draw_points(axis, np.exp(line.logs), line.loss, style)
        at = np.linspace(line.logs.min(), line.logs.max(), 4 * STEPS)
        losses, best = line.parabola(at), line.optimum()
        axis.plot(np.exp(at), losses, color=style.color, linewidth=0.8)
        end = (float(np.exp(at[-1])), float(losses[-1]))
        name, size = power_of_ten(float(f"{line.budget:.1e}")), rcParams["xtick.labelsize"]
        axis.annotate(name, end, (3, 0), textcoords="offset points", fontsize=size, va="center")
        if best.n_star is not None and best.loss is not None:
            axis.plot(best.n_star, best.loss, "o", color=ink(), fillstyle="none", markersize=7)
    axis.set(xscale="log", xmargin=0.15)


def draw_optimal(data: FigureInput) -> Drawing:
    """Draw the best N and D for each compute budget, from the smallest run to ten times the largest.

    Raises :class:`DataError` for a law that has no best size.
    """
    best_of_arms: dict[str, _BestOfArms] = {}
    reasons: list[str] = []
    for setting, part in data.trials.law_parts:
        laws, refused = part.laws
        reasons += refused
        for arm, law in laws.items():
            try:
                best_of_arms.setdefault(named_setting(setting), {})[arm] = law, _best_along(law)
            except DataError as error:
                reasons.append(str(error))
    best_of_arms = {name: of_part for name, of_part in best_of_arms.items() if of_part}
    if not best_of_arms:
        raise DataError("; ".join(dict.fromkeys(reasons)) or "no trial is completed")
    panels: dict[Key, Panel] = {
        (label, name): partial(_draw_best, of_part, column, data.styles)
        for column, label in (("N", "best N"), ("D", "best D"))
        for name, of_part in best_of_arms.items()
    }
    options = data.trials.options
    return Drawing(
        panels,
        (AXES["C"], ""),
        f"Size and training tokens of the lowest loss for each budget C = 6ND by {formula_of(options)}; "
        f"bands: {percent(options.level)} of the law; thin: beyond the runs. Markers: minima of isoFLOP "
        "parabolas.",
        data.legend(arm for of_part in best_of_arms.values() for arm in of_part),
        height=1.9,
        share=("all", "row"),
        ratios=(1.0, 1.0),
    )


def _best_along(law: FittedArm) -> pd.DataFrame:
    compute = variable_of(law.data.rows, "C", law.data.options)
    budgets = np.geomspace(compute.min(), BEYOND * compute.max(), STEPS)
    return best_of_budgets(law, budgets.tolist()).assign(is_beyond=budgets > compute.max() * (1 + 1e-9))


def _draw_best(best_of_arms: _BestOfArms, column: str, styles: Mapping[str, ArmStyle], axis: Axes) -> None:
    for arm, (law, best) in best_of_arms.items():
        value, *ends = (best[f"{column}{end}"].to_numpy(float) for end in ("", "_low", "_high"))
        draw_curve(axis, best["flops"].to_numpy(float), value, ends, styles[arm], best["is_beyond"])
        minima = [(o.budget, o.n_star, o.d_star) for o in law.data.optima if o.n_star]
        if minima:
            budgets, n_star, d_star = np.array(minima, float).T
            draw_points(axis, budgets, n_star if column == "N" else d_star, styles[arm])
    axis.set(xscale="log", yscale="log")


def draw_surface(data: FigureInput) -> Drawing:
    """Draw lines of equal loss of each arm's law over N and D, and its runs.

    Raises :class:`DataError` for a law that is none in N and D.
    """
    laws = {(setting, arm): part.laws[0].get(arm) for setting, arm, part in _arms_by_setting(data)}
    panels: dict[Key, Panel] = {
        key: partial(_draw_contours, law, data)
        for key, law in laws.items()
        if law is not None and {"N", "D"} <= law.seen.keys() <= {"N", "D", "C"}
    }
    options = data.trials.options
    if not panels:
        raise DataError(f"law {options.law} is no surface over N and D: take --law chinchilla")
    return Drawing(
        panels,
        (AXES["N"], AXES["D"]),
        f"Lines of equal loss ({named_with_unit(options.y, options.unit)}) by {formula_of(options)}; "
        "markers: runs; dotted: equal compute 6ND, a factor of ten apart.",
        {},
        height=2.6,
    )


def _draw_contours(law: FittedArm, data: FigureInput, axis: Axes) -> None:
    style, (n, d) = data.styles[law.data.arm], (law.seen["N"], law.seen["D"])
    across, up = (np.geomspace(of.min() / 1.5, of.max() * 1.5, 3 * STEPS) for of in (n, d))
    at = dict(zip(("N", "D"), (part.ravel() for part in np.meshgrid(across, up)), strict=True))
    loss = law.values(law.law.theta[None], {**at, "C": 6 * at["N"] * at["D"]})
    loss = loss.reshape(len(up), len(across))
    lines = axis.contour(across, up, loss, LEVELS, colors=style.color, linewidths=0.7)
    axis.clabel(lines, fontsize=rcParams["xtick.labelsize"], fmt="%.3g")
    first, last = np.log10(6 * across[0] * up[0]), np.log10(6 * across[-1] * up[-1])
    for decade in range(int(np.ceil(first)), int(last) + 1):
        axis.plot(across, 10.0**decade / 6 / across, ":", color=ink(), linewidth=0.6)
    draw_points(axis, n, d, style, trial_names(law.data.rows, data.trials.varying_settings))
    axis.set(xscale="log", yscale="log", xlim=across[[0, -1]], ylim=up[[0, -1]])


def draw_envelope(data: FigureInput) -> Drawing:
    """Draw the training loss of every run against the compute so far, and the lowest of them at each.

    Raises :class:`DataError` where no curves are kept, or none of several sizes.
    """
    rows = data.placed(data.curves, "training curves")
    rows = rows[np.isfinite(rows["loss"]) & (rows["loss"] > 0) & (rows["tokens"] > 0)]
    rows = rows.assign(flops=6 * rows["n_params"] * rows["tokens"])
    panels: dict[Key, Panel] = {}
    for key, of_arm in rows.groupby(["setting", "arm"], sort=False):
        if of_arm["n_params"].nunique() > 1:
            panels[key] = partial(_draw_lowest, of_arm, data.styles[key[1]])
    if not panels:
        raise DataError("the runs have one size: an envelope needs several")
    return Drawing(
        panels,
        (AXES["C"], "training loss (nats/token)"),
        f"Training loss of each run (running mean over {100 * WINDOW:g} % of it) against 6N times its tokens "
        "so far; bold: the lowest that any of them had reached by then, mostly before its schedule of the "
        "rate had ended.",
        {},
        height=2.6,
    )


def _draw_lowest(rows: pd.DataFrame, style: ArmStyle, axis: Axes) -> None:
    runs = [
        (run["flops"].to_numpy(float), running_mean(run, center=False))
        for _, run in rows.groupby("trial_id", sort=False)
    ]
    every = np.concatenate([flops for flops, _ in runs])
    edges = np.geomspace(every.min(), every.max() * (1 + 1e-9), BINS + 1)

    def lowest(low: float, high: float) -> float:
        inside = [loss[(flops >= low) & (flops < high)] for flops, loss in runs]
        return min((float(of_run.min()) for of_run in inside if of_run.size), default=np.nan)

    for flops, loss in runs:
        axis.plot(flops, loss, color=style.color, linewidth=0.5, alpha=0.5)
    along = np.array([lowest(*ends) for ends in pairwise(edges)])
    axis.plot(np.sqrt(edges[1:] * edges[:-1]), np.fmin.accumulate(along), color=ink(), linewidth=1.6)
    axis.set(xscale="log", yscale="log", ylim=(0.97 * np.nanmin(along), None))


def _arms_by_setting(data: FigureInput) -> list[tuple[str, str, ComparedTrials]]:
    parts = data.trials.split(data.trials.varying_settings, alone=True)
    return [(named_setting(setting), arm, part) for setting, part in parts for arm in part.arms]
