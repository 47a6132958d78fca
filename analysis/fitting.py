"""Fit a law to each arm: robust, from several starts, with its optimality verified and said."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analysis import intervals, joint
from analysis.data import C_CONVENTIONS, N_CONVENTIONS, FloatArray, checked
from analysis.estimate import Estimated, estimated
from analysis.fit_cautions import fit_warnings, hold_out_warning, optima_warnings
from analysis.hold_out import hold_out as held_out
from analysis.hold_out import joint_hold_outs
from analysis.laws import VARIABLES, law_named
from analysis.optima import Optimum
from analysis.pairs import pooled_settings
from analysis.parametrisation import require_identifiable
from analysis.profile import prediction_profile, profile, refusal
from analysis.settings import FitSettings, settings_from
from analysis.subjects import Subject, comparison_arms, subject_of
from analysis.where import rows_left_out, select
from analysis.words import is_loss, joined

FARTHER = 2.0
"""The prediction that every fit makes is at this many times the largest compute."""


OPTIMA_NOTE = (
    "from the scatter of the optima alone: how the optima were found (a parabola's form, the steps between "
    "curves) is not in it, and N* beyond the range is covered less often than it says"
)


@dataclass(frozen=True)
class Fit:
    """A fitted law of one arm. Parameters in counts, FLOPs and nats; ``objective`` is a sum over points.

    ``optimality`` is the decrement over the objective at the solution (verified below 1e-9);
    ``hold_out`` the largest rung predicted from the others; ``prediction`` the law at twice the largest
    compute; ``condition`` the condition number of the scaled curvature; ``joint`` a joint fit against
    separate ones; ``optima`` the best size at each budget for laws of N*(C).
    """

    arm: str
    law: str
    formula: str
    x: str
    y: str
    parameters: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    interval_method: str
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
    loss: str
    delta: float
    residual: str
    n_convention: str
    c_convention: str
    hold_out: dict[str, Any] = field(default_factory=dict)
    prediction: dict[str, Any] = field(default_factory=dict)
    joint: dict[str, Any] = field(default_factory=dict)
    optima: tuple[Optimum, ...] = ()
    warnings: tuple[str, ...] = ()
    where: str | None = None
    units: dict[str, str] = field(default_factory=dict)

    def predict(self, **variables: FloatArray) -> FloatArray:
        """Loss in nats a token (N* in parameters) at the law's variables (``x=``, or ``N=`` and ``D=``)."""
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
    results: pd.DataFrame, *, where: str | None = None, hold_out: bool | str = True, **settings: Any
) -> list[Fit]:
    """Fit a law to the completed comparison trials of each arm, arms in the order of the table.

    ``hold_out`` is True (the largest rung), False, the column at whose last value rows are held out, or an
    expression as in ``where``. ``settings`` are the fields of :class:`FitSettings`. Raises
    :class:`DataError` for bad values and for points that leave a parameter free.

    >>> table = pd.DataFrame({"n_params": [1e5, 2e5, 4e5], "n_tokens": [2e6, 4e6, 8e6]})
    >>> table["loss"] = 40.0 * (6 * table.n_params * table.n_tokens) ** -0.1
    >>> [f"{fit.parameters['alpha']:.4f}" for fit in fit(table, law="power", bootstrap=0)]
    ['0.1000']
    """
    selected = select(results, where)
    chosen = settings_from(settings).resolved(selected)
    table = checked(selected, chosen.needed_columns())
    arms = comparison_arms(table)
    parts = [table[table["arm"] == arm] for arm in arms]
    if chosen.functional_form.own:
        fits = _joint_fits(parts, chosen, hold_out)
    else:
        fits = [fit_arm(part, chosen, hold_out=hold_out) for part in parts]
    return [_of_chosen_rows(one, results, where) for one in fits]


def _of_chosen_rows(found: Fit, results: pd.DataFrame, where: str | None) -> Fit:
    """The fit with the expression that chose its rows, and how many it left out."""
    left_out = rows_left_out(results, where, [found.arm])
    excluded = {"where": left_out, **found.excluded} if left_out else found.excluded
    return dataclasses.replace(found, where=where, excluded=excluded)


def _units(settings: FitSettings) -> dict[str, str]:
    """The unit of each parameter with the chosen x and y."""
    y = "nats a token" if is_loss(settings.y) else f"unit of {settings.y}"
    named = {"unit of x": VARIABLES[settings.x], "nats a token": y}
    units = dict(settings.functional_form.units)
    for old, new in named.items():
        units = {name: unit.replace(old, new) for name, unit in units.items()}
    return units


def fit_arm(table: pd.DataFrame, settings: FitSettings, *, hold_out: bool | str = True) -> Fit:
    """Fit one arm's checked rows; see :func:`fit`."""
    subject = subject_of(table, settings)
    require_identifiable(subject.points, subject.arm, settings.x)
    found = estimated(subject.points, subject.y, subject.settings.options)
    return _result(subject, found, 0, _uncertainty(subject, found), _held_out(subject, hold_out))


