"""Caveats of a fit, as sentences."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from scalevec.analysis.data.tidy import simulation_warnings, unit_warnings
from scalevec.analysis.fits.arm_data import ArmData
from scalevec.analysis.formatting import equal_optima_warning, joined
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw
from scalevec.analysis.statistics.noise import floor_profile

NO_FLOOR = 1e-4
"""An irreducible loss below this share of the lowest loss is the bound of zero (theta holds ln E)."""
SHORT_SPAN = 3.0
"""Over a shorter range of N or D a power law is a straight line, and its exponent a guess."""


def fit_warnings(data: ArmData, fitted: FittedLaw, arm: int) -> list[str]:
    """Caveats of the law ``fitted`` to ``data``; ``arm`` is its number in a joint fit."""
    rows, law, parameters = data.rows, fitted.points.law, fitted.parameters(arm)
    warnings = simulation_warnings(rows) + unit_warnings(rows) + _rate_warning(rows)
    warnings += [*_epochs_warning(rows), *_span_warnings(fitted, data.options)]
    if not fitted.optimal:
        warnings.append("the best solution is not a verified optimum: read no digit of the parameters")
    warnings += equal_optima_warning(fitted.equal_parameters(arm))
    warnings += [
        f"the points leave {names} free: they can move together without a worse fit"
        for names in fitted.conditioning()[1]
    ]
    if law.variables == ("x",) and data.options.y == "loss":
        profiled = floor_profile(fitted.points.variables["x"], fitted.y)
        if not profiled.identified:
            warnings.append(profiled.warning)
    at_bounds = fitted.at_bounds(arm).items()
    warnings += [f"{name} lies at its bound of {end:g}: the points ask for more" for name, end in at_bounds]
    if law.floor in law.positive and parameters[law.floor] < NO_FLOOR * fitted.y.min():
        warnings.append(f"the best fit has no irreducible loss: {law.floor} lies at its bound of zero")
    return warnings + [f"C {o.budget:.3g}: censored, {o.censored}" for o in data.optima if o.censored]


def hold_out_warning(held: Mapping[str, Any]) -> list[str]:
    """What is said where the law that predicts the hold-out ``held`` is no verified optimum."""
    optimal = held.get("optimal", True)
    return [] if optimal else ["the law that predicts the hold-out is not a verified optimum"]


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
