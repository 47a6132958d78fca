"""Laws side by side: how each predicts what it was not fitted to."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.arm_data import data_of_arms
from scalevec.analysis.fits.fit import Fit, fit
from scalevec.analysis.fits.hold_out import rolling_hold_outs
from scalevec.analysis.formatting import aligned
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions


def rolling(results: pd.DataFrame, options: AnalysisOptions) -> list[dict[str, Any]]:
    """Return how the law of the k smallest rungs of each arm predicts the next, a record for each arm and k.

    Args:
        results: Tidy rows, one per trial, as for :func:`fit`.
        options: How to fit; a rung is a value of the law's N (or C, or D).

    Returns:
        ``arm``, ``rungs`` (k), ``size`` and ``rung`` of the predicted one, ``n_points``, ``predicted`` and
        ``observed`` (means, in the unit of y) and errors as in ``hold_out`` of a fit, or a ``reason``.

    Raises:
        DataError: Bad values, or a law that is fitted to optima.
    """
    arms = data_of_arms(results, options)
    options = arms[0].options
    if law_named(options.law).method != "points":
        raise DataError(f"law {options.law} is fitted to optima, whose rungs are not predicted one by one")
    rows = {data.arm: data.rows for data in arms}
    if law_named(options.law).per_arm:
        return rolling_hold_outs(rows, options)
    return [record for arm in rows for record in rolling_hold_outs({arm: rows[arm]}, options)]


def fits_of_laws(results: pd.DataFrame, laws: Sequence[str], options: AnalysisOptions) -> list[Fit]:
    """Return the fits of each of ``laws``, each with ``rolling``, its errors on the next rungs.

    Those errors are over the steps at which every law of an arm could be fitted, so that they compare.
    Raises :class:`DataError` as :func:`fit` does.
    """
    fits, errors = [], []
    for law in laws:
        chosen = replace(options, law=law)
        fits += fit(results, chosen).values()
        records = rolling(results, chosen)
        errors.append({(r["arm"], r["rungs"]): r["relative_error"] for r in records if "relative_error" in r})
    common = set.intersection(*map(set, errors))
    by_law = dict(zip(laws, errors, strict=True))
    return [
        replace(
            fitted, rolling=_summary([by_law[law][step] for step in sorted(common) if step[0] == fitted.arm])
        )
        for law, fitted in zip(np.repeat(laws, len(fits) // len(laws)), fits, strict=True)
    ]


def _summary(errors: Sequence[float]) -> dict[str, Any]:
    if not errors:
        return {"steps": 0, "reason": "no rung is predicted by all of the laws"}
    sizes = np.abs(errors)
    return {"steps": len(sizes), "mean_absolute_error": float(sizes.mean()), "largest": float(sizes.max())}


def laws_text(fits: Sequence[Fit]) -> str:
    """The laws of each arm, best first by their errors on the next rungs, then by the hold-out."""
    header = ("arm", "law", "fitted", "next rungs, mean |error|", "steps", "hold-out", "objective", "optimum")
    rows = [header, *map(_row, sorted(fits, key=_rank))]
    ends = "next rungs: each predicted by the law of the smaller ones, where all laws could be fitted"
    warnings = [f"{fit.arm}, {fit.law}: {warning}" for fit in fits for warning in fit.warnings]
    return "\n".join([*aligned(rows, n_left=2), ends, fits[0].conventions, *dict.fromkeys(warnings)])


def _rank(fitted: Fit) -> tuple[str, float, float]:
    held = abs(fitted.hold_out.get("relative_error", np.inf))
    return fitted.arm, fitted.rolling.get("mean_absolute_error", np.inf), held


def _row(fitted: Fit) -> tuple[str, ...]:
    errors = (fitted.rolling.get("mean_absolute_error"), fitted.hold_out.get("relative_error"))
    rolled, held = (
        "-" if error is None else f"{100 * error:{form}} %"
        for error, form in zip(errors, (".4f", "+.4f"), strict=True)
    )
    return (
        fitted.arm,
        fitted.law,
        str(len(fitted.parameters) - len(fitted.fixed)),
        rolled,
        str(fitted.rolling["steps"]),
        held,
        f"{fitted.objective:.6g}",
        "verified" if fitted.optimality < 1e-9 else "not verified",
    )
