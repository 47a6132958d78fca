"""The fit of one arm, and those of all arms: numbers, tables, predictions and a curve."""

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scalevec.analysis.fits.compute_optimal import best_of_budgets
from scalevec.analysis.fits.isoflop import Optimum
from scalevec.analysis.fits.predicted_points import FACTORS, FittedArm, Kind, PointTable
from scalevec.analysis.fits.summary import fit_text
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import (
    C_CONVENTIONS,
    N_CONVENTIONS,
    CConvention,
    Interval,
    Loss,
    NConvention,
    Residual,
    Unit,
    Variable,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        >>> noise = np.exp(np.random.default_rng(1).normal(0, 1e-3, 10))
        >>> table["loss"] = 40 * (120 * sizes**2) ** -0.1 * noise
        >>> from scalevec.analysis import fit
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
        return fit_text(self)

    def __repr__(self) -> str:
        """The law with its parameters."""
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.parameters.items())
        return f"<Fit of {self.arm}: {self.formula}; {shown}>"

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
        return str(self.to_frame().to_html(index=False, float_format="{:.4g}".format))
