"""Fit a law to each arm: robust, from several starts, with its optimality verified and said."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pandas as pd

from scalevec.analysis.data.pairs import pooled_settings
from scalevec.analysis.fits.arm_data import ArmData, arm_data, data_of_arms, fitted_laws
from scalevec.analysis.fits.fit_warnings import fit_warnings, hold_out_warning, lack_of, optima_warnings
from scalevec.analysis.fits.hold_out import hold_outs
from scalevec.analysis.fits.intervals import NoInterval, replicates
from scalevec.analysis.fits.isoflop import Optimum, vertex_replicates
from scalevec.analysis.fits.predictions import FACTORS, FittedArm, Kind, PointTable, Uncertainty
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OPTIMA_NOTE = (
    "how the optima were found (a parabola's form, the steps between curves) is not in it, and N* beyond the "
    "range is covered less often than it says"
)
_STEPS = 61
"""Points of a curve that is drawn."""


@dataclass(frozen=True)
class Fit:
    """A fitted law of one arm; the fields are those of ``scalevec fit --json``.

    Attributes:
        arm: The arm; its law is ``law``, written out in ``formula``.
        x: The variable of a law in one variable: N (parameters), D (tokens) or C (FLOPs).
        y: The column that is fitted, a loss unless its name says otherwise; ``unit`` is that of losses.
        parameters: The published parameters by name; ``units`` gives the unit of each.
        intervals: The interval of each parameter that has one, at ``level``.
        interval_method: How intervals were made; ``interval_note`` says from what, or why there are none.
        refuted: What speaks against the law, its hold-out or its lack of fit; empty where nothing does.
        n_bootstrap: Bootstrap replicates; ``seed`` is theirs.
        objective: The objective at the solution, a sum over points.
        optimality: The decrement over the objective at the solution; below 1e-9 the optimum is verified.
        starts_agreeing: How many of the ``n_starts`` starts reached this optimum.
        condition: Condition number of the curvature, scaled to a unit diagonal.
        n_points: Points that are fitted, in ``n_clusters`` independent runs.
        excluded: Number of rows that were left out, by reason.
        loss: The loss of the fit; ``delta`` is Huber's and ``residual`` the scale it acts on.
        n_convention: What N counts; ``c_convention`` what C counts.
        hold_out: The largest rung (or what was asked for) predicted from the other points.
        optima: The best size N* at each budget, for laws of N*(C).
        warnings: Caveats, one sentence each.
        where: The expression by which rows were chosen; None for all.
        fixed: The parameters that were given, not fitted; ``bounds`` those that were bounded, None for an
            open side.
        columns: The columns that a formula reads beside N, D, C and x.
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
    fitted: FittedArm = field(repr=False, compare=False)
    unit: Unit = "nats-per-token"
    refuted: str = ""
    hold_out: dict[str, Any] = field(default_factory=dict)
    optima: tuple[Optimum, ...] = ()
    warnings: tuple[str, ...] = ()
    where: str | None = None
    units: dict[str, str] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    bounds: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    weights: str | None = None
    rolling: dict[str, Any] = field(default_factory=dict)

    def predict(self, points: PointTable | None = None, interval: Kind = "law") -> pd.DataFrame:
        """Return what the law says at points that nobody ran.

        Args:
            points: A table, or a dict such as ``{"N": 1e9, "D": 2e10}``: N (parameters), D (tokens), C
                (FLOPs) or ``n_params``, ``n_tokens``, ``flops`` as far as the law reads them (by 6ND two
                give the third), the columns of a formula by their names, and ``rung`` for names. Without
                points: at the largest compute of the data, at twice and at ten times that.
            interval: Of the ``law`` (the runs' noise and the law's own error), or of one further ``run``.

        Returns:
            A row for each point: the law's variables, ``value`` in the unit of y, ``low`` and ``high`` at
            ``level``, ``decades`` beyond the data in the variable ``beyond``, and a ``note`` where the
            interval is withheld, or the value too.

        Raises:
            DataError: A point lacks a variable of the law, or is no finite number above zero.

        >>> sizes = np.repeat(np.geomspace(1e5, 1e6, 5), 2)
        >>> table = pd.DataFrame({"n_params": sizes, "n_tokens": 20 * sizes, "seed": [0, 1] * 5})
        >>> noise = np.exp(np.random.default_rng(0).normal(0, 1e-3, 10))
        >>> table["loss"] = 40 * (120 * sizes**2) ** -0.1 * noise
        >>> predicted = fit(table, law="power").only.predict({"C": 1e15})
        >>> bool(predicted.low[0] < 40 * 1e15**-0.1 < predicted.high[0]), float(predicted.decades[0].round(2))
        (True, 0.92)
        """
        return self.fitted.predict(points, interval)

    def ahead(self) -> list[dict[str, Any]]:
        """The law at the largest compute, at twice and at ten times that; [] for a law of other columns."""
        points = self.fitted.line(FACTORS)
        return [] if points.empty else self.fitted.records(points)

    def best(self, *flops: float) -> pd.DataFrame:
        """Return the best size of each budget of 6 N D = ``flops``, with intervals where the design has them.

        Returns:
            A row for each budget and method (``by``: the fitted ``surface``, or ``isoflop`` where the rows
            lie on such lines): ``N``, ``D``, ``tokens_per_parameter`` and ``value`` (y there), each with
            ``_low`` and ``_high``; ``decades``, ``beyond`` and ``note`` as for a point.

        Raises:
            DataError: A law that is not in N and D, or that is lowest at the end of a budget.
        """
        from scalevec.analysis.fits.compute_optimal import best_of_budgets

        return best_of_budgets(self.fitted, flops)

    @property
    def draws(self) -> pd.DataFrame:
        """The parameters of the fits to bootstrap replicates [draws x parameters]; empty without any."""
        solution = getattr(self.fitted.uncertainty, "solution", None)
        rows = np.empty((0, len(self.fitted.law.theta))) if solution is None else solution.theta
        return pd.DataFrame(self.fitted.law.points.parameters(rows, self.fitted.number))

    def to_frame(self) -> pd.DataFrame:
        """A row for each parameter: arm, parameter, value, low, high, unit."""
        nothing = (np.nan, np.nan)
        rows = [
            (self.arm, name, value, *self.intervals.get(name, nothing), self.units[name])
            for name, value in self.parameters.items()
        ]
        return pd.DataFrame(rows, columns=["arm", "parameter", "value", "low", "high", "unit"])

    def summary(self) -> str:
        """The fit as lines of text: parameters, optimality, hold-out, conventions, caveats."""
        from scalevec.analysis.report.text import fit_text

        return fit_text(self)

    def __repr__(self) -> str:
        """The law with its parameters."""
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.parameters.items())
        return f"<Fit of {self.arm}: {self.formula}; {shown}>"

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(index=False, float_format="%.4g")

    def plot(self, ax: "Axes | None" = None, color: str | None = None, factor: float = 1.0) -> "Axes":
        """Draw the law with its band and runs, to ``factor`` times the largest compute.

        A law in N and D is drawn against C at the tokens per parameter of its largest run.

        Returns:
            The axes: ``ax``, or those of a new figure.
        """
        from matplotlib import pyplot as plt

        axes = ax or plt.subplots()[1]
        name, seen = self.fitted.axis
        # Along one ratio compute is the square of N and of D.
        smallest = (seen.min() / seen.max()) ** (1 if name == "C" else 2)
        line = self.fitted.line({f"{at:.6g}": float(at) for at in np.geomspace(smallest, factor, _STEPS)})
        predicted = self.fitted.predict(line)
        at = predicted[name] if name in predicted else 6 * predicted["N"] * predicted["D"]
        (drawn,) = axes.plot(at, predicted["value"], color=color, label=self.arm)
        colour = drawn.get_color()
        axes.fill_between(at, predicted["low"], predicted["high"], color=colour, alpha=0.2, linewidth=0)
        axes.plot(seen, self.fitted.data.y, "o", color=colour, markersize=4)
        axes.set(xscale="log", yscale="log", xlabel=name, ylabel=self.y)
        return axes

    @property
    def conventions(self) -> str:
        """What N, C and x mean here, as a sentence."""
        shown = f"x is {self.x}; " if "x" in law_named(self.law).variables else ""
        return f"{shown}N: {N_CONVENTIONS[self.n_convention]}; C: {C_CONVENTIONS[self.c_convention]}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with ``predictions`` at the largest compute and beyond."""
        shown = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "fitted"}
        return shown | {"optima": [dataclasses.asdict(o) for o in self.optima], "predictions": self.ahead()}


