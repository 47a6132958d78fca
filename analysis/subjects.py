"""What is fitted for one arm: its rows, its points, and the settings that hold for them."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.data import DataError, FloatArray, completed_rows, require_column
from analysis.optima import Optimum, optima
from analysis.parametrisation import Parametrisation
from analysis.settings import FitSettings


@dataclass(frozen=True)
class Subject:
    """The completed rows of an arm, how many others there were, and the points of the law with their y."""

    arm: str
    rows: pd.DataFrame
    excluded: dict[str, int]
    points: Parametrisation
    y: FloatArray
    settings: FitSettings
    optima: tuple[Optimum, ...] = ()

    @property
    def independent(self) -> bool:
        """Whether every point is a cluster of its own."""
        return self.clusters.nunique() == len(self.y)

    @property
    def clusters(self) -> "pd.Series[str]":
        """What each point is drawn with: its cluster; an optimum is one of its own."""
        if self.optima:
            return pd.Series([str(i) for i in range(len(self.y))])
        return self.rows[self.settings.cluster]


def comparison_arms(table: pd.DataFrame) -> list[str]:
    """Names of the arms that have a comparison trial, in the order of the table."""
    return list(dict.fromkeys(table.loc[table["stage"] != "tuning", "arm"]))


def subject_of(table: pd.DataFrame, settings: FitSettings) -> Subject:
    """The subject of an arm's checked rows. Raises :class:`DataError` where no trial is completed."""
    arm = str(table["arm"].iloc[0])
    rows, excluded = completed_rows(table)
    if not len(rows):
        raise DataError(f"arm {arm!r} has no completed trial")
    require_column(rows, settings.cluster)
    law = settings.functional_form
    if law.method == "points":
        points = Parametrisation(law, settings.variables(rows))
        return Subject(arm, rows, excluded, points, settings.values(rows), settings)
    found = optima(rows, settings)
    kept = [o for o in found if not o.censored]
    points = Parametrisation(law, {"C": np.array([o.budget for o in kept])})
    sizes = np.array([o.n_star for o in kept], float)
    # Optima are few and have no outliers left: least squares on ln N*, as all published fits of them.
    squares = dataclasses.replace(settings, loss="l2", residual="log")
    return Subject(arm, rows, excluded, points, sizes, squares, tuple(found))
