"""A hold-out: the largest rung, or rows that the user names, predicted from all others."""

from typing import Any

import numpy as np
import pandas as pd

from analysis.data import BoolArray, DataError
from analysis.estimate import estimated
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


def hold_out(rows: pd.DataFrame, settings: FitSettings, which: bool | str, arm: str) -> dict[str, Any]:
    """Predict the held rows from the others: the errors of the predicted against the observed values.

    ``relative_error`` is that of the mean, the others are over the held points.
    """
    law = settings.functional_form
    held_out = held_rows(rows, settings, which)
    rest, held = rows[~held_out], rows[held_out]
    by = "the largest rung" if which is True else str(which)
    described: dict[str, Any] = {"by": by, "n_points": len(held)}
    if not len(held):
        return {**described, "reason": "not predicted: nothing is held out"}
    described["rung"] = ", ".join(dict.fromkeys(held["rung"].astype(str)))
    try:
        if not len(rest):
            raise DataError("there is one rung only")
        points = Parametrisation(law, settings.variables(rest))
        require_identifiable(points, arm, settings.x)
    except DataError as error:
        return {**described, "reason": f"not predicted: {error}"}
    found = estimated(points, settings.values(rest), settings.options)
    predicted = law.predict(found.parameters(), settings.variables(held))
    observed = settings.values(held)
    errors = predicted / observed - 1.0
    return {
        **described,
        "predicted": float(np.mean(predicted)),
        "observed": float(np.mean(observed)),
        "relative_error": float(np.mean(predicted) / np.mean(observed) - 1.0),
        "mean_absolute_error": float(np.mean(np.abs(errors))),
        "largest_absolute_error": float(np.max(np.abs(errors))),
    }
