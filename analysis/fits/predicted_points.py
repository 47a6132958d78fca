"""What a fitted law says of points that nobody ran, and the error that it is known to make there.

The interval of the law has two parts, added in quadrature: the noise of the runs, and the law's own error,
which is that of its rolling hold-outs at the same distance from their data. It reaches as far as the other
laws that fit. Beyond the data nothing is said by a law that is refuted or whose exponent may be zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray, variable_of
from scalevec.analysis.data.values import LARGEST_NUMBER, SMALLEST_NUMBER
from scalevec.analysis.errors import DataError, require_choice
from scalevec.analysis.fits import hold_out
from scalevec.analysis.fits.arm_data import BESIDE, ArmData, data_of_rows, fitted_laws
from scalevec.analysis.fits.intervals import Replicates, no_interval, values_of
from scalevec.analysis.formatting import joined, p_value
from scalevec.analysis.options import VARIABLES, AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw
from scalevec.analysis.statistics.noise import t_quantile

FACTORS = {"at the largest C": 1.0, "at twice the largest C": 2.0, "at ten times the largest C": 10.0}
"""Where a law is asked if nobody says where."""
CURVE_POINTS = 60
ONE_LINE = 1.5
"""Tokens per parameter that differ by more lie on no line in compute."""
COLUMNS = {"N": "n_params", "D": "n_tokens", "C": "flops"}
"""The columns of a table of points beside N, D and C themselves."""
_CROSSED = "E + A/N^alpha + B/D^beta + K/(N^alpha*D^beta); positive A, B"
ALTERNATIVES = (("power", "power-floor"), ("chinchilla", "gadre", "kaplan", _CROSSED))
"""Laws of the same variables, whose range the interval of each covers as far as they fit.

The last lets N and D act together, as no published law here does."""
LAST_STEPS = 2
"""Of the rolling hold-outs the last so many count: earlier ones are of laws of few rungs."""
NEAR = 0.15
"""Decades beyond the data (twice the compute along a line) from which on the law has the whole of that error.

