"""What speaks against a law: rungs that it is asked to predict from the others, and its lack of fit.

The test for lack of fit judges the variance of the cells' means around the law by the seeds' variance within
cells (Draper and Smith, Applied Regression Analysis, chapter 2), by least squares whatever the loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import BoolArray, FloatArray, variable_of
from scalevec.analysis.data.where import holds
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.arm_data import ArmData, fitted_laws, rung_size
from scalevec.analysis.fits.intervals import Replicates, no_interval, replicates, values_of
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw, fit_points
from scalevec.analysis.solver.law_points import Points
from scalevec.analysis.statistics.noise import are_copies, pooled_noise

SIGNIFICANT = 0.01
"""Below this p value a lack of fit speaks against a law."""
DRAWS = 200
"""Replicates of a law that predicts a hold-out: the end of its interval is known to a twentieth."""
REFUTING_LEVEL = 0.95


def _largest(size: FloatArray) -> BoolArray:
    return np.asarray(size >= size.max() * (1 - 1e-9))


def held_rows(rows: pd.DataFrame, options: AnalysisOptions, which: str) -> BoolArray:
    """The rows to hold out: the largest rung, those at the last value of a column, or an expression.

    Raises :class:`DataError` for a name that is no column and an expression that is none.
    """
    if which == "largest":
        return _largest(variable_of(rows, rung_size(options), options))
    if which in rows.columns:
        column = rows[which]
        last = column.max() if pd.api.types.is_numeric_dtype(column) else column.iloc[-1]
        return np.asarray((column == last).fillna(False), bool)  # a blank is no last value
    return holds(rows, which).to_numpy(bool)


def hold_outs(arms: Sequence[ArmData], which: str, draws: int = 0) -> list[dict[str, Any]]:
    """Predict the held rows of each arm by one law of what is left of all of them.

    ``relative_error`` is that of the mean of the predicted against that of the observed values. ``interval``
    is where the mean of the held runs should lie by the noise of the law and theirs, from ``draws``
    replicates, ``fails`` whether it does not. ``optimal`` says whether the law that predicts is a verified
    optimum. Of optima the largest budget is held out.
    """
    which = "largest" if arms[0].optima else which
    held = [
        _largest(data.sizes) if which == "largest" else held_rows(data.rows, data.options, which)
        for data in arms
    ]
    by = "the largest rung" if which == "largest" else which
    return _predicted(arms, [~of_arm for of_arm in held], held, by, 0 if arms[0].optima else draws)


def rolling_hold_outs(arms: Sequence[ArmData], last: int | None = None) -> list[dict[str, Any]]:
    """The law of the k smallest rungs asked to predict the next, a record an arm and k, the ``last`` or all.

    ``rungs`` is k, ``size`` the N (C, D) of the rung that is predicted; the rest is as in :func:`hold_outs`,
    without intervals.
    """
    sizes = [np.log(data.sizes) for data in arms]
    levels = np.unique(np.round(np.concatenate(sizes), 9))
    records: list[dict[str, Any]] = []
    steps = list(enumerate(levels[1:], 1))
    for k, following in steps if last is None else steps[-last:]:
        smaller = [of_arm <= following - 1e-6 for of_arm in sizes]
        held = [np.abs(of_arm - following) < 1e-6 for of_arm in sizes]
        predicted = zip(arms, _predicted(arms, smaller, held, "the next rung"), strict=True)
        step = {"rungs": k, "size": float(np.exp(following))}
        records += [{"arm": data.arm, **step, **record} for data, record in predicted]
    return [record for record in records if record["n_points"]]


def _predicted(
    arms: Sequence[ArmData], fitted: Sequence[BoolArray], held: Sequence[BoolArray], by: str, draws: int = 0
) -> list[dict[str, Any]]:
    """The ``held`` points of each arm [points], predicted by one law of the ``fitted`` points of all."""
    try:
        if not all(of_arm.any() for of_arm in fitted):
            raise DataError("there is one rung only")
        rest = [data.part(of_arm) for data, of_arm in zip(arms, fitted, strict=True)]
        law = fitted_laws(rest)[0]
        if flat := law.conditioning()[1]:
            raise DataError(f"the other points leave {'; '.join(flat)} free")
        reason, noise = "", noise_of(rest, law, draws)
    except DataError as error:
        reason = f"not predicted: {error}"
    records: list[dict[str, Any]] = []
    for number, (data, of_arm) in enumerate(zip(arms, held, strict=True)):
        record: dict[str, Any] = {"by": by, "n_points": int(of_arm.sum())}
        if of_arm.any():
            record["rung"] = ", ".join(data.labels["rung"][of_arm].unique())
        if reason or not of_arm.any():
            record["reason"] = reason or "not predicted: nothing is held out"
        else:
            held_of_arm, seen = data.part(of_arm), data.part(fitted[number]).points.variables
            record |= _errors(law, held_of_arm, number, noise)
            beyond = decades_beyond(seen, pd.DataFrame(held_of_arm.points.variables))
            record["decades"] = float(np.max(farthest(beyond)[0]))
        records.append(record)
    return records


def decades_beyond(seen: Mapping[str, FloatArray], at: pd.DataFrame) -> pd.DataFrame:
    """By variable how many decades each point of ``at`` lies above the largest ``seen``, below the smallest.

    C and D/N too where there are N and D; 0 within the range.
    """
    seen = dict(seen)
    columns = {name: at[name].to_numpy(float) for name in seen}
    for of in (seen, columns) if {"N", "D"} <= seen.keys() else ():
        of |= {"C": 6 * of["N"] * of["D"], "D/N": of["D"] / of["N"]}
    result = {}
    for name, values in seen.items():
        above, below = np.log10(columns[name] / values.max()), np.log10(columns[name] / values.min())
        # What is rounded away is the rounding of sqrt(2)^2 and of text.
        result[name] = np.round(np.maximum(above, 0.0) + np.minimum(below, 0.0), 9) + 0.0
    return pd.DataFrame(result, index=at.index)


def farthest(beyond: pd.DataFrame) -> tuple[FloatArray, list[str]]:
    """The most decades of each row of :func:`decades_beyond`, and of which variable; "" within the range."""
    column = np.argmax(np.abs(beyond.to_numpy()), axis=1)
    decades = beyond.to_numpy()[np.arange(len(beyond)), column]
    return decades, [beyond.columns[at] if far else "" for at, far in zip(column, decades, strict=True)]


def noise_of(arms: Sequence[ArmData], law: FittedLaw, draws: int) -> Replicates:
    """``draws`` replicates of ``law``, which is fitted to ``arms``; none where no interval is asked for."""
    options = arms[0].options
    if not (draws and options.bootstrap):
        return no_interval(law, "no interval was asked for")
    clusters, seeded = pd.concat([data.clusters for data in arms]), not any(d.repetitions[0] for d in arms)
    return replicates(law, clusters, replace(options, bootstrap=draws), seeded=seeded)


def _errors(law: FittedLaw, held: ArmData, arm: int, noise: Replicates) -> dict[str, Any]:
    variables, observed = held.points.variables, held.y
    with np.errstate(over="ignore"):
        predicted = law.points.law.predict(law.parameters(arm), variables)
    if not np.all(np.isfinite(predicted)):
        return {"reason": "not predicted: there the law of the others is larger than any number"}
    errors = predicted / observed - 1.0
    mean, seen = float(np.mean(predicted)), float(np.mean(observed))
    interval = None
    if noise.draws:
        share = 1.0 if law.options.residual == "log" else 1 / mean
        means = values_of(law, noise.solution.theta, variables, arm).mean(axis=1)
        # Where the noise grows with size the held rung has more of it than the others.
        values = np.log(observed) if law.options.residual == "log" else observed
        of_rung = pooled_noise(values, held.points.cells)
        run_sd = float(noise.run_sd(np.array(mean)))
        of_mean = max(run_sd, of_rung.sd if of_rung.df else 0.0) * share / np.sqrt(len(observed))
        interval = noise.interval(mean, means, REFUTING_LEVEL, of_mean)
    return {
        "predicted": mean,
        "observed": seen,
        "interval": interval,
        "fails": interval is not None and not interval[0] <= seen <= interval[1],
        "relative_error": mean / seen - 1.0,
        "largest_absolute_error": float(np.max(np.abs(errors))),
        "optimal": law.optimal,
    }


def lack_of_fit(points: Points, loss: FloatArray) -> float | None:
    """The p value of the F test for ``loss`` [points] at ``points`` of one arm, or of several fitted jointly.

    By least squares on log loss. None where no cell of equal variables repeats, or where there are no more
    cells than parameters.
    """
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
    return float(fdtrc(between, noise.df, f))


def lack_of(data: ArmData, fitted: FittedLaw) -> float | None:
    """The p value of a law's lack of fit; None where its points are no independent runs that seeds repeat."""
    repeated = data.independent and not (data.repetitions[0] or data.optima)
    return lack_of_fit(fitted.points, fitted.y) if repeated else None
