"""Fit a law to each arm: robust, from several starts, with its optimality verified and said."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import pandas as pd

from scalevec.analysis.data.doubts import simulation_warnings, unit_warnings
from scalevec.analysis.data.tidy import pooled_settings
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.arm_data import ArmData, data_of_arms, fitted_laws, floor_profile
from scalevec.analysis.fits.hold_out import DRAWS, hold_outs, lack_of, noise_of, rolling_hold_outs
from scalevec.analysis.fits.intervals import Replicates, no_interval
from scalevec.analysis.fits.isoflop import vertex_replicates
from scalevec.analysis.fits.predicted_points import FittedArm
from scalevec.analysis.fits.result import Fit, Fits
from scalevec.analysis.formatting import equal_optima_warning, joined, unit_of
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import AnalysisOptions, OptionChanges, chosen_options
from scalevec.analysis.solver.best_fit import FittedLaw

OPTIMA_NOTE = (
    "how the optima were found (a parabola's form, the steps between curves) is not in it, and N* beyond the "
    "range is covered less often than it says"
)

NO_FLOOR = 1e-4
"""An irreducible loss below this share of the lowest loss is the bound of zero (theta holds ln E)."""
SHORT_SPAN = 3.0
"""Over a shorter range of N or D a power law is a straight line, and its exponent a guess."""


def fit(
    results: pd.DataFrame, options: AnalysisOptions | None = None, **changes: Unpack[OptionChanges]
) -> Fits:
    """Fit a law to the completed comparison trials of each arm.

    Args:
        results: Tidy rows, one per trial, with the columns that the law reads: ``n_params``, ``n_tokens``
            (counts), ``loss``, or ``flops`` alone for a law in C.
        options: How to fit; by default :class:`AnalysisOptions` with all its defaults.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        The :class:`Fit` of each arm by its name, in the order of the table.

    Raises:
        DataError: Bad values, or points that leave a parameter free.

    Examples:
        >>> table = pd.DataFrame({"n_params": [1e5, 2e5, 4e5], "n_tokens": [2e6, 4e6, 8e6]})
        >>> table["loss"] = 40.0 * (6 * table.n_params * table.n_tokens) ** -0.1
        >>> fits = fit(table, law="power", bootstrap=0)
        >>> list(fits), f"{fits['all'].parameters['alpha']:.4f}"
        (['all'], '0.1000')
    """
    chosen = chosen_options(options, changes, unused=("margin", "looks", "repeated_seeds"))
    return Fits({fitted.data.arm: fit_of(fitted) for fitted in fitted_arms(results, chosen)})


def fitted_arms(results: pd.DataFrame, options: AnalysisOptions) -> list[FittedArm]:
    """The law of each arm of ``results`` with its hold-out and lack of fit.

    Raises :class:`DataError` as :func:`fit`.
    """
    fitted: list[FittedArm] = []
    for arms in _together(data_of_arms(results, options)):
        laws, which = fitted_laws(arms), arms[0].options.hold_out
        uncertainty = _uncertainty(arms, laws[0])
        # What carries no interval carries none of its hold-out either.
        draws = DRAWS if uncertainty.draws else 0
        held = [{} for _ in arms] if which == "none" else hold_outs(arms, which, draws)
        fitted += [
            FittedArm(tuple(arms), law, number, uncertainty, held[number], lack_of(data, law))
            for number, (data, law) in enumerate(zip(arms, laws, strict=True))
        ]
    return fitted


def _together(arms: Sequence[ArmData]) -> list[Sequence[ArmData]]:
    """The arms that one fit is made of: all of them by a law that they share, else each alone."""
    return [arms] if law_named(arms[0].options.law).per_arm else [[data] for data in arms]


def _uncertainty(arms: Sequence[ArmData], law: FittedLaw) -> Replicates:
    """Where the intervals come from, or why there are none."""
    options = arms[0].options
    if several := pooled_settings(pd.concat([data.rows for data in arms]), options.settings):
        unlike = f"values of {joined(several)} differ at one rung, by more than seed noise"
        return no_interval(law, f"no interval: {unlike}; choose one with where")
    if reason := next(filter(None, (data.doubt for data in arms)), ""):
        return no_interval(law, reason)
    if law.points.law.method == "isoflop" and options.interval in ("auto", "cluster-t"):
        return vertex_replicates(law, arms[0].rows, options)
    return noise_of(arms, law, options.bootstrap)


def fit_of(fitted: FittedArm) -> Fit:
    """The result of one of :func:`fitted_arms`; a law that is refuted has no intervals of exponents."""
    data, law, arm, uncertainty = fitted.data, fitted.law, fitted.number, fitted.uncertainty
    options = data.options
    bounds, note = uncertainty.parameters(law, options.level, arm)
    if data.optima and bounds:
        note += f"; {OPTIMA_NOTE}"
    exponents = [name for name in bounds if fitted.refuted and name not in law.points.law.linear]
    if exponents:
        note += f"; none for {', '.join(exponents)}: {fitted.refuted}"
    # What the note on intervals says already is no second warning.
    silent = "" if fitted.refuted and exponents else fitted.silent
    warnings = fit_warnings(data, law, arm) + [part for part in (data.repetitions[0], silent) if part]
    if not fitted.held.get("optimal", True):
        warnings.append("the law that predicts the hold-out is not a verified optimum")
    y = unit_of(options.y, options.unit) or f"unit of {options.y}"
    return Fit(
        arm=data.arm,
        formula=formula_of(options),
        parameters=law.parameters(arm),
        intervals={name: ends for name, ends in bounds.items() if name not in exponents},
        interval_method=uncertainty.method,
        interval_note=note,
        n_bootstrap=uncertainty.draws,
        objective=law.objective,
        optimality=law.optimality,
        starts_agreeing=law.starts_agreeing,
        n_starts=len(law.solution.objective),
        condition=law.conditioning()[0],
        n_points=len(data.y),
        n_clusters=int(data.clusters.nunique()),
        excluded=data.excluded,
        fitted=fitted,
        refuted=fitted.refuted,
        hold_out=dict(fitted.held),
        optima=data.optima,
        warnings=tuple(warnings),
        units=law.points.law.units(y, options.x),
        options=law.options,
    )


def fit_warnings(data: ArmData, fitted: FittedLaw, arm: int) -> list[str]:
    """Caveats of the law ``fitted`` to ``data``; ``arm`` is its number in a joint fit."""
    rows, law, parameters = data.rows, fitted.points.law, fitted.parameters(arm)
    warnings = simulation_warnings(rows) + unit_warnings(rows) + _rate_warning(rows)
    epochs = rows["epochs"] if "epochs" in rows else pd.Series(dtype=float)
    if n_repeated := int((epochs > 1).sum()):  # no law here knows repeated data from fresh ones
        warnings.append(
            f"{n_repeated} of {len(rows)} trials saw data more than once (up to {epochs.max():.4g} epochs): "
            "the law takes repeated tokens for fresh ones; to leave them out: --where 'epochs <= 1'"
        )
    for name, values in fitted.points.variables.items():
        span, free = float(values.max() / values.min()), law.touched_by(name)
        if span < SHORT_SPAN and free and name not in law.own_columns:
            shown = data.options.x if name == "x" else name
            warnings.append(
                f"{shown} spans a factor of {span:.3g}, less than {SHORT_SPAN:g}: these points leave "
                f"{joined(free)} free, whatever its interval says"
            )
    if not fitted.optimal:
        warnings.append("the best solution is not a verified optimum: read no digit of the parameters")
    warnings += equal_optima_warning(fitted.equal_parameters(arm))
    warnings += [
        f"the points leave {names} free: they can move together without a worse fit"
        for names in fitted.conditioning()[1]
    ]
    if law.variables == ("x",) and data.options.y == "loss":
        warnings += floor_profile(fitted.points.variables["x"], fitted.y).warnings
    at_bounds = fitted.at_bounds(arm).items()
    warnings += [f"{name} lies at its bound of {end:g}: the points ask for more" for name, end in at_bounds]
    if law.floor in law.positive and parameters[law.floor] < NO_FLOOR * fitted.y.min():
        warnings.append(f"the best fit has no irreducible loss: {law.floor} lies at its bound of zero")
    return warnings + [f"C {o.budget:.3g}: censored, {o.censored}" for o in data.optima if o.censored]


def _rate_warning(rows: pd.DataFrame) -> list[str]:
    """Where the learning rates were not tuned, or their optimum lies at the edge of its grid."""
    counts = dict(rows["lr_status"].value_counts()) if "lr_status" in rows else {}
    meanings = {"fixed": ", not tuned", "censored": " at the edge of the grid: losses are bounds"}
    parts = [f"{counts[status]} {status}{rest}" for status, rest in meanings.items() if status in counts]
    return [f"learning rates of {len(rows)} trials: {'; '.join(parts)}"] if parts else []


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
    groups = _together(data_of_arms(results, options))
    if groups[0][0].optima:
        raise DataError(f"law {options.law} is fitted to optima, whose rungs are not predicted one by one")
    return [record for arms in groups for record in rolling_hold_outs(arms)]


def fits_of_laws(results: pd.DataFrame, laws: Sequence[str], options: AnalysisOptions) -> list[Fit]:
    """Return the fits of each of ``laws``, each with ``rolling``, its errors on the next rungs.

    Those errors are over the steps at which every law of an arm could be fitted, so that they compare.
    Raises :class:`DataError` as :func:`fit` does.
    """
    of_laws = [dataclasses.replace(options, law=law) for law in laws]
    records = [[r for r in rolling(results, chosen) if "predicted" in r] for chosen in of_laws]
    errors = [{(r["arm"], r["rungs"]): abs(r["relative_error"]) for r in of_law} for of_law in records]
    common = sorted(set.intersection(*map(set, errors)))
    fits: list[Fit] = []
    for chosen, of_law in zip(of_laws, errors, strict=True):
        for arm, fitted in fit(results, chosen).items():
            sizes = [of_law[step] for step in common if step[0] == arm]
            mean = {"mean_absolute_error": float(np.mean(sizes))} if sizes else {}
            fits.append(dataclasses.replace(fitted, rolling={"steps": len(sizes), **mean}))
    return fits