It grows with the decades where its hold-outs lay nearer, with their square beyond as many as the data span.
"""
RECORD = ("value", "low", "high", "run_low", "run_high", "decades", "beyond", "note")
Kind = Literal["law", "run"]
PointTable = pd.DataFrame | Mapping[str, object]


@dataclass(frozen=True)
class FittedArm:
    """The law of an arm (its ``number`` among the ``arms`` of a joint fit) and where its intervals come from.

    ``held`` is its hold-out, ``lack`` the p value of its lack of fit.
    """

    arms: tuple[ArmData, ...]
    law: FittedLaw
    number: int
    uncertainty: Replicates
    held: Mapping[str, Any] = field(default_factory=dict)
    lack: float | None = None

    @property
    def refuted(self) -> str:
        """What speaks against the law: its hold-out outside of its own interval, or its lack of fit."""
        if self.held.get("fails"):
            low, high = self.held["interval"]
            return (
                f"the law is refuted by its hold-out: predicted {self.held['predicted']:.5g} "
                f"({low:.5g} to {high:.5g}), seen {self.held['observed']:.5g}"
            )
        if self.lack is not None and self.lack < hold_out.SIGNIFICANT:
            return f"the law is refuted by its lack of fit (p {p_value(self.lack)})"
        return ""

    @property
    def data(self) -> ArmData:
        """The data of the arm."""
        return self.arms[self.number]

    def values(self, theta: FloatArray, variables: Mapping[str, FloatArray]) -> FloatArray:
        """The laws ``theta`` [rows, parameters] at ``variables`` [points]: [rows, points]."""
        return values_of(self.law, theta, variables, self.number)

    def shown(self, variable: str) -> str:
        """The name of a variable of the law in the table."""
        return self.data.options.x if variable == "x" else variable

    @cached_property
    def seen(self) -> dict[str, FloatArray]:
        """The variables of the points that were fitted."""
        points = self.data.points.variables
        return {self.shown(name): values for name, values in points.items()}

    def line(self, factors: Mapping[str, float]) -> pd.DataFrame:
        """Points at ``factors`` of the largest compute, by name, at the tokens per parameter of that run.

        None for a law over other columns, which have no larger compute.
        """
        if not self.seen.keys() <= VARIABLES.keys():
            return pd.DataFrame()
        largest = int(np.argmax(np.sum([np.log(values) for values in self.seen.values()], axis=0)))
        table = pd.DataFrame({"rung": list(factors)})
        for name, values in self.seen.items():
            power = 1.0 if name == "C" else 0.5
            table[name] = [values[largest] * factor**power for factor in factors.values()]
        return table

    def curve(self, factor: float, interval: Kind = "law") -> pd.DataFrame:
        """The law from its smallest point to ``factor`` times the largest compute, as :meth:`predict` does.

        ``drawn at`` is the place of each point on the :attr:`axis`.
        """
        name, seen = self.axis
        # Along one ratio compute is the square of N and of D.
        first = (seen.min() / seen.max()) ** (1 if name == "C" else 2)
        line = self.line({f"{at:.9g}": float(at) for at in np.geomspace(first, factor, CURVE_POINTS)})
        at = line[name] if name in line else 6 * line["N"] * line["D"]
        return self.predict(line, interval).assign(**{"drawn at": at})

    @property
    def axis(self) -> tuple[str, FloatArray]:
        """What a law is drawn against, N, D or C, and its values at the points that were fitted."""
        if len(self.seen) == 1:
            return next(iter(self.seen.items()))
        return "C", self.seen["C"] if "C" in self.seen else 6 * self.seen["N"] * self.seen["D"]

    def records(self, points: PointTable) -> list[dict[str, Any]]:
        """The law at points with both intervals as plain JSON values."""
        law, run = self.predict(points), self.predict(points, "run")
        law["run_low"], law["run_high"] = run["low"], run["high"]
        return [
            {
                "name": row.get("point", ""),
                "at": {name: row[name] for name in self.seen},
                **{name: None if row[name] != row[name] else row[name] for name in RECORD},
            }
            for row in law.to_dict("records")
        ]

    def predict(self, points: PointTable | None = None, interval: Kind = "law") -> pd.DataFrame:
        """The law at each point; see :meth:`Fit.predict`."""
        require_choice("interval", interval, ("law", "run"))
        if points is None:
            table = self.line(FACTORS)
            if table.empty:
                raise DataError(f"law {self.data.options.law} has no larger compute; give points")
        elif isinstance(points, pd.DataFrame | Mapping):
            table = pd.DataFrame({name: np.atleast_1d(np.asarray(of)) for name, of in points.items()})
        else:
            raise DataError(f"points are {type(points).__name__}; allowed: a DataFrame or a dict")
        if table.empty:
            raise DataError("the table of points has no rows; at least one is needed")
        options, law = self.data.options, self.law.points.law
        columns = {name: _column(table, self.shown(name), options) for name in law.variables}
        values = self.values(self.law.theta[None], columns)[0]
        good = (values > 0) & (values < np.inf)
        if not good.all():
            row = int(good.argmin())
            at = ", ".join(f"{self.shown(name)} = {of_all[row]:g}" for name, of_all in columns.items())
            raise DataError(f"arm {self.data.arm!r}: the law is {values[row]:g} at {at}, which is no loss")
        result = pd.DataFrame({"point": table["rung"].astype(str)} if "rung" in table else {}, table.index)
        for name, of_all in columns.items():
            result[self.shown(name)] = of_all
        result["value"] = values
        beyond = hold_out.decades_beyond(self.seen, result)
        distance = beyond[list(self.seen)].abs().max(axis=1).to_numpy()
        result["low"], result["high"] = self._ends(columns, values, distance, interval)
        result["decades"], result["beyond"] = hold_out.farthest(beyond)
        result["note"] = [self._note(far > 0, low) for far, low in zip(distance, result["low"], strict=True)]
        result["note"] = result["note"].where(result["note"] != "", self._off_the_line(table))
        result.loc[result["note"] != "", ["low", "high"]] = np.nan
        if self.silent:
            result.loc[distance > 0, "value"] = np.nan
        return result

    @cached_property
    def silent(self) -> str:
        """Why the law says nothing beyond its data, as a sentence; empty where it does."""
        law, parameters = self.law.points.law, self.law.parameters(self.number)
        bounds = self.uncertainty.parameters(self.law, self.data.options.level, self.number)[0]
        for term in law.written.terms if self.data.options.y == "loss" and not self.data.optima else ():
            if not term.exponent or term.rising:
                continue
            low = bounds.get(term.exponent, (parameters[term.exponent],))[0]
            if low <= 0:
                verb = "is" if parameters[term.exponent] <= 0 else "may be"
                return (
                    f"withheld: {term.exponent} {verb} zero or below, so that the loss does not fall with "
                    f"{self.shown(term.variable)}"
                )
        line = self.line({"at the end": 1.0, "beyond it": 10.0})
        if len(line) and self.data.options.y == "loss" and not self.data.optima:
            columns = {name: line[self.shown(name)].to_numpy(float) for name in law.variables}
            end, beyond = self.values(self.law.theta[None], columns)[0]
            if beyond >= end:
                return "withheld: the loss does not fall by this law with more compute"
        return f"withheld: {self.refuted}" if self.refuted else ""

    def _note(self, is_far: bool, low: float) -> str:
        """Why a point has no interval, empty where it has one."""
        if is_far and self.silent:
            return self.silent
        if self.refuted:
            return f"no interval: {self.refuted}"
        if not self.uncertainty.draws:
            return self.uncertainty.note
        if is_far and self.law_error is None:
            return "no interval: too few rungs to hold one out, so that the law's own error is not known"
        return "" if np.isfinite(low) else "no interval: the noise leaves it open"

    def _off_the_line(self, table: pd.DataFrame) -> list[str] | str:
        """Why points that lie off the line of the runs have no interval by a law of one column."""
        known = [name for name in VARIABLES if name in table or COLUMNS[name] in table]
        if len(self.seen) > 1 or len(known) < 2 or self.data.optima or "n_tokens" not in self.data.rows:
            return ""
        n, d = (_column(table, name, self.data.options) for name in ("N", "D"))
        factors = np.exp(self.data.off_line(n, d))
        why = f"no interval: by a law in {self.data.along} alone, at a point with"
        what = BESIDE.get(self.data.along, BESIDE["C"])
        return [
            f"{why} {factor:.3g} times the {what} of the runs there"
            if not 1 / ONE_LINE <= factor <= ONE_LINE
            else ""
            for factor in factors
        ]

    def _ends(
        self, columns: Mapping[str, FloatArray], values: FloatArray, distance: FloatArray, interval: Kind
    ) -> tuple[FloatArray, FloatArray]:
        """The ends of the intervals [points]; nan where there is none."""
        if not self.uncertainty.draws or (interval == "run" and self.data.optima):
            return np.full(len(values), np.nan), np.full(len(values), np.nan)
        t = t_quantile(self.data.options.level, self.uncertainty.df)
        with np.errstate(all="ignore"):
            drawn = t * np.std(np.log(self.values(self.uncertainty.solution.theta, columns)), axis=0)
            run = (
                t * self.uncertainty.run_sd(values) / (1.0 if self.law.options.residual == "log" else values)
            )
            # Inside of the data neither counts, and both take long to find.
            others, law_error = (self.others, self.law_error) if (distance > 0).any() else ([], None)
            whole, of_a_decade = law_error or (0.0, 0.0)
            spanned = max(float(np.log10(self.axis[1].max() / self.axis[1].min())), NEAR)
            grown = of_a_decade * distance * np.maximum(distance / spanned, 1.0)
            error = np.maximum(whole * np.minimum(distance / NEAR, 1.0), grown)
            half = np.hypot(drawn, np.hypot(error, run if interval == "run" else 0.0))
            of_others = [other.values(other.law.theta[None], columns)[0] for other in others]
            logs = np.log(np.stack([values, *of_others]))
            logs = np.where((distance > 0) & np.isfinite(logs), logs, np.log(values))
            return np.exp(logs.min(axis=0) - half), np.exp(logs.max(axis=0) + half)

    @cached_property
    def law_error(self) -> tuple[float, float] | None:
        """The error of the law by its rolling hold-outs, and a decade beyond its data; None where unknown.

        A rung that is predicted from nearby says little of a decade, down to one at :data:`NEAR`.
        """
        held = [
            (np.log1p(record["relative_error"]), np.clip(record["decades"], NEAR, 1.0))
            for record in hold_out.rolling_hold_outs(self.arms, LAST_STEPS)
            if record["arm"] == self.data.arm and record.get("relative_error", -1.0) > -1.0
        ]
        errors, decades = np.array(held).reshape(-1, 2).T
        if not len(errors):
            return None
        whole, of_a_decade = (float(np.sqrt(np.mean(each**2))) for each in (errors, errors / decades))
        return whole, of_a_decade

    @cached_property
    def others(self) -> list["FittedArm"]:
        """The other laws of the same variables that fit the arm, alone."""
        options, name = self.data.options, self.law.points.law.name
        if self.refuted or options.law != name:
            return []
        laws: list[FittedArm] = []
        for law in (law for family in ALTERNATIVES if name in family for law in family if law != name):
            try:
                data = data_of_rows(self.data.arm, self.data.rows, replace(options, law=law))
                [fitted] = fitted_laws([data])
            except DataError:
                continue
            [held] = hold_out.hold_outs([data], "largest", hold_out.DRAWS)
            other = FittedArm(
                (data,), fitted, 0, no_interval(fitted, ""), held, hold_out.lack_of(data, fitted)
            )
            if fitted.optimal and not other.refuted:
                laws.append(other)
        return laws


def _column(table: pd.DataFrame, name: str, options: AnalysisOptions) -> FloatArray:
    """Return a variable of a law at each point of ``table`` [rows].

    N, D and C stand under these names or as ``n_params`` (counted as ``n_convention`` says), ``n_tokens``,
    ``flops``; by 6ND any two of them give the third. Raises :class:`DataError` for what is missing, and for
    values that are no finite numbers above zero.
    """
    if name in table:
        return positive_numbers(table, name)
    if COLUMNS.get(name) in table:
        numbers = positive_numbers(table, COLUMNS[name])
        return numbers if name != "N" else variable_of(table.assign(n_params=numbers), "N", options)
    others = [other for other in VARIABLES if other != name]
    known = [other for other in others if other in table or COLUMNS[other] in table]
    if name in VARIABLES and len(known) == 2 and options.c_convention == "6nd":
        first, second = (_column(table, other, options) for other in others)
        return 6 * first * second if name == "C" else second / 6 / first
    given = joined([str(column) for column in table.columns if column != "rung"]) or "nothing"
    raise DataError(f"a point needs {name}, which law {options.law} reads; given: {given}; add {name}=...")


def positive_numbers(table: pd.DataFrame, name: str) -> FloatArray:
    """A column of points [rows]. Raises :class:`DataError` for what is no finite number above zero."""
    numbers = pd.to_numeric(table[name], errors="coerce")
    good = numbers.between(SMALLEST_NUMBER, LARGEST_NUMBER).to_numpy(bool)
    if not good.all():
        row = int(good.argmin())
        raise DataError(
            f"point {row + 1}: {name} is {table[name].iloc[row]}; allowed: finite numbers above zero"
        )
    return numbers.to_numpy(float)
