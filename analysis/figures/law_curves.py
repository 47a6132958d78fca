"""Loss against size or compute with the fitted laws, and multipliers against compute."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.arm_laws import held_out_difference
from scalevec.analysis.comparison.growth import hold_out_problem, unchecked
from scalevec.analysis.comparison.line_laws import ArmLaws
from scalevec.analysis.comparison.multipliers import compute_laws_to_show
from scalevec.analysis.data.tidy import BoolArray, FloatArray, completed_rows
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput, paged
from scalevec.analysis.figures.points import name_points, trial_names
from scalevec.analysis.figures.style import (
    PAPER,
    ArmStyle,
    Medium,
    band_between,
    log_axis,
    plain_ticks,
    small_multiples,
)
from scalevec.analysis.fits.bands import band
from scalevec.analysis.fits.columns import variable_of
from scalevec.analysis.formatting import loss_name, named_with_unit, percent, plural
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import C_CONVENTIONS, N_CONVENTIONS, AnalysisOptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {"N": "parameters N", "D": "training tokens D", "C": "compute C (FLOPs)"}
MULTIPLIER_POINTS = 25


def draw_loss(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the loss of completed trials against N, D or C (``x`` of the options), with law and band.

    Each setting in which a law in one variable can stand has a panel of its own.
    """
    rows, _ = completed_rows(data.trials.rows)
    if rows.empty:
        raise DataError("no trial is completed")
    options = data.trials.options
    if np.ptp(variable_of(rows, options.x, options)) == 0:
        raise DataError(f"all trials have one value of {options.x}, through which no line goes")
    parts = {name: completed_rows(part.rows)[0] for name, part in data.lines().items()}
    parts = {name: part for name, part in parts.items() if len(part)}
    # Some trials stand in no comparison, so in no part: all are shown together, which no law describes.
    in_parts = sum(map(len, parts.values())) == len(rows)
    has_laws = in_parts and law_named(options.law).variables == ("x",)
    parts = parts if in_parts else {"": rows}
    pages = [
        _loss_page(data, medium, {name: parts[name] for name in page}, has_laws=has_laws)
        for page in paged(parts)
    ]
    return Drawing(pages, _loss_caption(rows, options, has_laws=has_laws))


def _loss_caption(rows: pd.DataFrame, options: AnalysisOptions, *, has_laws: bool) -> str:
    laws = (
        f"Lines: {formula_of(options)} for each arm; bands: {percent(options.level)} t interval of the law "
        "from seed noise, given the form of the law. "
    )
    return (
        f"Points: {loss_name(options.y, options.unit)} of {len(rows)} trials "
        f"({plural(rows['seed'].nunique(), 'seed')}). "
        f"{laws if has_laws else ''}"
        f"C: {C_CONVENTIONS[options.c_convention]}; N: {N_CONVENTIONS[options.n_convention]}."
    )


def _loss_page(
    data: FigureInput, medium: Medium, parts: Mapping[str, pd.DataFrame], *, has_laws: bool
) -> "Figure":
    options = data.trials.options

    def draw(axis: "Axes", name: str) -> None:
        trials = parts[name]
        for arm, style in data.entries(trials["arm"]):
            of_arm = trials[trials["arm"] == arm]
            x, colour = variable_of(of_arm, options.x, options), style.on(medium)
            if has_laws:
                _draw_law(axis, x, of_arm["loss"].to_numpy(float), options, style, colour)
            (points,) = axis.plot(x, of_arm["loss"], style.marker, color=colour, alpha=0.75)
            name_points(points, trial_names(of_arm, data.trials.varying_settings))
        set_log_axes(axis, variable_of(trials, options.x, options), AXES[options.x], medium)

    entries = data.entries(arm for trials in parts.values() for arm in trials["arm"])
    label = named_with_unit(options.y, options.unit)
    return small_multiples(medium, list(parts), draw, label=label, entries=entries, row_height=3.1)


def _draw_law(
    axis: "Axes", x: FloatArray, loss: FloatArray, options: AnalysisOptions, style: ArmStyle, colour: str
) -> None:
    try:
        law = band(x, loss, options)
    except DataError:  # the fit itself says why there is no law; the points are drawn all the same
        return
    axis.plot(law.x, law.loss, color=colour, linestyle=style.dash)
    if law.low is not None and law.high is not None:
        band_between(axis, law.x, law.low, law.high, colour)


def set_log_axes(axis: "Axes", x: FloatArray, label: str, medium: Medium) -> None:
    """Set both axes logarithmic, with ticks for ``x`` [points]."""
    axis.set(xscale="log", yscale="log", xlabel=label)
    log_axis(axis.xaxis, float(np.min(x)), float(np.max(x)), crowded=medium is PAPER)
    plain_ticks(axis.yaxis)


