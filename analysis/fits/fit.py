"""Fit a law to each arm: robust, from several starts, with its optimality verified and said."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
import pandas as pd

from scalevec.analysis.data.pairs import pooled_settings
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.fits.ahead import FittedArm, PredictedPoint, Uncertainty
from scalevec.analysis.fits.arm_data import ArmData, arm_data, data_of_arms, fitted_laws
from scalevec.analysis.fits.fit_warnings import fit_warnings, hold_out_warning, optima_warnings
from scalevec.analysis.fits.hold_out import hold_out, hold_outs
from scalevec.analysis.fits.intervals import NoInterval, replicates
from scalevec.analysis.fits.isoflop import Optimum, vertex_replicates
from scalevec.analysis.fits.profile_likelihood import ProfileIntervals, refusal
from scalevec.analysis.formatting import joined, unit_of
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import (
    C_CONVENTIONS,
    N_CONVENTIONS,
    AnalysisOptions,
    CConvention,
    Interval,
    Loss,
    NConvention,
    OptionChanges,
    Residual,
    Unit,
    Variable,
    chosen_options,
)
from scalevec.analysis.solver.best_fit import FittedLaw

OPTIMA_NOTE = (
    "how the optima were found (a parabola's form, the steps between curves) is not in it, and N* beyond the "
    "range is covered less often than it says"
)


@dataclass(frozen=True)
class Fit:
    """A fitted law of one arm; the fields are those of ``scalevec fit --json``.

    Attributes:
        arm: The arm; its law is ``law``, written out in ``formula``.
        x: The variable of a law in one variable: N (parameters), D (tokens) or C (FLOPs).
        y: The column that is fitted, a loss in nats/token unless its name says otherwise.
        parameters: The published parameters by name; ``units`` gives the unit of each.
        intervals: The interval of each parameter that has one, at ``level``.
        interval_method: How intervals were made; ``interval_note`` says from what, or why there are none.
        n_bootstrap: Bootstrap replicates; ``seed`` is theirs.
        objective: The objective at the solution, a sum over points.
        optimality: The decrement over the objective at the solution; below 1e-9 the optimum is verified.
        starts_agreeing: How many of the ``n_starts`` starts reached this optimum.
        condition: Condition number of the curvature, scaled to a unit diagonal.
        n_points: Points that are fitted, in ``n_clusters`` independent runs.
        excluded: Number of rows that were left out, by reason.
        loss: The loss of the fit; ``delta`` is Huber's and ``residual`` the scale it acts on.
        n_convention: What N counts; ``c_convention`` what C counts; ``unit`` is that of losses.
        hold_out: The largest rung (or what was asked for) predicted from the other points.
        prediction: The law at twice the largest compute, with its interval.
        ahead: The law at the largest compute, at twice and at ten times that, each with the interval of one
            further run and its distance from the data; empty for a law over other columns.
        optima: The best size N* at each budget, for laws of N*(C).
        warnings: Caveats, one sentence each.
        where: The expression by which rows were chosen; None for all.
        fixed: The parameters that were given, not fitted; ``bounds`` those that were bounded, None for an
            open side.
        columns: The columns that a formula reads; its other names are its parameters.
        weights: The column of the weights of points.
        rolling: Where laws are compared: how they predict each next rung from the smaller ones.
    """

    arm: str
    law: str
    formula: str
    x: Variable
    y: str
    parameters: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    interval_method: Interval
    interval_note: str
    level: float
    n_bootstrap: int
    seed: int
    objective: float
    optimality: float
    starts_agreeing: int
    n_starts: int
    condition: float
    n_points: int
    n_clusters: int
    excluded: dict[str, int]
    loss: Loss
    delta: float
    residual: Residual
    n_convention: NConvention
    c_convention: CConvention
    unit: Unit = "nats-per-token"
    hold_out: dict[str, Any] = field(default_factory=dict)
    prediction: dict[str, Any] = field(default_factory=dict)
    ahead: tuple[PredictedPoint, ...] = ()
    optima: tuple[Optimum, ...] = ()
    warnings: tuple[str, ...] = ()
    where: str | None = None
    units: dict[str, str] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    bounds: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    weights: str | None = None
    rolling: dict[str, Any] = field(default_factory=dict)

    def predict(self, **variables: FloatArray) -> FloatArray:
        """Loss in nats/token (N* in parameters) at the law's variables (``x=``, or ``N=`` and ``D=``)."""
        return law_named(self.law).predict(self.parameters, variables)

    @property
    def conventions(self) -> str:
        """What N, C and x mean here, as a sentence."""
        shown = f"x is {self.x}; " if "x" in law_named(self.law).variables else ""
        return f"{shown}N: {N_CONVENTIONS[self.n_convention]}; C: {C_CONVENTIONS[self.c_convention]}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def fit(
    results: pd.DataFrame, options: AnalysisOptions | None = None, **changes: Unpack[OptionChanges]
) -> list[Fit]:
    """Fit a law to the completed comparison trials of each arm, arms in the order of the table.

    Args:
        results: Tidy rows, one per trial, with the columns that the law reads: ``n_params``, ``n_tokens``
            (counts), ``loss`` (nats/token), or ``flops`` alone for a law in C.
        options: How to fit; by default :class:`AnalysisOptions` with all its defaults.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        One :class:`Fit` per arm, with its verified optimum, intervals and hold-out.

    Raises:
        DataError: Bad values, or points that leave a parameter free.

    Examples:
        >>> table = pd.DataFrame({"n_params": [1e5, 2e5, 4e5], "n_tokens": [2e6, 4e6, 8e6]})
        >>> table["loss"] = 40.0 * (6 * table.n_params * table.n_tokens) ** -0.1
        >>> [f"{fit.parameters['alpha']:.4f}" for fit in fit(table, law="power", bootstrap=0)]
        ['0.1000']
    """
    chosen = chosen_options(options, changes, unused=("margin", "looks", "repeated_seeds"))
    return [fit_of(*fitted) for fitted in fitted_arms(results, chosen)]


