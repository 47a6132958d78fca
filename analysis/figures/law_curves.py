"""Loss against size or compute with the fitted laws and what is left of them; at one size, loss by arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray, completed_rows
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import Drawing, FigureInput
from scalevec.analysis.figures.panels import Key, PanelGrid, strips
from scalevec.analysis.figures.points import name_points, trial_names
from scalevec.analysis.figures.style import INK, ArmStyle, Medium, band_between
from scalevec.analysis.figures.ticks import log_log_ticks
from scalevec.analysis.fits.columns import variable_of
from scalevec.analysis.fits.fit import fit_arm
from scalevec.analysis.fits.hold_out import held_rows
from scalevec.analysis.fits.result import Fit
from scalevec.analysis.formatting import few, loss_name, named_with_unit, percent, plural
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import C_CONVENTIONS, N_CONVENTIONS, AnalysisOptions
from scalevec.analysis.registry import base_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = {"N": "parameters N", "D": "training tokens D", "C": "compute C (FLOPs)"}
PREDICTED = "predicted (held out)"
APART = 2.5
"""Losses of settings that together span so many times what those of one span have axes of their own."""


DRAWS, STEPS = 200, 60
"""Bootstrap replicates and points of a curve."""


@dataclass(frozen=True)
class _LawCurve:
    """A fitted law on a grid of ``x`` [points]; ``low`` and ``high`` are nan where it has no interval."""

    x: FloatArray
    loss: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class _Points:
    """The trials of one arm in one setting, its law, and what the law of the other trials says of the held.

    ``predicted`` is x and loss of the held trials' mean.
    """

    names: list[str]
    x: FloatArray
    loss: FloatArray
    law: _LawCurve | None = None
    predicted: tuple[float, float] | None = None

    def over(self, other: _LawCurve) -> "_Points":
        """Return the same in percent above another law; a page names each trial once."""

        def above(x: FloatArray, loss: FloatArray) -> FloatArray:
            known = np.exp(np.interp(np.log(x), np.log(other.x), np.log(other.loss)))
            return np.asarray(100 * (loss / known - 1))

        law, predicted = self.law, self.predicted
        if law is not None:
            law = _LawCurve(law.x, *(above(law.x, of) for of in (law.loss, law.low, law.high)))
        if predicted is not None:
            predicted = (predicted[0], float(above(*map(np.array, predicted))))
        return _Points([], self.x, above(self.x, self.loss), law, predicted)


_Panel = dict[str, _Points]
"""By arm."""


def draw_loss(data: FigureInput, medium: Medium) -> Drawing:
    """Draw the loss of completed trials against N, D or C (``x`` of the options), with law and band.

    Each setting in which a law in one variable can stand has a column: above the losses, below their
    residuals to the reference's law. Trials of one size have no axis of sizes: their losses stand arm by arm.
    """
    rows, _ = completed_rows(data.trials.rows)
    if rows.empty:
        raise DataError("no trial is completed")
    options = data.trials.options
    parts = {name: completed_rows(part.rows)[0] for name, part in data.lines().items()}
    parts = {name: part for name, part in parts.items() if len(part)}
    # Some trials stand in no comparison, so in no part: all are shown together, which no law describes.
    in_parts = sum(map(len, parts.values())) == len(rows)
    parts = parts if in_parts else {"": rows}
    curves = {name: part for name, part in parts.items() if np.ptp(variable_of(part, options.x, options))}
    if not curves:
        return _strips(data, medium, parts)
    has_laws = in_parts and law_named(options.law).variables == ("x",)
    losses = {name: _points(data, part, has_laws=has_laws) for name, part in curves.items()}
    one_size = [name for name in parts if name not in curves]
    remark = f" Not shown, for they have one size: {few(one_size)}." if one_size else ""
    caption = _loss_caption(pd.concat(curves.values()), data, losses) + remark
    return _loss_drawing(data, medium, losses, caption)


def _points(data: FigureInput, rows: pd.DataFrame, *, has_laws: bool) -> _Panel:
    options, panel = replace(data.trials.options, where=None), {}
    for arm in data.trials.arms:
        of_arm = rows[rows["arm"] == arm]
        if of_arm.empty:
            continue
        names = trial_names(of_arm, data.trials.varying_settings)
        x = variable_of(of_arm, options.x, options)
        points = _Points(names, x, of_arm["loss"].to_numpy(float))
        panel[arm] = _with_law(points, of_arm, options) if has_laws else points
    return panel


def _with_law(points: _Points, rows: pd.DataFrame, options: AnalysisOptions) -> _Points:
    fitted = _fitted(rows, options)
    if fitted is None:
        return points
    drawn = fitted.predict({options.x: np.geomspace(points.x.min(), points.x.max(), STEPS)})
    x, loss, low, high = (drawn[name].to_numpy(float) for name in (options.x, "value", "low", "high"))
    points = replace(points, law=_LawCurve(x, loss, low, high))
    if "predicted" not in fitted.hold_out:
        return points
    held = held_rows(rows, options, options.hold_out)
    return replace(
        points, predicted=(float(np.exp(np.log(points.x[held]).mean())), fitted.hold_out["predicted"])
    )


def _fitted(rows: pd.DataFrame, options: AnalysisOptions) -> Fit | None:
    """The law of an arm, without a hold-out that these rows cannot give; None where there is none."""
    entry = base_of(options.law)
    alone = (entry and entry.alone) or options.law
    for hold_out in (options.hold_out, "none"):
        try:
            return fit_arm(rows, replace(options, law=alone, hold_out=hold_out, bootstrap=DRAWS))
        except DataError:  # the fit itself says why there is no law; the points are drawn all the same
            continue
    return None


def _loss_caption(rows: pd.DataFrame, data: FigureInput, losses: Mapping[str, _Panel]) -> str:
    options, reference = data.trials.options, data.trials.reference
    drawn = [points for panel in losses.values() for points in panel.values()]
    laws = (
        f"Lines: {formula_of(options)} for each arm; bands: {percent(options.level)} interval of the law, "
        "none where the law is refuted. "
    ) * any(points.law is not None for points in drawn)
    held = "Hollow: what the law of the other trials predicts of the rung held out. " * any(
        points.predicted for points in drawn
    )
    below = f"Below: residuals to the law of {reference}. " * any(
        reference in panel and panel[reference].law is not None for panel in losses.values()
    )
    return (
        f"Points: {loss_name(options.y, options.unit)} of {len(rows)} trials "
        f"({plural(rows['seed'].nunique(), 'seed')}). {laws}{held}{below}"
        f"C: {C_CONVENTIONS[options.c_convention]}; N: {N_CONVENTIONS[options.n_convention]}."
    )


def _loss_drawing(data: FigureInput, medium: Medium, losses: Mapping[str, _Panel], caption: str) -> Drawing:
    options, reference = data.trials.options, data.trials.reference
    label = named_with_unit(options.y, options.unit)
    residual = f"residual to the\nlaw of {data.reference_in_lines} (%)"
    panels: dict[Key, tuple[_Panel, str]] = {(label, name): (panel, "log") for name, panel in losses.items()}
    for name, panel in losses.items():
        law = panel[reference].law if reference in panel else None
        if law is not None:
            above = {arm: points.over(law) for arm, points in panel.items()}
            panels[residual, name] = (above, "linear")

    def draw(axis: "Axes", shown: tuple[_Panel, str]) -> None:
        panel, scale = shown
        for arm, points in panel.items():
            _draw_points(axis, points, data.styles[arm], medium)
        axis.set(xscale="log", yscale=scale)

    entries = data.entries(arm for panel in losses.values() for arm in panel)
    if any(points.predicted for panel in losses.values() for points in panel.values()):
        entries.append((PREDICTED, ArmStyle(INK, "o", "none", is_hollow=True)))
    grid = PanelGrid(
        medium, (AXES[options.x], label), entries, log_log_ticks, height=2.6, share=("all", "row")
    )
    if len(panels) > len(losses):
        grid = replace(grid, ratios=(1.8, 1.0))
    return grid.drawing(panels, draw, caption)


def _draw_points(axis: "Axes", points: _Points, style: ArmStyle, medium: Medium) -> None:
    colour, law = style.on(medium), points.law
    if law is not None:
        axis.plot(law.x, law.loss, color=colour, linestyle=style.dash)
        band_between(axis, law.x, law.low, law.high, colour)
    (trials,) = axis.plot(points.x, points.loss, style.marker, color=colour, alpha=0.75)
    if points.names:
        name_points(trials, points.names)
    if points.predicted is not None:
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markersize": 11 * medium.squeeze[0]}
        axis.plot(*points.predicted, style.marker, color=colour, **hollow)


def _strips(data: FigureInput, medium: Medium, parts: Mapping[str, pd.DataFrame]) -> Drawing:
    """Draw the losses of each arm on a line of their own, with their mean as a stroke."""
    options = data.trials.options
    arms = {
        ("", name): {str(arm): of_arm for arm, of_arm in rows.groupby("arm")} for name, rows in parts.items()
    }
    losses = {
        key: {arm: rows["loss"].to_numpy(float) for arm, rows in of_panel.items()}
        for key, of_panel in arms.items()
    }
    names = {
        key: {arm: trial_names(rows, data.trials.varying_settings) for arm, rows in of_panel.items()}
        for key, of_panel in arms.items()
    }
    has_own_axes = _lie_apart([rows["loss"].to_numpy(float) for rows in parts.values()])
    caption = (
        f"{loss_name(options.y, options.unit).capitalize()} of {sum(map(len, parts.values()))} trials of one "
        f"size, arm by arm; strokes: means over seeds.{' Each panel has an axis of its own.' * has_own_axes}"
    )
    label = named_with_unit(options.y, options.unit)
    return strips(data, medium, losses, label, caption, names=names, has_own_axes=has_own_axes)


def _lie_apart(panels: Sequence[FloatArray]) -> bool:
    """Whether on a common axis the widest of ``panels`` [trials] would be a fraction of it."""
    return float(np.ptp(np.concatenate(panels))) > APART * max(map(float, map(np.ptp, panels)))
