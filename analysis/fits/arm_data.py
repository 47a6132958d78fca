"""What is fitted for one arm: its rows, its points, and the settings that hold for them."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import checkpoints, has_seeds, not_repetitions
from scalevec.analysis.data.tidy import BoolArray, FloatArray, checked, completed_rows, require_column
from scalevec.analysis.data.where import rows_left_out, select
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.columns import (
    needed_columns,
    rung_size,
    variable_of,
    with_default_law,
    with_given_compute,
)
from scalevec.analysis.fits.isoflop import Optimum, optima
from scalevec.analysis.laws import law_named, with_columns
from scalevec.analysis.options import AnalysisOptions, with_meanings
from scalevec.analysis.solver.best_fit import FittedLaw, fit_identified, joint_fit
from scalevec.analysis.solver.law_points import Points, points_of


@dataclass(frozen=True)
class ArmData:
    """The completed rows of an arm, how many others there were, and the points of the law with their y."""

    arm: str
    rows: pd.DataFrame
    excluded: dict[str, int]
    points: Points
    y: FloatArray
    options: AnalysisOptions
    optima: tuple[Optimum, ...] = ()

    @property
    def independent(self) -> bool:
        """Whether every point is a cluster of its own."""
        return self.clusters.nunique() == len(self.y)

    @property
    def repeats_by_seed(self) -> bool:
        """Whether points of equal variables, where there are any, are told apart by seeds."""
        return bool(self.optima) or has_seeds(self.rows, self.points.cells)

    @property
    def repetitions(self) -> tuple[str, list[str]]:
        """What is wrong with rows of equal variables, as a sentence, and the columns in which they differ."""
        if self.optima:
            return "", []
        return not_repetitions(self.rows, self.points.cells, " and ".join(self.points.variables))

    @property
    def doubt(self) -> str:
        """Why these rows carry no interval whatever the method, as a sentence; empty where they may."""
        if self.optima:
            return ""
        problem, columns = self.repetitions
        unlike = f"no interval: {problem}" if columns and self.independent else ""
        of_one_run = checkpoints(self.rows, self.options.cluster)
        return f"no interval: {of_one_run}" if of_one_run else unlike

    @property
    def sizes(self) -> FloatArray:
        """What rungs are ordered by: N (C, D) of each point, the budget of each optimum [points]."""
        if self.optima:
            return self.points.variables["C"]
        return variable_of(self.rows, rung_size(self.options), self.options)

    def rungs(self, which: BoolArray) -> str:
        """The names of the rungs of the points ``which`` [points]."""
        names = pd.Series(self.sizes).map("C {:.3g}".format) if self.optima else self.rows["rung"].astype(str)
        return ", ".join(dict.fromkeys(names[which]))

    def part(self, which: BoolArray) -> "ArmData":
        """The data of the points ``which`` [points]; the rows of optima stay together."""
        variables = {name: values[which] for name, values in self.points.variables.items()}
        weights = None if self.points.weights is None else self.points.weights[which]
        points = points_of(self.points.law, variables, weights)
        rows = self.rows if self.optima else self.rows[which]
        return dataclasses.replace(self, rows=rows, points=points, y=self.y[which])

    @property
    def clusters(self) -> "pd.Series[str]":
        """What each point is drawn with: its cluster; an optimum is one of its own."""
        if self.optima:
            return pd.Series([str(i) for i in range(len(self.y))])
        return self.rows[self.options.cluster]


def comparison_arms(table: pd.DataFrame) -> list[str]:
    """Names of the arms that have a comparison trial, in the order of the table."""
    return list(dict.fromkeys(table.loc[table["stage"] != "tuning", "arm"]))


def data_of_arms(results: pd.DataFrame, options: AnalysisOptions) -> list[ArmData]:
    """Return the data of each arm of ``results``, checked and chosen by ``options``.

    Raises :class:`DataError` for bad values, and where there is no comparison trial or an arm completed none.
    """
    selected = select(results, options.where)
    options = with_meanings(options, results.columns)
    options = dataclasses.replace(options, law=with_columns(options.law, list(selected.columns)))
    options = with_given_compute(options, selected)
    table = checked(selected, needed_columns(options), options.cluster)
    arms = comparison_arms(table)
    options = with_default_law(options, completed_rows(table[table["stage"] != "tuning"])[0])
    if not arms:
        chosen = f" that where {options.where!r} chose" if options.where else ""
        raise DataError(
            f"no comparison trial among the {len(table)} rows{chosen}, all of stage tuning: a law is "
            "fitted to trials of another stage, such as comparison"
        )
    return [
        arm_data(table[table["arm"] == arm], options, rows_left_out(results, options.where, [arm]))
        for arm in arms
    ]


def arm_data(table: pd.DataFrame, options: AnalysisOptions, left_out: int = 0) -> ArmData:
    """Return the data of an arm's checked rows, of which ``where`` left out ``left_out`` before.

    Raises :class:`DataError` where no trial is completed.
    """
    arm = str(table["arm"].iloc[0])
    rows, excluded = completed_rows(table)
    if left_out:
        excluded = {"where": left_out, **excluded}
    if not len(rows):
        raise DataError(f"arm {arm!r} has no completed trial")
    require_column(rows, options.cluster)
    build = data_of_rows if law_named(options.law).method == "points" else _data_of_optima
    return dataclasses.replace(build(arm, rows, options), excluded=excluded)


def data_of_rows(arm: str, rows: pd.DataFrame, options: AnalysisOptions) -> ArmData:
    """Return the data of completed rows, each of which is a point of the law."""
    law = law_named(options.law)
    variables = {
        name: variable_of(rows, options.x if name == "x" else name, options) for name in law.variables
    }
    weights = rows[options.weights].to_numpy(float) if options.weights else None
    points = points_of(law, variables, weights)
    return ArmData(arm, rows, {}, points, rows[options.y].to_numpy(float), options)


def _data_of_optima(arm: str, rows: pd.DataFrame, options: AnalysisOptions) -> ArmData:
    law = law_named(options.law)
    if options.weights:
        raise DataError(
            f"weights is {options.weights!r}; law {law.name} is fitted to optima: allowed is none"
        )
    of_budgets = optima(rows, options)
    kept = [optimum for optimum in of_budgets if not optimum.censored]
    points = points_of(law, {"C": np.array([optimum.budget for optimum in kept])})
    sizes = np.array([optimum.n_star for optimum in kept], float)
    # Optima are few and have no outliers left: least squares on ln N*, as all published fits of them.
    squares = dataclasses.replace(options, loss="l2", residual="log")
    return ArmData(arm, rows, {}, points, sizes, squares, tuple(of_budgets))


def fitted_laws(arms: Sequence[ArmData]) -> list[FittedLaw]:
    """Return the law of each arm, one and the same where the law is fitted to all arms jointly.

    Raises :class:`DataError` where the points leave a parameter free.
    """
    options = arms[0].options
    law = law_named(options.law)
    if not law.per_arm:
        return [fit_identified(data.points, data.y, data.options, data.arm) for data in arms]
    points = [(data.points.variables, data.y) for data in arms]
    joint = joint_fit(points, law, options, [data.points.weights for data in arms])
    return [joint] * len(arms)