def draw_multipliers(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the compute multiplier of each arm against compute, a panel for each setting.

    The line is thin where the reference's law is extrapolated, and ends there where the hold-out fails;
    markers stand at the compute of the runs.
    """
    laws: dict[str, dict[str, _Curve]] = {}
    reasons, remarks = [], []
    for name, part in data.lines().items():
        for arm in part.others:
            of_arm, reason = compute_laws_to_show(part.pairs(arm), part.options)
            if of_arm is None:
                reasons.append(f"{arm}: {reason}")
            else:
                held = held_out_difference(part.pairs(arm), part.options)
                laws.setdefault(name, {})[arm] = _Curve(of_arm, is_withheld=bool(hold_out_problem(held)))
                remarks += [f"{arm}: {text}." for text in [hold_out_problem(held) or unchecked(held)] if text]
    if not laws:
        raise DataError("; ".join(dict.fromkeys(reasons)))
    pages = [_multiplier_page(data, medium, {name: laws[name] for name in page}) for page in paged(laws)]
    reference = data.trials.reference
    return Drawing(
        pages,
        f"How many times the compute {reference} needs for the arm's loss. Markers: runs; bands: "
        f"{percent(data.trials.options.level)} t interval from seed noise; thin: beyond the range of "
        + " ".join([f"{reference}, where nothing is drawn if the hold-out fails.", *dict.fromkeys(remarks)]),
    )


@dataclass(frozen=True)
class _Curve:
    """The laws of an arm and the reference; ``is_withheld``: they failed to predict the held rung."""

    laws: ArmLaws
    is_withheld: bool


def _multiplier_page(data: FigureInput, medium: Medium, laws: Mapping[str, Mapping[str, _Curve]]) -> "Figure":
    def draw(axis: "Axes", name: str) -> None:
        axis.axhline(1, color=medium.ink, linewidth=0.8)
        spans = {arm: _shared_range(of_arm.laws) for arm, of_arm in laws[name].items()}
        for arm, of_arm in laws[name].items():
            _draw_multiplier(axis, of_arm, spans[arm], data.styles[arm], medium)
        set_log_axes(axis, np.array(list(spans.values())), AXES["C"], medium)

    entries = data.entries(arm for of_setting in laws.values() for arm in of_setting)
    label = "compute multiplier"
    return small_multiples(medium, list(laws), draw, label=label, entries=entries, row_height=3.1)


def _shared_range(laws: ArmLaws) -> tuple[float, float]:
    """Return the least and the largest compute at which both sides were run."""
    return float(max(np.min(x) for x in laws.x)), float(min(np.max(x) for x in laws.x))


def _draw_multiplier(
    axis: "Axes", curve: _Curve, span: tuple[float, float], style: ArmStyle, medium: Medium
) -> None:
    grid = np.geomspace(*span, MULTIPLIER_POINTS)
    values, bounds, outside = _along(curve, grid)
    colour = style.on(medium)
    band_between(axis, grid, bounds[:, 0], bounds[:, 1], colour)
    axis.plot(grid, np.where(outside, np.nan, values), color=colour, linestyle=style.dash)
    edge = _with_neighbour(outside & np.isfinite(values))
    axis.plot(grid, np.where(edge, values, np.nan), color=colour, linewidth=0.5)
    # Markers stand where runs are, and nowhere else: a reader takes them for data.
    runs = np.unique(curve.laws.x[1])
    runs = runs[(runs >= span[0]) & (runs <= span[1])]
    axis.plot(runs, _along(curve, runs)[0], style.marker, color=colour)


def _along(curve: _Curve, c: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the multipliers at ``c`` [points], their intervals [points, 2] and which are extrapolated.

    Those that are withheld are not a number.
    """
    results = [curve.laws.multiplier("grid", at, at) for at in c]
    values = np.array([np.nan if result.estimate is None else result.estimate for result in results])
    bounds = np.array([result.interval or (np.nan, np.nan) for result in results])
    outside = np.array([result.extrapolated for result in results])
    if curve.is_withheld:
        values[outside], bounds[outside] = np.nan, np.nan
    return values, bounds, outside


def _with_neighbour(outside: BoolArray) -> BoolArray:
    """Return the extrapolated points and those beside them, so that the two parts of a line meet."""
    beside = outside.copy()
    beside[:-1] |= outside[1:]
    beside[1:] |= outside[:-1]
    return np.asarray(beside & outside.any())
