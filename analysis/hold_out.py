"""A hold-out: the largest rung, or rows that the user names, predicted from all others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.data import BoolArray, DataError
from analysis.estimate import Estimated, estimated
from analysis.joint import joint_fit
from analysis.parametrisation import Parametrisation, require_identifiable
from analysis.settings import FitSettings
from analysis.where import holds


def held_rows(rows: pd.DataFrame, settings: FitSettings, which: bool | str) -> BoolArray:
    """The rows to hold out: the largest rung (True), those at the last value of a column, or an expression.

    Raises :class:`DataError` for a name that is no column and an expression that is none.
    """
    if which is True:
        size = settings.variable(settings.x if settings.size == "x" else settings.size, rows)
        return np.asarray(size >= size.max() * (1 - 1e-9))
    if str(which) in rows.columns:
        column = rows[str(which)]
        last = column.max() if pd.api.types.is_numeric_dtype(column) else column.iloc[-1]
        return np.asarray(column == last)
    return holds(rows, str(which)).to_numpy(bool)


def joint_hold_outs(
    parts: Sequence[pd.DataFrame], settings: FitSettings, which: bool | str
) -> list[dict[str, Any]]:
    """:func:`hold_out` of each arm's rows, by one joint fit of what is left of all arms."""
    held = [held_rows(rows, settings, which) for rows in parts]
    shown = [_described(rows[own], which) for rows, own in zip(parts, held, strict=True)]
    rest = [rows[~own] for rows, own in zip(parts, held, strict=True)]
    try:
        if not all(len(rows) for rows in rest):
            raise DataError("there is one rung only")
        data = [(settings.variables(rows), settings.values(rows)) for rows in rest]
        found = joint_fit(data, settings.functional_form, settings.options, settings.x)
    except DataError as error:
        return [{**one, "reason": f"not predicted: {error}"} for one in shown]
    return [
        one if "reason" in one else {**one, **_errors(found, rows[own], settings, arm)}
        for arm, (one, rows, own) in enumerate(zip(shown, parts, held, strict=True))
    ]


def hold_out(rows: pd.DataFrame, settings: FitSettings, which: bool | str, arm: str) -> dict[str, Any]:
    """Predict the held rows from the others: the errors of the predicted against the observed values.

    ``relative_error`` is that of the mean, the others are over the held points; ``optimal`` says whether
    the law that predicts is a verified optimum.
    """
    held_out = held_rows(rows, settings, which)
    rest, held = rows[~held_out], rows[held_out]
    described = _described(held, which)
    if "reason" in described:
        return described
    try:
        if not len(rest):
            raise DataError("there is one rung only")
        points = Parametrisation(settings.functional_form, settings.variables(rest))
        require_identifiable(points, arm, settings.x)
    except DataError as error:
        return {**described, "reason": f"not predicted: {error}"}
    found = estimated(points, settings.values(rest), settings.options)
    return {**described, **_errors(found, held, settings)}


def _described(held: pd.DataFrame, which: bool | str) -> dict[str, Any]:
    """What is held out; with a ``reason`` where that is nothing."""
    by = "the largest rung" if which is True else str(which)
    shown: dict[str, Any] = {"by": by, "n_points": len(held)}
    if not len(held):
        return {**shown, "reason": "not predicted: nothing is held out"}
    return {**shown, "rung": ", ".join(dict.fromkeys(held["rung"].astype(str)))}


def _errors(found: Estimated, held: pd.DataFrame, settings: FitSettings, arm: int = 0) -> dict[str, Any]:
    predicted = found.points.law.predict(found.parameters(arm), settings.variables(held))
    observed = settings.values(held)
    errors = predicted / observed - 1.0
    return {
        "predicted": float(np.mean(predicted)),
        "observed": float(np.mean(observed)),
        "relative_error": float(np.mean(predicted) / np.mean(observed) - 1.0),
        "mean_absolute_error": float(np.mean(np.abs(errors))),
        "largest_absolute_error": float(np.max(np.abs(errors))),
        "optimal": found.optimal,
    }
