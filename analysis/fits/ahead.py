"""A fitted law at points that nobody ran, each with its intervals and how far it lies from the data.

The confidence interval is that of the law's value; the prediction interval that of one further run, whose own
noise is added as that of the runs that were fitted. Neither covers a law of the wrong form.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray, parameters_of
from scalevec.analysis.data.values import SMALLEST_NUMBER
from scalevec.analysis.errors import DataError, nearest
from scalevec.analysis.fits.arm_data import ArmData
from scalevec.analysis.fits.intervals import NoInterval, Replicates
from scalevec.analysis.fits.profile_likelihood import ProfileIntervals
from scalevec.analysis.formatting import joined
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import VARIABLES, AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw

FACTORS = {"at the largest C": 1.0, "at twice the largest C": 2.0, "at ten times the largest C": 10.0}
"""Where a law is asked if nobody says where."""
COLUMNS = {"N": "n_params", "D": "n_tokens", "C": "flops"}
"""The columns of a table of points beside N, D and C themselves."""
Uncertainty = Replicates | ProfileIntervals | NoInterval


@dataclass(frozen=True)
class PredictedPoint:
    """A law's value at one point.

    Attributes:
        name: What the point is called; empty where it has no name.
        at: The law's variables there, counts and FLOPs.
        value: The law's value, in the unit of y.
        confidence: Its interval; None where the design carries none.
        prediction: The interval of one further run.
        decades: By variable (C and D/N too where the law has N and D) how many decades the point lies above
            the largest of the data, below the smallest where negative; 0 within their range.
    """

    name: str
    at: dict[str, float]
    value: float
    confidence: tuple[float, float] | None
    prediction: tuple[float, float] | None
    decades: dict[str, float]


@dataclass(frozen=True)
class FittedArm:
    """The law of an arm (its ``number`` in a joint fit) and where its intervals come from."""

    data: ArmData
    law: FittedLaw
    number: int
    uncertainty: Uncertainty

    def points(self, table: pd.DataFrame) -> tuple[PredictedPoint, ...]:
        """The law at each row of ``table``. Raises :class:`DataError` for rows that name no point."""
        columns = points_of_table(table, self.data.options)
        names = table["rung"].astype(str) if "rung" in table else [""] * len(table)
        at = [{name: float(of_all[row]) for name, of_all in columns.items()} for row in range(len(table))]
        return tuple(self._point(name, there) for name, there in zip(names, at, strict=True))

    def _point(self, name: str, at: dict[str, float]) -> PredictedPoint:
        level, value = self.data.options.level, self.value(at)
        shown = {self._shown(variable): given for variable, given in at.items()}
        decades = decades_beyond(self._seen(), shown)
        if not 0 < value < np.inf:
            return PredictedPoint(name, shown, value, None, None, decades)
        of_run = None
        if isinstance(self.uncertainty, Replicates) and not self.data.optima:
            of_run = self.uncertainty.further_run(self.law, at, level, self.number)
        of_law = self.uncertainty.prediction(self.law, at, level, self.number)
        return PredictedPoint(name, shown, value, of_law, of_run, decades)

    def value(self, at: Mapping[str, float]) -> float:
        """The law's value at one point."""
        with np.errstate(all="ignore"):
            return float(self.law.values_at(self.law.theta[None], at, self.number)[0])

    def _shown(self, variable: str) -> str:
        return self.data.options.x if variable == "x" else variable

    def _seen(self) -> dict[str, FloatArray]:
        return {self._shown(name): values for name, values in self.data.points.variables.items()}

    def ahead(self) -> tuple[PredictedPoint, ...]:
        """The law at :data:`FACTORS` of the largest compute."""
        return self.line(FACTORS)

    def line(self, factors: Mapping[str, float]) -> tuple[PredictedPoint, ...]:
        """The law at ``factors`` of the largest compute, by name, at the tokens per parameter of that run.

        None for a law over other columns, which have no larger compute.
        """
        variables = self._seen()
        if not variables.keys() <= VARIABLES.keys():
            return ()
        largest = int(np.argmax(np.sum([np.log(values) for values in variables.values()], axis=0)))
        table = pd.DataFrame({"rung": list(factors)})
        for name, values in variables.items():
            power = 1.0 if name == "C" else 0.5
            table[name] = [values[largest] * factor**power for factor in factors.values()]
        return self.points(table)


def decades_beyond(seen: Mapping[str, FloatArray], at: Mapping[str, float]) -> dict[str, float]:
    """By variable the decades from ``at`` to the range of ``seen``; see :class:`PredictedPoint`."""
    seen, at = dict(seen), dict(at)
    if {"N", "D"} <= seen.keys():
        seen |= {"C": 6 * seen["N"] * seen["D"], "D/N": seen["D"] / seen["N"]}
        at |= {"C": 6 * at["N"] * at["D"], "D/N": at["D"] / at["N"]}
    result = {}
    for name, values in seen.items():
        above, below = np.log10(at[name] / values.max()), np.log10(at[name] / values.min())
        # What is rounded away is the rounding of sqrt(2)^2 and of text.
        result[name] = round(float(max(above, 0.0) + min(below, 0.0)), 9) + 0.0
    return result


def points_of_table(table: pd.DataFrame, options: AnalysisOptions) -> dict[str, FloatArray]:
    """Return the law's variables at each row of ``table`` [rows].

    N, D and C stand under these names or as ``n_params`` (counted as ``n_convention`` says), ``n_tokens``,
    ``flops``; by 6ND any two of them give the third. Raises :class:`DataError` for what is missing, and for
    values that are no finite numbers above zero.
    """
    if not len(table):
        raise DataError("the table of points has no rows; at least one is needed")
    return {
        name: _column(table, options.x if name == "x" else name, options)
        for name in law_named(options.law).variables
    }


def _column(table: pd.DataFrame, name: str, options: AnalysisOptions) -> FloatArray:
    if name in table:
        return _numbers(table, name)
    if COLUMNS.get(name) in table:
        numbers = _numbers(table, COLUMNS[name])
        return numbers if name != "N" else parameters_of(table.assign(n_params=numbers), options.n_convention)
    others = [other for other in VARIABLES if other != name]
    known = [other for other in others if other in table or COLUMNS[other] in table]
    if name in VARIABLES and len(known) == 2 and options.c_convention == "6nd":
        first, second = (_column(table, other, options) for other in others)
        return 6 * first * second if name == "C" else second / 6 / first
    given = [str(column) for column in table.columns if column != "rung"]
    raise DataError(
        f"a point needs {name}, which law {options.law} reads; given: {joined(given) or 'nothing'}; "
        f"{nearest(name, [*VARIABLES, *COLUMNS.values()]) if not given else f'add {name}=...'}"
    )


def _numbers(table: pd.DataFrame, name: str) -> FloatArray:
    numbers = pd.to_numeric(table[name], errors="coerce").to_numpy(float)
    bad = ~((numbers >= SMALLEST_NUMBER) & (numbers <= 1 / SMALLEST_NUMBER))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"point {row + 1}: {name} is {table[name].iloc[row]}; allowed: finite numbers above zero"
        )
    return numbers