def _joint_fits(parts: list[pd.DataFrame], settings: FitSettings, hold_out: bool | str) -> list[Fit]:
    """One result for each arm of one joint fit."""
    subjects = [subject_of(part, settings) for part in parts]
    data = [(subject.points.variables, subject.y) for subject in subjects]
    law, options = settings.functional_form, settings.options
    found = joint.joint_fit(data, law, options)
    independent = all(subject.independent for subject in subjects)
    against = joint.likelihood_comparison(data, law, options, independent=independent)
    whole = dataclasses.replace(
        subjects[0],
        rows=pd.concat([subject.rows for subject in subjects], ignore_index=True),
        points=found.points,
        y=found.y,
    )
    made = _uncertainty(whole, found)
    rows = [subject.rows for subject in subjects]
    held = joint_hold_outs(rows, settings, hold_out) if hold_out is not False else [{} for _ in subjects]
    return [
        dataclasses.replace(_result(subject, found, arm, made, held[arm]), joint=against)
        for arm, subject in enumerate(subjects)
    ]


@dataclass(frozen=True)
class _Profiled:
    """Intervals are read from the profile of the objective, which needs no redraws."""

    method: str = "profile"


_Uncertainty = intervals.Redraws | _Profiled | str


def _uncertainty(subject: Subject, found: Estimated) -> _Uncertainty:
    """Where the intervals come from, or the reason why there are none, as a sentence."""
    settings = subject.settings
    if several := pooled_settings(subject.rows):
        return f"no interval: values of {joined(several)} differ at one rung, by more than seed noise"
    if settings.interval != "profile":
        return intervals.redraws(found, found.points.cells, subject.clusters, settings)
    return refusal(found, subject.clusters.nunique()) or _Profiled()


def _result(subject: Subject, found: Estimated, arm: int, made: _Uncertainty, held: dict[str, Any]) -> Fit:
    settings = subject.settings
    bounds, note = _intervals(found, made, settings, arm)
    if subject.optima and bounds:
        note += f"; {OPTIMA_NOTE}"
    return Fit(
        arm=subject.arm,
        formula=settings.formula,
        parameters=found.parameters(arm),
        intervals=bounds,
        interval_method="none" if isinstance(made, str) else made.method,
        interval_note=note,
        n_bootstrap=made.draws if isinstance(made, intervals.Redraws) else 0,
        objective=found.objective,
        optimality=found.optimality,
        starts_agreeing=found.starts_agreeing,
        n_starts=len(found.solution.objective),
        condition=found.conditioning()[0],
        n_points=len(subject.y),
        n_clusters=int(subject.clusters.nunique()),
        excluded=subject.excluded,
        hold_out=held,
        prediction=_prediction(subject, found, made, arm),
        optima=subject.optima,
        warnings=tuple(_warnings(subject, found, arm) + hold_out_warning(held)),
        units=_units(settings),
        **{name: getattr(settings, name) for name in _COPIED},
    )


_COPIED = ("law", "x", "y", "level", "seed", "loss", "delta", "residual", "n_convention", "c_convention")


def _intervals(
    found: Estimated, made: _Uncertainty, settings: FitSettings, arm: int
) -> tuple[dict[str, tuple[float, float]], str]:
    """The interval of each parameter that has one, and what it is, or why there is none."""
    if isinstance(made, str):
        return {}, made
    if isinstance(made, intervals.Redraws):
        bounds = intervals.parameter_intervals(found, made, settings.level, arm)
        missing = [name for name in found.points.law.parameters if name not in bounds]
        note = f"; none for {', '.join(missing)}, which the noise leaves free" if missing else ""
        return bounds, made.note + note
    profiles = [profile(found, name, settings.level, arm) for name in found.points.law.parameters]
    notes = [one.note for one in profiles if one.note]
    bounds = {one.name: one.interval for one in profiles if one.interval is not None}
    return bounds, "; ".join(["profile of the objective", *notes])


def _held_out(subject: Subject, which: bool | str) -> dict[str, Any]:
    if which is False:
        return {}
    settings = subject.settings
    if subject.optima:
        kept = [optimum for optimum in subject.optima if not optimum.censored]
        rows = pd.DataFrame(
            {"flops": [o.budget for o in kept], "n_star": [o.n_star for o in kept]}, dtype=float
        )
        rows["rung"] = rows["flops"].map("C {:.3g}".format)
        # As a plain power law in C, whose y is N*.
        settings = dataclasses.replace(settings, law="power", x="C", y="n_star", c_convention="given")
        return held_out(rows, settings, True, subject.arm)
    return held_out(subject.rows, settings, which, subject.arm)


def _prediction(subject: Subject, found: Estimated, made: _Uncertainty, arm: int) -> dict[str, Any]:
    """The law at twice the largest compute, at the same tokens per parameter, with its interval."""
    variables = dict(subject.points.variables)
    size = np.sum([np.log(values) for values in variables.values()], axis=0)
    largest = int(np.argmax(size))
    in_compute = "C" in variables or ("x" in variables and subject.settings.x == "C")
    factor = FARTHER if in_compute else FARTHER**0.5
    at = {name: float(values[largest] * factor) for name, values in variables.items()}
    value = found.points.law.predict(found.parameters(arm), {k: np.array([v]) for k, v in at.items()})
    level, interval = subject.settings.level, None
    if isinstance(made, intervals.Redraws):
        interval = intervals.prediction_interval(found, made, at, level, arm)
    elif isinstance(made, _Profiled):
        interval = prediction_profile(found, at, level, arm).interval
    shown = {subject.settings.x if name == "x" else name: number for name, number in at.items()}
    return {"at": shown, "value": float(value[0]), "interval": interval}


def _warnings(subject: Subject, found: Estimated, arm: int) -> list[str]:
    said = fit_warnings(subject.rows, subject.settings, found, arm, independent=subject.independent)
    return said + optima_warnings(subject.optima, subject.settings)
