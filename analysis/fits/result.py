"""The fit of one arm, and those of all arms: numbers, tables, predictions and a curve."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import pandas as pd

from scalevec.analysis.errors import nearest
from scalevec.analysis.fits.compute_optimal import best_of_budgets
from scalevec.analysis.fits.isoflop import Optimum
from scalevec.analysis.fits.predicted_points import FACTORS, FittedArm, Kind, PointTable
from scalevec.analysis.formatting import aligned, chosen_rows, criterion, limits, percent
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import C_CONVENTIONS, N_CONVENTIONS, AnalysisOptions, Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

T = TypeVar("T")

FLAT = (
    *("law", "x", "y", "where", "level", "seed", "loss", "delta", "residual"),
    *("n_convention", "c_convention", "unit"),
)
"""The options that stand among the fields of a fit in JSON."""


@dataclass(frozen=True)
class Fit:
    """A fitted law of one arm; the fields are those of ``scalevec fit --json``.

    Attributes:
        arm: The arm; its law is written out in ``formula``.
        parameters: The published parameters by name; ``units`` gives the unit of each.
        intervals: The interval of each parameter that has one, at the level of the options.
        interval_method: How intervals were made; ``interval_note`` says from what, or why there are none.
        refuted: What speaks against the law, its hold-out or its lack of fit; empty where nothing does.
        n_bootstrap: Bootstrap replicates that are used.
        objective: The objective at the solution, a sum over points.
        optimality: The decrement over the objective at the solution; below 1e-9 the optimum is verified.
        starts_agreeing: How many of the ``n_starts`` starts reached this optimum.
        condition: Condition number of the curvature, scaled to a unit diagonal.
        n_points: Points that are fitted, in ``n_clusters`` independent runs.
        excluded: Number of rows that were left out, by reason.
        options: How it was fitted: law, variable, conventions, with ``loss: auto`` decided.
        hold_out: The largest rung (or what was asked for) predicted from the other points.
        optima: The best size N* at each budget, for laws of N*(C).
        warnings: Caveats, one sentence each.
        rolling: Where laws are compared: how they predict each next rung from the smaller ones.
    """

    arm: str
    formula: str
    parameters: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    interval_method: Interval
    interval_note: str
    n_bootstrap: int
    objective: float
    optimality: float
    starts_agreeing: int
    n_starts: int
    condition: float
    n_points: int
    n_clusters: int
    excluded: dict[str, int]
    options: AnalysisOptions
    fitted: FittedArm = field(repr=False, compare=False)
    refuted: str = ""
    hold_out: dict[str, Any] = field(default_factory=dict)
    optima: tuple[Optimum, ...] = ()
    warnings: tuple[str, ...] = ()
    units: dict[str, str] = field(default_factory=dict)
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
        >>> noise = np.exp(np.random.default_rng(1).normal(0, 1e-3, 10))
        >>> table["loss"] = 40 * (120 * sizes**2) ** -0.1 * noise
        >>> from scalevec.analysis import fit
        >>> predicted = fit(table, law="power").only.predict({"C": 1e15})
        >>> bool(predicted.low[0] < 40 * 1e15**-0.1 < predicted.high[0]), float(predicted.decades[0].round(2))
        (True, 0.92)
        """
        return self.fitted.predict(points, interval)

    def best(self, *flops: float) -> pd.DataFrame:
        """Return the best size of each budget of 6 N D = ``flops``, with intervals where the design has them.

        Returns:
            A row for each budget: ``N``, ``D``, ``tokens_per_parameter`` and ``value`` (y there, by a law in
            N and D), each with ``_low`` and ``_high``; ``decades``, ``beyond`` and ``note`` as for a point.

        Raises:
            DataError: A law that is not in N and D, or that is lowest at the end of a budget.
        """
        return best_of_budgets(self.fitted, flops)

    @property
    def draws(self) -> pd.DataFrame:
        """The parameters of the fits to bootstrap replicates [draws x parameters]; empty without any."""
        theta = self.fitted.uncertainty.solution.theta
        return pd.DataFrame(self.fitted.law.points.parameters(theta, self.fitted.number))

    def to_frame(self) -> pd.DataFrame:
        """A row for each parameter: arm, parameter, value, low, high, unit."""
        rows = [
            (self.arm, name, value, *self.intervals.get(name, (np.nan, np.nan)), self.units[name])
            for name, value in self.parameters.items()
        ]
        return pd.DataFrame(rows, columns=["arm", "parameter", "value", "low", "high", "unit"])

    def summary(self) -> str:
        """The fit as lines of text: parameters, optimality, hold-out, conventions, caveats."""
        return "\n  ".join([f"{self.arm}: {self.formula}", *_fit_lines(self)])

    def __repr__(self) -> str:
        """The law with its parameters."""
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.parameters.items())
        return f"<Fit of {self.arm}: {self.formula}; {shown}>"

    @property
    def interval_line(self) -> str:
        """What is said of the intervals below the numbers."""
        note = self.interval_note
        return note if note.startswith("no interval") else f"interval: {note}"

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(index=False, float_format="{:.4g}".format))

    def plot(self, ax: "Axes | None" = None, color: str | None = None, factor: float = 1.0) -> "Axes":
        """Draw the law with its band and runs, to ``factor`` times the largest compute.

        A law in N and D is drawn against C at the tokens per parameter of its largest run.

        Returns:
            The axes: ``ax``, or those of a new figure.
        """
        from matplotlib import pyplot as plt

        axes = ax or plt.subplots()[1]
        (name, seen), curve = self.fitted.axis, self.fitted.curve(factor)
        (drawn,) = axes.plot(curve["drawn at"], curve["value"], color=color, label=self.arm)
        colour, band = drawn.get_color(), (curve["low"], curve["high"])
        axes.fill_between(curve["drawn at"], *band, color=colour, alpha=0.2, linewidth=0)
        axes.plot(seen, self.fitted.data.y, "o", color=colour, markersize=4)
        axes.set(xscale="log", yscale="log", xlabel=name, ylabel=self.options.y)
        return axes

    @property
    def conventions(self) -> str:
        """What N, C and x mean here, as a sentence."""
        options = self.options
        shown = f"x is {options.x}; " if "x" in law_named(options.law).variables else ""
        return f"{shown}N: {N_CONVENTIONS[options.n_convention]}; C: {C_CONVENTIONS[options.c_convention]}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with ``predictions`` at the largest compute and beyond, as far as it has one."""
        apart, points = ("fitted", "options"), self.fitted.line(FACTORS)
        shown = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in apart}
        shown |= {name: getattr(self.options, name) for name in FLAT}
        predictions = [] if points.empty else self.fitted.records(points)
        return shown | {"optima": [dataclasses.asdict(o) for o in self.optima], "predictions": predictions}