class Fits(dict[str, Fit]):
    """The fits by arm, in the order of the table."""

    @property
    def only(self) -> Fit:
        """The fit of the only arm. Raises :class:`ValueError` where there are several."""
        [fitted] = self.values()
        return fitted

    def to_frame(self) -> pd.DataFrame:
        """A row for each arm and parameter."""
        return pd.concat([fitted.to_frame() for fitted in self.values()], ignore_index=True)

    def summary(self) -> str:
        """The fits as lines of text."""
        return "\n".join(fitted.summary() for fitted in self.values())

    def __repr__(self) -> str:
        """A line for each arm."""
        return "\n".join(map(repr, self.values()))

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(index=False, float_format="%.4g")


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
    arms = data_of_arms(results, options)
    if law_named(arms[0].options.law).per_arm:
        return _fitted(arms)
    return [fitted for data in arms for fitted in _fitted([data])]


def fit_arm(table: pd.DataFrame, options: AnalysisOptions) -> Fit:
    """Fit one arm's checked rows; see :func:`fit`."""
    return fit_of(*_fitted([arm_data(table, options)]))


def _fitted(arms: Sequence[ArmData]) -> list[FittedArm]:
    """The law of one arm, or of several that are fitted jointly."""
    laws = fitted_laws(arms)
    uncertainty, held = _uncertainty(arms, laws[0]), _held_out(arms)
    return [
        FittedArm(tuple(arms), law, number, uncertainty, held[number], lack_of(data, law))
        for number, (data, law) in enumerate(zip(arms, laws, strict=True))
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


def fit_of(fitted: FittedArm) -> Fit:
    """The result of one of :func:`fitted_arms`."""
    data, law, arm, uncertainty = fitted.data, fitted.law, fitted.number, fitted.uncertainty
    options = data.options
    bounds, note = _intervals(fitted)
    y = unit_of(options.y, options.unit) or f"unit of {options.y}"
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
        fitted=fitted,
        refuted=fitted.refuted,
        hold_out=fitted.held,
        optima=data.optima,
        warnings=(
            *fit_warnings(data.rows, options, law, arm, lack=fitted.lack),
            *filter(None, [data.repetitions[0], fitted.silent]),
            *optima_warnings(data.optima, options),
            *hold_out_warning(fitted.held),
        ),
        units=law.points.law.units(y, options.x),
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


def _intervals(fitted: FittedArm) -> tuple[dict[str, tuple[float, float]], str]:
    """The intervals of the parameters; those of exponents are withheld where the law is refuted."""
    law, level = fitted.law.points.law, fitted.data.options.level
    bounds, note = fitted.uncertainty.parameters(fitted.law, level, fitted.number)
    if fitted.data.optima and bounds:
        note += f"; {OPTIMA_NOTE}"
    exponents = [name for name in bounds if fitted.refuted and name not in law.linear]
    if exponents:
        note += f"; none for {', '.join(exponents)}: {fitted.refuted}"
    return {name: ends for name, ends in bounds.items() if name not in exponents}, note


def _bounds(law: FittedLaw) -> dict[str, tuple[float | None, float | None]]:
    """The bounds of parameters that the user or the law's text gave; being above zero is the law's own."""
    ranges = {name: ends for name, ends in law.points.law.ranges.items() if ends != (0.0, np.inf)}
    return {
        name: (None if low == -np.inf else low, None if high == np.inf else high)
        for name, (low, high) in ranges.items()
    }


def _held_out(arms: Sequence[ArmData]) -> list[dict[str, Any]]:
    options = arms[0].options
    if options.hold_out == "none":
        return [{} for _ in arms]
    if arms[0].optima:
        rows, of_optima = arms[0].table_of_optima()
        return hold_outs({arms[0].arm: rows}, of_optima, "largest")
    return hold_outs({data.arm: data.rows for data in arms}, options, options.hold_out)