def fitted_arms(results: pd.DataFrame, options: AnalysisOptions) -> list[tuple[FittedArm, dict[str, Any]]]:
    """The law of each arm of ``results``, and its hold-out.

    Raises :class:`DataError` as :func:`fit`.
    """
    arms = data_of_arms(results, options)
    if not law_named(arms[0].options.law).per_arm:
        return [_fit_alone(data) for data in arms]
    return _joint_fits(arms)


def fit_arm(table: pd.DataFrame, options: AnalysisOptions) -> Fit:
    """Fit one arm's checked rows; see :func:`fit`."""
    return fit_of(*_fit_alone(arm_data(table, options)))


def _fit_alone(data: ArmData) -> tuple[FittedArm, dict[str, Any]]:
    [law] = fitted_laws([data])
    return FittedArm(data, law, 0, _uncertainty([data], law)), _held_out(data)


def _joint_fits(arms: list[ArmData]) -> list[tuple[FittedArm, dict[str, Any]]]:
    """One law for each arm, of one joint fit."""
    options, laws = arms[0].options, fitted_laws(arms)
    uncertainty = _uncertainty(arms, laws[0])
    held: list[dict[str, Any]] = [{} for _ in arms]
    if options.hold_out != "none":
        held = hold_outs({data.arm: data.rows for data in arms}, options, options.hold_out)
    return [
        (FittedArm(data, law, arm, uncertainty), held[arm])
        for arm, (data, law) in enumerate(zip(arms, laws, strict=True))
    ]


def _uncertainty(arms: Sequence[ArmData], law: FittedLaw) -> Uncertainty:
    """Where the intervals come from, or why there are none."""
    options = arms[0].options
    if several := pooled_settings(pd.concat([data.rows for data in arms]), options.settings):
        return NoInterval(
            f"no interval: values of {joined(several)} differ at one rung, by more than seed noise"
        )
    clusters = pd.concat([data.clusters for data in arms])
    if reason := next(filter(None, (data.doubt for data in arms)), ""):
        return NoInterval(reason)
    if law.points.law.method == "isoflop" and options.interval in ("auto", "cluster-t"):
        return vertex_replicates(law, arms[0].rows, options)
    if options.interval != "profile":
        seeded = all(data.repeats_by_seed for data in arms)
        return replicates(law, law.points.cells, clusters, options, seeded=seeded)
    reason = refusal(law, clusters.nunique())
    return NoInterval(reason) if reason else ProfileIntervals()


def fit_of(fitted: FittedArm, held: dict[str, Any]) -> Fit:
    """The result of one of :func:`fitted_arms`."""
    data, law, arm, uncertainty = fitted.data, fitted.law, fitted.number, fitted.uncertainty
    options, ahead = data.options, fitted.ahead()
    bounds, note = uncertainty.parameters(law, options.level, arm)
    if data.optima and bounds:
        note += f"; {OPTIMA_NOTE}"
    return Fit(
        arm=data.arm,
        formula=formula_of(options),
        parameters=law.parameters(arm),
        intervals=bounds,
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
        hold_out=held,
        prediction=_twice(ahead),
        ahead=ahead,
        optima=data.optima,
        warnings=(
            *fit_warnings(data.rows, options, law, arm, repeated=data.independent and data.repeats_by_seed),
            *filter(None, [data.repetitions[0]]),
            *optima_warnings(data.optima, options),
            *hold_out_warning(held),
        ),
        units=law.points.law.units(unit_of(options.y, options.unit) or f"unit of {options.y}", options.x),
        fixed=tuple(law.points.law.fixed),
        bounds=_bounds(law),
        columns=law.points.law.own_columns,
        weights=options.weights,
        where=options.where,
        law=options.law,
        x=options.x,
        y=options.y,
        level=options.level,
        seed=options.seed,
        loss=law.options.loss,
        delta=options.delta,
        residual=options.residual,
        n_convention=options.n_convention,
        c_convention=options.c_convention,
        unit=options.unit,
    )


def _bounds(law: FittedLaw) -> dict[str, tuple[float | None, float | None]]:
    """The bounds of parameters; being above zero is the law's own."""
    ranges = {name: ends for name, ends in law.points.law.ranges.items() if ends != (0.0, np.inf)}
    return {
        name: (None if low == -np.inf else low, None if high == np.inf else high)
        for name, (low, high) in ranges.items()
    }


def _held_out(data: ArmData) -> dict[str, Any]:
    options = data.options
    if options.hold_out == "none":
        return {}
    if data.optima:
        kept = [optimum for optimum in data.optima if not optimum.censored]
        rows = pd.DataFrame(
            {"flops": [o.budget for o in kept], "n_star": [o.n_star for o in kept]}, dtype=float
        )
        rows["rung"] = rows["flops"].map("C {:.3g}".format)
        # As a plain power law in C, whose y is N*.
        options = dataclasses.replace(options, law="power", x="C", y="n_star", c_convention="given")
        return hold_out(rows, options, "largest", data.arm)
    return hold_out(data.rows, options, options.hold_out, data.arm)


def _twice(ahead: Sequence[PredictedPoint]) -> dict[str, Any]:
    """The law at twice the largest compute, at the same tokens per parameter, with its interval."""
    twice = ahead[1] if ahead else None
    return {"at": twice.at, "value": twice.value, "interval": twice.confidence} if twice else {}
