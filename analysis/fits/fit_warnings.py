"""Caveats of a fit, as sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.pairs import pooled_settings
from scalevec.analysis.data.tidy import simulation_warnings, unit_warnings
from scalevec.analysis.fits.arm_data import ArmData
from scalevec.analysis.fits.hold_out import LackOfFit, lack_of_fit_at
from scalevec.analysis.fits.isoflop import Optimum
from scalevec.analysis.formatting import equal_optima_warning, joined
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw
from scalevec.analysis.statistics.noise import floor_profile

NO_FLOOR = 1e-4
"""An irreducible loss below this share of the lowest loss is the bound of zero (theta holds ln E)."""
SHORT_SPAN = 3.0
"""Over a shorter range of N or D a power law is a straight line, and its exponent a guess."""
ILL_CONDITIONED = 1e8
"""Condition number of the scaled curvature above which parameters trade against each other freely."""


def lack_of(data: ArmData, fitted: FittedLaw) -> LackOfFit | None:
    """The lack of fit of a law; None where its points are no independent runs that seeds repeat."""
    repeated = data.independent and data.repeats_by_seed and not data.options.weights
    return lack_of_fit_at(fitted.points, fitted.y) if repeated and not data.optima else None


def fit_warnings(
    rows: pd.DataFrame, options: AnalysisOptions, fitted: FittedLaw, arm: int, *, lack: LackOfFit | None
) -> list[str]:
    """Caveats of the law ``fitted`` to ``rows``; ``arm`` is its number in a joint fit."""
    warnings = simulation_warnings(rows) + unit_warnings(rows) + _rate_warning(rows)
    warnings += [*_epochs_warning(rows), *_span_warnings(fitted, options)]
    if several := pooled_settings(rows, options.settings):
        warnings.append(f"one law through several values of {joined(several)}: choose one with where")
    law = fitted.points.law
    if not fitted.optimal:
        warnings.append("the best solution is not a verified optimum: read no digit of the parameters")
    warnings += equal_optima_warning(fitted.equal_parameters(arm))
    if fitted.starts_agreeing == 1 and len(fitted.solution.objective) > 1:
        warnings.append("only one start reached the best objective")
    condition, flat = fitted.conditioning()
    warnings += [
        f"the points leave {names} free: they can move together without a worse fit" for names in flat
    ]
    if not flat and condition > ILL_CONDITIONED:
        warnings.append(f"parameters trade against each other (condition number {condition:.1e})")
    if law.variables == ("x",) and options.y == "loss":
        profiled = floor_profile(fitted.points.variables["x"], fitted.y)
        if not profiled.identified:
            warnings.append(profiled.warning)
    warnings += [lack.warning] if lack and lack.warning else []
    parameters = fitted.parameters(arm)
    at_bounds = fitted.at_bounds(arm).items()
    warnings += [f"{name} lies at its bound of {end:g}: the points ask for more" for name, end in at_bounds]
    if law.floor in law.positive and parameters[law.floor] < NO_FLOOR * fitted.y.min():
        warnings.append(f"the best fit has no irreducible loss: {law.floor} lies at its bound of zero")
    columns = [name for name in ("arm", "rung", "n_tokens", "seed", options.y) if name in rows]
    if fitted.points.law.method == "points" and rows.duplicated(columns).any():
        warnings.append("some rows differ in neither rung, tokens, seed nor loss; each counts as a point")
    return warnings + _delta_warning(fitted)


def hold_out_warning(held: Mapping[str, Any]) -> list[str]:
    """Caveats of the prediction ``held``."""
    law = "the law that predicts the hold-out is not"
    warnings = [] if held.get("optimal", True) else [f"{law} a verified optimum"]
    if ranges := held.get("equal_parameters"):
        warnings.append(
            f"{law} unique: others, with other values of {joined(list(ranges))}, fit equally well"
        )
    return warnings


def _epochs_warning(rows: pd.DataFrame) -> list[str]:
    """Where data were repeated: no law here knows repeated data from fresh ones."""
    epochs = rows["epochs"] if "epochs" in rows else pd.Series(dtype=float)
    if not (n_repeated := int((epochs > 1).sum())):
        return []
    return [
        f"{n_repeated} of {len(rows)} trials saw data more than once (up to {epochs.max():.4g} epochs): "
        "the law takes repeated tokens for fresh ones; to leave them out: --where 'epochs <= 1'"
    ]


def _span_warnings(fitted: FittedLaw, options: AnalysisOptions) -> list[str]:
    """Which variables span too little to tell an exponent."""
    law, warnings = fitted.points.law, []
    for name, values in fitted.points.variables.items():
        span = float(values.max() / values.min())
        free = law.touched_by(name)
        if span < SHORT_SPAN and free and name not in law.own_columns:
            shown = options.x if name == "x" else name
            warnings.append(
                f"{shown} spans a factor of {span:.3g}, less than {SHORT_SPAN:g}: these points leave "
                f"{joined(free)} free, whatever its interval says"
            )
    return warnings


def _rate_warning(rows: pd.DataFrame) -> list[str]:
    """Where the learning rates were not tuned, or their optimum lies at the edge of its grid."""
    meanings = {
        "fixed": "fixed, not tuned",
        "censored": "censored at the edge of the grid: losses are bounds",
    }
    counts = dict(rows["lr_status"].value_counts()) if "lr_status" in rows else {}
    parts = [f"{counts[status]} {meaning}" for status, meaning in meanings.items() if status in counts]
    return [f"learning rates of {len(rows)} trials: {'; '.join(parts)}"] if parts else []


def optima_warnings(optima: Sequence[Optimum], options: AnalysisOptions) -> list[str]:
    """Which optima are censored, and what an envelope is not."""
    warnings = [f"C {o.budget:.3g}: censored, {o.censored}" for o in optima if o.censored]
    if law_named(options.law).method == "envelope":
        warnings.append(
            "points along a curve are not runs whose schedule ended there: the envelope favours sizes whose "
            "rate had decayed (Hoffmann et al. 2022, section 3.1)"
        )
    return warnings


def _delta_warning(fitted: FittedLaw) -> list[str]:
    options = fitted.options
    if options.loss != "huber" or options.residual != "log":
        return []
    scatter = float(np.median(np.abs(fitted.residuals())))
    if scatter <= 5 * options.delta:
        return []
    return [
        f"delta {options.delta:g} is far below the residuals (median {scatter:.2g}): "
        "this is in effect a fit of least absolute deviations"
    ]
