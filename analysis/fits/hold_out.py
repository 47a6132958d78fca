"""A hold-out: the largest rung, or rows that the user names, predicted from all others."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import BoolArray
from scalevec.analysis.data.where import holds
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.columns import rung_size, values_of, variable_of, variables_of, weights_of
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw, fit_identified, joint_fit
from scalevec.analysis.solver.points import points_of


def held_rows(rows: pd.DataFrame, options: AnalysisOptions, which: str) -> BoolArray:
    """The rows to hold out: the largest rung, those at the last value of a column, or an expression.

    Raises :class:`DataError` for a name that is no column and an expression that is none.
    """
    if which == "largest":
        size = variable_of(rows, rung_size(options), options)
        return np.asarray(size >= size.max() * (1 - 1e-9))
    if which in rows.columns:
        column = rows[which]
        last = column.max() if pd.api.types.is_numeric_dtype(column) else column.iloc[-1]
        return np.asarray((column == last).fillna(False), bool)  # a blank is no last value
    return holds(rows, which).to_numpy(bool)


def hold_out(rows: pd.DataFrame, options: AnalysisOptions, which: str, arm: str) -> dict[str, Any]:
    """Predict the held rows from the others: the errors of the predicted against the observed values.

    ``relative_error`` is that of the mean, the others are over the held points; ``optimal`` says whether
    the law that predicts is a verified optimum, and ``equal_parameters`` is the range of each parameter of
    it that is not unique.
    """
    return hold_outs({arm: rows}, options, which)[0]


def hold_outs(
    rows_of_arms: Mapping[str, pd.DataFrame], options: AnalysisOptions, which: str
) -> list[dict[str, Any]]:
    """:func:`hold_out` of each arm's rows, by one law of what is left of all of them."""
    held = [held_rows(rows, options, which) for rows in rows_of_arms.values()]
    return _predicted(rows_of_arms, held, options, "the largest rung" if which == "largest" else which)


def rolling_hold_outs(
    rows_of_arms: Mapping[str, pd.DataFrame], options: AnalysisOptions
) -> list[dict[str, Any]]:
    """The law of the k smallest rungs asked to predict the next, for every k; a record an arm and k.

    ``rungs`` is k, ``size`` the N (C, D) of the rung that is predicted; the rest is as in :func:`hold_out`.
    """
    size = rung_size(options)
    sizes = {arm: np.log(variable_of(rows, size, options)) for arm, rows in rows_of_arms.items()}
    levels = np.unique(np.round(np.concatenate(list(sizes.values())), 9))
    records: list[dict[str, Any]] = []
    for k, following in enumerate(levels[1:], 1):
        until = {arm: of_arm < following + 1e-6 for arm, of_arm in sizes.items()}
        rows = {arm: of_arm[until[arm]] for arm, of_arm in rows_of_arms.items()}
        held = [np.asarray(of_arm[until[arm]] > following - 1e-6) for arm, of_arm in sizes.items()]
        step = {"rungs": k, "size": float(np.exp(following))}
        predicted = _predicted(rows, held, options, "the next rung")
        records += [{"arm": arm, **step, **record} for arm, record in zip(rows, predicted, strict=True)]
    return [record for record in records if record["n_points"]]


def _predicted(
    rows_of_arms: Mapping[str, pd.DataFrame], held: Sequence[BoolArray], options: AnalysisOptions, by: str
) -> list[dict[str, Any]]:
    """The ``held`` rows of each arm [rows], predicted by one law of what is left of all of them."""
    parts = rows_of_arms.values()
    described = [_described(rows[of_part], by) for rows, of_part in zip(parts, held, strict=True)]
    rest = {arm: rows[~of_part] for (arm, rows), of_part in zip(rows_of_arms.items(), held, strict=True)}
    try:
        law = _law_of_rest(rest, options)
    except DataError as error:
        return [{"reason": f"not predicted: {error}"} | description for description in described]
    return [
        description
        if "reason" in description
        else {**description, **_errors(law, rows[of_part], options, arm)}
        for arm, (description, rows, of_part) in enumerate(zip(described, parts, held, strict=True))
    ]


def _law_of_rest(rest: Mapping[str, pd.DataFrame], options: AnalysisOptions) -> FittedLaw:
    if not all(len(rows) for rows in rest.values()):
        raise DataError("there is one rung only")
    law = law_named(options.law)
    points = [(variables_of(rows, options), values_of(rows, options)) for rows in rest.values()]
    weights = [weights_of(rows, options) for rows in rest.values()]
    if law.per_arm:
        return joint_fit(points, law, options, weights)
    [(variables, y)], [arm] = points, rest
    return fit_identified(points_of(law, variables, weights[0]), y, options, arm)


def _described(held: pd.DataFrame, by: str) -> dict[str, Any]:
    """What is held out; with a ``reason`` where that is nothing."""
    shown: dict[str, Any] = {"by": by, "n_points": len(held)}
    if not len(held):
        return {**shown, "reason": "not predicted: nothing is held out"}
    return {**shown, "rung": ", ".join(dict.fromkeys(held["rung"].astype(str)))}


def _errors(law: FittedLaw, held: pd.DataFrame, options: AnalysisOptions, arm: int) -> dict[str, Any]:
    with np.errstate(over="ignore"):
        predicted = law.points.law.predict(law.parameters(arm), variables_of(held, options))
    if not np.all(np.isfinite(predicted)):
        return {"reason": "not predicted: there the law of the others is larger than any number"}
    observed = values_of(held, options)
    errors = predicted / observed - 1.0
    return {
        "predicted": float(np.mean(predicted)),
        "observed": float(np.mean(observed)),
        "relative_error": float(np.mean(predicted) / np.mean(observed) - 1.0),
        "mean_absolute_error": float(np.mean(np.abs(errors))),
        "largest_absolute_error": float(np.max(np.abs(errors))),
        "optimal": law.optimal,
        "equal_parameters": law.equal_parameters(arm),
    }
