"""What speaks against a law: rungs that it is asked to predict from the others, and its lack of fit.

The test for lack of fit judges the variance of the cells' means around the law by the seeds' variance within
cells (Draper and Smith, Applied Regression Analysis, chapter 2), by least squares whatever the loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import has_seeds
from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.data.where import holds
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.columns import rung_size, values_of, variable_of, variables_of, weights_of
from scalevec.analysis.fits.intervals import NoInterval, Replicates, replicates
from scalevec.analysis.formatting import f_test, p_value
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw, fit_identified, fit_points, joint_fit
from scalevec.analysis.solver.law_points import Points, points_of
from scalevec.analysis.statistics.noise import are_copies, pooled_noise, t_quantile

SIGNIFICANT = 0.01
DRAWS = 200
"""Replicates of a law that predicts a hold-out: the end of its interval is known to a twentieth."""
REFUTING_LEVEL = 0.95


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


def hold_out(
    rows: pd.DataFrame, options: AnalysisOptions, which: str, arm: str, draws: int = 0
) -> dict[str, Any]:
    """Predict the held rows from the others: the errors of the predicted against the observed values.

    ``relative_error`` is that of the mean. ``interval`` is where the mean of the held runs should lie by
    the noise of the law and theirs, from ``draws`` replicates, ``fails`` whether it does not. ``optimal``
    says whether the law that predicts is a verified optimum, ``equal_parameters`` is the range of each
    parameter of it that is not unique.
    """
    return hold_outs({arm: rows}, options, which, draws)[0]


def hold_outs(
    rows_of_arms: Mapping[str, pd.DataFrame], options: AnalysisOptions, which: str, draws: int = 0
) -> list[dict[str, Any]]:
    """:func:`hold_out` of each arm's rows, by one law of what is left of all of them."""
    held = [held_rows(rows, options, which) for rows in rows_of_arms.values()]
    return _predicted(rows_of_arms, held, options, "the largest rung" if which == "largest" else which, draws)


def rolling_hold_outs(
    rows_of_arms: Mapping[str, pd.DataFrame], options: AnalysisOptions, last: int | None = None
) -> list[dict[str, Any]]:
    """The law of the k smallest rungs asked to predict the next, a record an arm and k, the ``last`` or all.

    ``rungs`` is k, ``size`` the N (C, D) of the rung that is predicted; the rest is as in :func:`hold_out`,
    without intervals.
    """
    size = rung_size(options)
    sizes = {arm: np.log(variable_of(rows, size, options)) for arm, rows in rows_of_arms.items()}
    levels = np.unique(np.round(np.concatenate(list(sizes.values())), 9))
    records: list[dict[str, Any]] = []
    steps = list(enumerate(levels[1:], 1))
    for k, following in steps if last is None else steps[-last:]:
        until = {arm: of_arm < following + 1e-6 for arm, of_arm in sizes.items()}
        rows = {arm: of_arm[until[arm]] for arm, of_arm in rows_of_arms.items()}
        held = [np.asarray(of_arm[until[arm]] > following - 1e-6) for arm, of_arm in sizes.items()]
        step = {"rungs": k, "size": float(np.exp(following))}
        predicted = _predicted(rows, held, options, "the next rung", 0)
        records += [{"arm": arm, **step, **record} for arm, record in zip(rows, predicted, strict=True)]
    return [record for record in records if record["n_points"]]


def _predicted(
    rows_of_arms: Mapping[str, pd.DataFrame],
    held: Sequence[BoolArray],
    options: AnalysisOptions,
    by: str,
    draws: int,
) -> list[dict[str, Any]]:
    """The ``held`` rows of each arm [rows], predicted by one law of what is left of all of them."""
    parts = rows_of_arms.values()
    described = [_described(rows[of_part], by) for rows, of_part in zip(parts, held, strict=True)]
    rest = {arm: rows[~of_part] for (arm, rows), of_part in zip(rows_of_arms.items(), held, strict=True)}
    try:
        law = _law_of_rest(rest, options)
    except DataError as error:
        return [{"reason": f"not predicted: {error}"} | description for description in described]
    noise = _noise_of_rest(law, rest, options, draws)
    return [
        description
        if "reason" in description
        else {**description, **_errors(law, rows[of_part], options, arm, noise)}
        for arm, (description, rows, of_part) in enumerate(zip(described, parts, held, strict=True))
    ]


def _law_of_rest(rest: Mapping[str, pd.DataFrame], options: AnalysisOptions) -> FittedLaw:
    if not all(len(rows) for rows in rest.values()):
        raise DataError("there is one rung only")
    law = law_named(options.law)
    points = [(variables_of(rows, options), values_of(rows, options)) for rows in rest.values()]
    weights = [weights_of(rows, options) for rows in rest.values()]
    if law.per_arm:
        fitted = joint_fit(points, law, options, weights)
    else:
        [(variables, y)], [arm] = points, rest
        fitted = fit_identified(points_of(law, variables, weights[0]), y, options, arm)
    if flat := fitted.conditioning()[1]:
        raise DataError(f"the other points leave {'; '.join(flat)} free")
    return fitted


