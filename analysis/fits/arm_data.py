"""What is fitted for one arm: its rows, its points, and the settings that hold for them."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import checkpoints, has_seeds, not_repetitions
from scalevec.analysis.data.tidy import FloatArray, checked, completed_rows, require_column
from scalevec.analysis.data.where import rows_left_out, select
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.columns import (
    needed_columns,
    values_of,
    variables_of,
    weights_of,
    with_default_law,
    with_given_compute,
)
from scalevec.analysis.fits.isoflop import Optimum, optima
from scalevec.analysis.laws import law_named, with_columns
from scalevec.analysis.options import AnalysisOptions
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

    def table_of_optima(self) -> tuple[pd.DataFrame, AnalysisOptions]:
        """The optima as a table for a power law in C whose y is N*, and the options of that law."""
        kept = [optimum for optimum in self.optima if not optimum.censored]
        columns = {"flops": [o.budget for o in kept], "n_star": [o.n_star for o in kept]}
        rows = pd.DataFrame(columns, dtype=float)
        rows["rung"] = rows["flops"].map("C {:.3g}".format)
        of_optima = dataclasses.replace(
            self.options, law="power", x="C", y="n_star", c_convention="given", interval="none"
        )
        return rows, of_optima

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
    law = law_named(options.law)
    if law.method == "points":
        points = points_of(law, variables_of(rows, options), weights_of(rows, options))
        return ArmData(arm, rows, excluded, points, values_of(rows, options), options)
    if options.weights:
        raise DataError(
            f"weights is {options.weights!r}; law {law.name} is fitted to optima: allowed is none"
        )
    curve_optima = optima(rows, options)
    kept = [o for o in curve_optima if not o.censored]
    points = points_of(law, {"C": np.array([o.budget for o in kept])})
    sizes = np.array([o.n_star for o in kept], float)
    # Optima are few and have no outliers left: least squares on ln N*, as all published fits of them.
    squares = dataclasses.replace(options, loss="l2", residual="log")
    return ArmData(arm, rows, excluded, points, sizes, squares, tuple(curve_optima))


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
