"""What a reader of a fit must bear in mind, as sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.data import simulation_warnings, unit_warnings
from analysis.estimate import Estimated
from analysis.lack_of_fit import lack_of_fit
from analysis.noise import floor_profile
from analysis.optima import Optimum
from analysis.pairs import pooled_settings
from analysis.settings import FitSettings
from analysis.words import joined

NO_FLOOR = 1e-4
"""An irreducible loss below this share of the lowest loss is the bound of zero (theta holds ln E)."""
ILL_CONDITIONED = 1e8
"""Condition number of the scaled curvature above which parameters trade against each other freely."""


def fit_warnings(
    rows: pd.DataFrame, settings: FitSettings, found: Estimated, arm: int, *, independent: bool
) -> list[str]:
    """What to bear in mind of the fit ``found`` to ``rows``; ``arm`` is its number in a joint fit."""
    said = simulation_warnings(rows) + unit_warnings(rows) + _rate_warning(rows)
    if several := pooled_settings(rows):
        said.append(f"one law through several values of {joined(several)}: choose one with where")
    law = found.points.law
    if not found.optimal:
        said.append("the best solution is not a verified optimum: read no digit of the parameters")
    if found.starts_agreeing == 1 and len(found.solution.objective) > 1:
        said.append("only one start reached the best objective")
    condition, flat = found.conditioning()
    said += [f"the points leave {names} free: they can move together without a worse fit" for names in flat]
    if not flat and condition > ILL_CONDITIONED:
        said.append(f"parameters trade against each other (condition number {condition:.1e})")
    if law.variables == ("x",) and settings.y == "loss":
        profiled = floor_profile(found.points.variables["x"], found.y)
        if not profiled.identified:
            said.append(profiled.warning)
        test = lack_of_fit(law.name, dict(found.points.variables), found.y) if independent else None
        said += [test.warning] if test and test.warning else []
    if found.parameters(arm).get("E", np.inf) < NO_FLOOR * found.y.min():
        said.append("the best fit has no irreducible loss: E lies at its bound of zero")
    columns = [name for name in ("arm", "rung", "n_tokens", "seed", settings.y) if name in rows]
    if found.points.law.method == "points" and rows.duplicated(columns).any():
        said.append("some rows differ in neither rung, tokens, seed nor loss; each counts as a point")
    return said + _delta_warning(found)


def hold_out_warning(held: Mapping[str, Any]) -> list[str]:
    """What a reader of the prediction ``held`` must bear in mind."""
    if held.get("optimal", True):
        return []
    return ["the law that predicts the hold-out is not a verified optimum"]


def _rate_warning(rows: pd.DataFrame) -> list[str]:
    """Where the learning rates were not tuned, or their optimum lies at the edge of its grid."""
    meanings = {
        "fixed": "fixed, not tuned",
        "censored": "censored at the edge of the grid: losses are bounds",
    }
    counts = dict(rows["lr_status"].value_counts()) if "lr_status" in rows else {}
    found = [f"{counts[status]} {said}" for status, said in meanings.items() if status in counts]
    return [f"learning rates of {len(rows)} trials: {'; '.join(found)}"] if found else []


def optima_warnings(optima: Sequence[Optimum], settings: FitSettings) -> list[str]:
    """Which optima are censored, and what an envelope is not."""
    said = [f"C {o.budget:.3g}: censored, {o.censored}" for o in optima if o.censored]
    if settings.functional_form.method == "envelope":
        said.append(
            "points along a curve are not runs whose schedule ended there: the envelope favours sizes whose "
            "rate had decayed (Hoffmann et al. 2022, section 3.1)"
        )
    return said


def _delta_warning(found: Estimated) -> list[str]:
    options = found.options
    if options.loss != "huber" or options.residual != "log":
        return []
    scatter = float(np.median(np.abs(found.residuals())))
    if scatter <= 5 * options.delta:
        return []
    return [
        f"delta {options.delta:g} is far below the residuals (median {scatter:.2g}): "
        "this is in effect a fit of least absolute deviations"
    ]