class ByArm(dict[str, T]):
    """A value for each arm, in the order of the table."""

    @property
    def only(self) -> T:
        """The value of the only arm. Raises :class:`ValueError` where there are several."""
        [value] = self.values()
        return value

    def __missing__(self, arm: object) -> NoReturn:
        raise KeyError(f"{arm!r} is no arm; {nearest(str(arm), self)}")


class Fits(ByArm[Fit]):
    """The fits by arm, in the order of the table."""

    def to_frame(self) -> pd.DataFrame:
        """A row for each arm and parameter."""
        return pd.concat([fitted.to_frame() for fitted in self.values()], ignore_index=True)

    def summary(self) -> str:
        """The fits as lines of text."""
        return "\n".join(fitted.summary() for fitted in self.values())


def _fit_lines(fit: Fit) -> Iterator[str]:
    if ";" in fit.options.law:
        yield f"law: {fit.options.law}"
    for name, value in fit.parameters.items():
        interval = fit.intervals.get(name)
        shown = f" ({limits(interval, '.6g')}, {percent(fit.options.level)})" if interval else ""
        unit = "" if fit.units[name] == "none" else f" {fit.units[name]}"
        yield f"{name} {value:.6g}{shown}{unit}"
    yield fit.interval_line
    minimised = criterion(fit.options.loss, fit.options.delta, fit.options.residual)
    yield (
        f"{fit.n_points} points, {fit.n_clusters} independent runs; {minimised}; objective "
        f"{fit.objective:.10g} (sum), optimality {fit.optimality:.1e}, "
        f"{fit.starts_agreeing} of {fit.n_starts} starts agree, condition {fit.condition:.1e}"
    )
    yield from chosen_rows(fit.options.where, fit.excluded.get("where", 0))
    others = [f"{count} {why}" for why, count in fit.excluded.items() if why != "where"]
    if others:
        yield f"left out: {', '.join(others)}"
    for o in fit.optima:
        ratio = f"{o.tokens_per_parameter:.3g} tokens per parameter" if o.n_star else ""
        size = f"N* {o.n_star:.4g}, D* {o.d_star:.4g} ({ratio})" if o.n_star else f"censored: {o.censored}"
        yield f"C {o.budget:.4g}: {size}"
    yield from held_out_lines(fit.hold_out)
    yield fit.conventions
    yield from (f"warning: {warning}" for warning in fit.warnings)


def held_out_lines(held: Mapping[str, Any]) -> list[str]:
    """The hold-out of a fit with its error, or why there is none; nothing where none was asked for."""
    if "predicted" not in held:
        return no_hold_out(held)
    interval = held["interval"]
    shown = f" ({limits(interval, '.6g')})" if interval else ""
    return [
        f"hold-out ({held['by']}: {held['rung'][:80]}): predicted {held['predicted']:.6g}{shown}, seen "
        f"{held['observed']:.6g}, error {100 * held['relative_error']:+.4f} % (worst of "
        f"{held['n_points']}: {100 * held['largest_absolute_error']:.4f} %)"
    ]


def no_hold_out(held: Mapping[str, Any]) -> list[str]:
    """Why nothing was held out, where something was asked for."""
    return [f"hold-out ({held['by']}): {held['reason']}"] if "reason" in held else []


def laws_text(fits: Sequence[Fit]) -> str:
    """The laws of each arm, best first by their errors on the next rungs, then by the hold-out."""
    header = ("arm", "law", "fitted", "next rungs, mean |error|", "steps", "hold-out", "objective", "optimum")

    def rank(fit: Fit) -> tuple[str, float, float]:
        held = abs(fit.hold_out.get("relative_error", np.inf))
        return fit.arm, fit.rolling.get("mean_absolute_error", np.inf), held

    rows = [header, *map(_row, sorted(fits, key=rank))]
    ends = "next rungs: each predicted by the law of the smaller ones, where all laws could be fitted"
    warnings = [f"{fit.arm}, {fit.options.law}: {warning}" for fit in fits for warning in fit.warnings]
    return "\n".join([*aligned(rows, range(2)), ends, fits[0].conventions, *dict.fromkeys(warnings)])


def _row(fitted: Fit) -> tuple[str, ...]:
    rolled, held = fitted.rolling.get("mean_absolute_error"), fitted.hold_out.get("relative_error")
    return (
        *(fitted.arm, fitted.options.law, str(len(fitted.fitted.law.points.law.parameters))),
        *("-" if rolled is None else f"{100 * rolled:.4f} %", str(fitted.rolling["steps"])),
        *("-" if held is None else f"{100 * held:+.4f} %", f"{fitted.objective:.6g}"),
        "verified" if fitted.optimality < 1e-9 else "not verified",
    )