def _noise_of_rest(
    law: FittedLaw, rest: Mapping[str, pd.DataFrame], options: AnalysisOptions, draws: int
) -> Replicates | NoInterval:
    if not draws or options.bootstrap == 0 or options.interval in ("none", "profile"):
        return NoInterval("")
    rows = pd.concat(rest.values())
    runs = rows[options.cluster] if options.cluster in rows else pd.Series(np.arange(len(rows)).astype(str))
    seeded = has_seeds(rows, law.points.cells)
    return replicates(law, law.points.cells, runs, replace(options, bootstrap=draws), seeded=seeded)


def _described(held: pd.DataFrame, by: str) -> dict[str, Any]:
    """What is held out; with a ``reason`` where that is nothing."""
    shown: dict[str, Any] = {"by": by, "n_points": len(held)}
    if not len(held):
        return {**shown, "reason": "not predicted: nothing is held out"}
    return {**shown, "rung": ", ".join(dict.fromkeys(held["rung"].astype(str)))}


def _errors(
    law: FittedLaw, held: pd.DataFrame, options: AnalysisOptions, arm: int, noise: Replicates | NoInterval
) -> dict[str, Any]:
    variables = variables_of(held, options)
    with np.errstate(over="ignore"):
        predicted = law.points.law.predict(law.parameters(arm), variables)
    if not np.all(np.isfinite(predicted)):
        return {"reason": "not predicted: there the law of the others is larger than any number"}
    observed = values_of(held, options)
    errors = predicted / observed - 1.0
    mean, seen = float(np.mean(predicted)), float(np.mean(observed))
    interval = _interval_of_mean(law, variables, noise, arm, mean)
    return {
        "predicted": mean,
        "observed": seen,
        "interval": interval,
        "fails": interval is not None and not interval[0] <= seen <= interval[1],
        "relative_error": mean / seen - 1.0,
        "mean_absolute_error": float(np.mean(np.abs(errors))),
        "largest_absolute_error": float(np.max(np.abs(errors))),
        "optimal": law.optimal,
        "equal_parameters": law.equal_parameters(arm),
    }


def _interval_of_mean(
    law: FittedLaw,
    variables: Mapping[str, FloatArray],
    noise: Replicates | NoInterval,
    arm: int,
    predicted: float,
) -> tuple[float, float] | None:
    """What the mean of the held runs may be if the law holds; None where the other runs carry no noise."""
    if isinstance(noise, NoInterval):
        return None
    rows = law.points.parameters(noise.solution.theta, arm)
    with np.errstate(all="ignore"):
        values = law.points.law.predict(
            {name: of_name[:, None] for name, of_name in rows.items()},
            {name: of_name[None] for name, of_name in variables.items()},
        )
        share = 1.0 if law.options.residual == "log" else 1 / predicted
        of_mean = noise.run_sd * share / np.sqrt(values.shape[1])
        half = t_quantile(REFUTING_LEVEL, noise.df) * np.hypot(np.std(np.log(values.mean(axis=1))), of_mean)
        ends = float(predicted * np.exp(-half)), float(predicted * np.exp(half))
    return ends if np.all(np.isfinite(ends)) else None


@dataclass(frozen=True)
class LackOfFit:
    """F with ``df`` (cells minus parameters, points minus cells) degrees of freedom, and its p value."""

    law: str
    f: float
    df: tuple[int, int]
    p: float
    optimal: bool = True

    @property
    def warning(self) -> str:
        """One sentence where the law misses the rungs by more than the noise; empty where it does not."""
        if self.p >= SIGNIFICANT:
            return ""
        other = " (--law power-floor has a floor)" if self.law == "power" else ""
        doubt = "" if self.optimal else "; the fit is not a verified optimum"
        return (
            f"the law {self.law} misses the means of the seeds by more than their noise (lack of fit: "
            f"{f_test(self.f, self.df, self.p)}){other}{doubt}"
        )


def lack_of_fit(law: str, variables: dict[str, FloatArray], loss: FloatArray) -> LackOfFit | None:
    """The test for ``loss`` [points] at ``variables`` (each [points]), by least squares on log loss.

    None where no cell of equal variables repeats, or where there are no more cells than parameters.
    """
    return lack_of_fit_at(points_of(law_named(law), variables), loss)


def lack_of_fit_at(points: Points, loss: FloatArray) -> LackOfFit | None:
    """:func:`lack_of_fit` for ``loss`` [points] at ``points`` of one arm, or of several fitted jointly."""
    from scipy.special import fdtrc

    cells, logs = points.cells, np.log(loss)
    noise = pooled_noise(logs, cells)
    between = len(np.unique(cells)) - len(points.free)
    if noise.df == 0 or between <= 0 or are_copies(logs, cells):
        return None
    fit = fit_points(points, loss, AnalysisOptions(loss="l2"))
    within = noise.sd**2 * noise.df
    missed = max(float(np.sum(fit.residuals() ** 2)) - within, 0.0)
    f = (missed / between) / noise.sd**2
    return LackOfFit(points.law.name, f, (between, noise.df), float(fdtrc(between, noise.df, f)), fit.optimal)


def refutation(held: Mapping[str, Any], lack: LackOfFit | None) -> str:
    """What speaks against a law: its hold-out outside of its own interval, or its lack of fit."""
    if held.get("fails"):
        low, high = held["interval"]
        return (
            f"the law is refuted by its hold-out: predicted {held['predicted']:.5g} "
            f"({low:.5g} to {high:.5g}), seen {held['observed']:.5g}"
        )
    if lack is not None and lack.p < SIGNIFICANT:
        return f"the law is refuted by its lack of fit (p {p_value(lack.p)})"
    return ""
