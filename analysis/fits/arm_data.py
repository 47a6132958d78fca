"""What is fitted for one arm: its rows, its points, and the settings that hold for them."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import checkpoints, not_repetitions
from scalevec.analysis.data.tidy import BoolArray, FloatArray, checked, completed_rows
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
    """The completed rows of an arm, and the points of the law with their y.

    ``labels`` has for each point its ``rung`` by name, the ``size`` by which rungs are ordered (N, C or D;
    the budget of an optimum), and the ``cluster`` with which it is drawn. ``excluded`` counts the other rows.
    """

    arm: str
    rows: pd.DataFrame
    points: Points
    y: FloatArray
    labels: pd.DataFrame
    options: AnalysisOptions
    excluded: dict[str, int] = field(default_factory=dict)
    optima: tuple[Optimum, ...] = ()

    @property
    def independent(self) -> bool:
        """Whether every point is a cluster of its own."""
        return self.clusters.nunique() == len(self.y)

    @cached_property
    def repetitions(self) -> tuple[str, list[str]]:
        """What is wrong with rows of equal variables, as a sentence, and the columns in which they differ.

        Empty where seeds tell such rows apart, or there are none.
        """
        if self.optima:
            return "", []
        return not_repetitions(self.rows, self.points.cells, " and ".join(self.points.variables))

    @property
    def doubt(self) -> str:
        """Why these rows carry no interval whatever the method, as a sentence; empty where they may."""
        if self.optima:
            return ""
        problem, columns = self.repetitions
        unlike = problem if columns and self.independent else ""
        reason = checkpoints(self.rows, self.options.cluster) or unlike
        return f"no interval: {reason}" if reason else ""

    @property
    def clusters(self) -> "pd.Series[str]":
        """The cluster of each point [points]."""
        return self.labels["cluster"]

    @property
    def sizes(self) -> FloatArray:
        """The size of the rung of each point [points]."""
        return self.labels["size"].to_numpy(float)

    def part(self, which: BoolArray) -> "ArmData":
        """The data of the points ``which`` [points]; the rows of optima stay together."""
        variables = {name: values[which] for name, values in self.points.variables.items()}
        points = points_of(self.points.law, variables)
        rows = self.rows if self.optima else self.rows[which]
        labels = self.labels[which]
        return dataclasses.replace(self, rows=rows, points=points, y=self.y[which], labels=labels)


def data_of_arms(results: pd.DataFrame, options: AnalysisOptions) -> list[ArmData]:
    """Return the data of each arm of ``results``, checked and chosen by ``options``.

    Raises :class:`DataError` for bad values, and where there is no comparison trial or an arm completed none.
    """
    selected = select(results, options.where)
    options = with_meanings(options, results.columns)
    options = dataclasses.replace(options, law=with_columns(options.law, list(selected.columns)))
    options = with_given_compute(options, selected)
    table = checked(selected, needed_columns(options), options.cluster)
    arms = table.loc[table["stage"] != "tuning", "arm"].unique()
    options = with_default_law(options, completed_rows(table)[0])
    if not len(arms):
        chosen = f" that where {options.where!r} chose" if options.where else ""
        raise DataError(
            f"no comparison trial among the {len(table)} rows{chosen}, all of stage tuning: a law is "
            "fitted to trials of another stage, such as comparison"
        )
    build = data_of_rows if law_named(options.law).method == "points" else _data_of_optima
    data: list[ArmData] = []
    for arm in arms:
        rows, excluded = completed_rows(table[table["arm"] == arm])
        if left_out := rows_left_out(results, options.where, [arm]):
            excluded = {"where": left_out, **excluded}
        if rows.empty:
            raise DataError(f"arm {arm!r} has no completed trial")
        data.append(dataclasses.replace(build(arm, rows, options), excluded=excluded))
    return data


def data_of_rows(arm: str, rows: pd.DataFrame, options: AnalysisOptions) -> ArmData:
    """Return the data of completed rows, each of which is a point of the law."""
    law = law_named(options.law)
    variables = {
        name: variable_of(rows, options.x if name == "x" else name, options) for name in law.variables
    }
    points, size = points_of(law, variables), variable_of(rows, rung_size(options), options)
    labels = pd.DataFrame({"rung": rows["rung"].astype(str), "size": size, "cluster": rows[options.cluster]})
    return ArmData(arm, rows, points, rows[options.y].to_numpy(float), labels, options)


def _data_of_optima(arm: str, rows: pd.DataFrame, options: AnalysisOptions) -> ArmData:
    law = law_named(options.law)
    of_budgets = optima(rows, options)
    kept = [optimum for optimum in of_budgets if not optimum.censored]
    budgets, sizes = (np.array([getattr(o, name) for o in kept], float) for name in ("budget", "n_star"))
    labels = pd.DataFrame({"rung": [f"C {budget:.3g}" for budget in budgets], "size": budgets})
    labels["cluster"] = labels.index.astype(str)
    # Optima are few and have no outliers left: least squares on ln N*, as all published fits of them.
    squares = dataclasses.replace(options, loss="l2", residual="log")
    points = points_of(law, {"C": budgets})
    return ArmData(arm, rows, points, sizes, labels, squares, optima=tuple(of_budgets))


def fitted_laws(arms: Sequence[ArmData]) -> list[FittedLaw]:
    """Return the law of each arm, one and the same where the law is fitted to all arms jointly.

    Raises :class:`DataError` where the points leave a parameter free.
    """
    options = arms[0].options
    law = law_named(options.law)
    if not law.per_arm:
        return [fit_identified(data.points, data.y, data.options, data.arm) for data in arms]
    points = [(data.points.variables, data.y) for data in arms]
    return [joint_fit(points, law, options)] * len(arms)
