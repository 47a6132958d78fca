"""What is fitted for one arm: its rows, its points, and the law and settings that hold for them.

Where no law is named it is a power law, with a floor where the points tell one.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from scalevec.analysis.data import tidy
from scalevec.analysis.data.runs import budgets_of, checkpoints, last_of_each_run, not_repetitions
from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.data.where import rows_left_out, select
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.isoflop import Optimum, optima
from scalevec.analysis.laws import law_named, with_columns
from scalevec.analysis.options import VARIABLES, AnalysisOptions, with_meanings
from scalevec.analysis.solver.best_fit import FittedLaw, fit_points, joint_fit, laws_of_arms
from scalevec.analysis.solver.law_points import Points, points_of
from scalevec.analysis.statistics.noise import pooled_noise, t_quantile

FEWEST_SIZES = 4
"""A law with a floor has three parameters: fewer sizes cannot tell whether it is needed."""
BESIDE = {"N": "tokens", "D": "parameters", "C": "tokens per parameter"}
"""What points of runs at one value of a law's variable may differ in."""
HIGH_FLOOR = 0.9
"""The high irreducible loss that is tried, as a share of the lowest loss seen."""


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

    @property
    def along(self) -> str:
        """The one variable of a law of one, as it is called in the table."""
        [variable] = law_named(self.options.law).variables
        return self.options.x if variable == "x" else variable

    def off_line(self, n: FloatArray, d: FloatArray, between: tuple[float, float] = (0.0, 1.0)) -> FloatArray:
        """By which factor, as a logarithm, points ``n``, ``d`` [points] lie off the line of the runs.

        At the same value of the law's one variable they have so many times the D (of N), the N (of D) or the
        D / N (of C) of the runs; zero between these quantiles of theirs. Beyond the ends the line goes on as
        their logarithms do.
        """

        def places(n: FloatArray, d: FloatArray) -> FloatArray:
            return np.log(np.stack({"N": (n, d), "D": (d, n)}.get(self.along, (6 * n * d, d / n))))

        at, beside = places(
            tidy.variable_of(self.rows, "N", self.options), self.rows["n_tokens"].to_numpy(float)
        )
        of_place = pd.Series(beside).groupby(at.round(6))
        ends = [of_place.quantile(quantile) for quantile in between]
        slope = np.polyfit(at, beside, 1)[0] if len(of_place) > 1 else 0.0
        asked, value = places(n, d)
        within = np.clip(asked, at.min(), at.max())
        low, high = (np.interp(within, end.index, end) for end in ends)
        value = value - slope * (asked - within)
        return np.asarray(value - np.clip(value, low, high))

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
    table = tidy.checked(selected, needed_columns(options), options.cluster)
    table, on_their_way = _without_rows_on_the_way(table, options.cluster)
    arms = table.loc[table["stage"] != "tuning", "arm"].unique()
    options = with_default_law(options, tidy.completed_rows(table)[0])
    if not len(arms):
        chosen = f" that where {options.where!r} chose" if options.where else ""
        raise DataError(
            f"no comparison trial among the {len(table)} rows{chosen}, all of stage tuning: a law is "
            "fitted to trials of another stage, such as comparison"
        )
    build = data_of_rows if law_named(options.law).method == "points" else _data_of_optima
    data: list[ArmData] = []
    for arm in arms:
        rows, excluded = tidy.completed_rows(table[table["arm"] == arm])
        if options.where and (left_out := rows_left_out(results, options.where, [arm])):
            excluded = {"where": left_out, **excluded}
        if before := on_their_way.get(arm, 0):
            excluded["before the end of its run"] = before
        if rows.empty:
            raise DataError(f"arm {arm!r} has no completed trial")
        data.append(dataclasses.replace(build(arm, rows, options), excluded=excluded))
    return data


def _without_rows_on_the_way(table: pd.DataFrame, cluster: str) -> tuple[pd.DataFrame, dict[str, int]]:
    """``table`` but for losses along runs that stand beside the planned tokens; how many, by arm."""
    rows = tidy.comparison_rows(table)
    if not {"n_params", "n_tokens"} <= set(rows):
        return table, {}
    kept = pd.concat(last_of_each_run(rows, cluster))
    lost = rows["arm"].value_counts().sub(kept["arm"].value_counts(), fill_value=0)
    counts = {str(arm): int(number) for arm, number in lost.items()}
    if not any(counts.values()):
        return table, {}
    return pd.concat([kept, table[table["stage"] == "tuning"]], ignore_index=True), counts


def data_of_rows(arm: str, rows: pd.DataFrame, options: AnalysisOptions) -> ArmData:
    """Return the data of completed rows, each of which is a point of the law."""
    law = law_named(options.law)
    variables = {
        name: tidy.variable_of(rows, options.x if name == "x" else name, options) for name in law.variables
    }
    points, size = points_of(law, variables), tidy.variable_of(rows, rung_size(options), options)
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
    """:func:`laws_of_arms` of their data."""
    return laws_of_arms({data.arm: (data.points.variables, data.y) for data in arms}, arms[0].options)


def needed_columns(options: AnalysisOptions) -> list[str]:
    """Return the columns that a fit with ``options`` reads."""
    law = law_named(options.law)
    names = {options.x if name == "x" else name for name in law.variables}
    names |= set() if law.method == "points" else {"N"}
    of_compute = ["flops"] if options.c_convention == "given" else ["n_params", "n_tokens"]
    read = {"N": ["n_params"], "D": ["n_tokens"], "C": of_compute}
    ordered = [*filter(names.__contains__, VARIABLES), *sorted(names - VARIABLES.keys())]
    columns = [column for name in ordered for column in read.get(name, [name])]
    return list(dict.fromkeys([options.y, *columns]))


def with_given_compute(options: AnalysisOptions, table: pd.DataFrame) -> AnalysisOptions:
    """Return ``options`` with C read from the column flops where that is what the table was planned by.

    N or tokens are not in the table, or the law is of isoFLOP lines and the column holds them: 6ND of their
    points scatters around the budget, so that one budget would count as several.
    """
    lacks = not {"n_params", "n_tokens"} <= set(table.columns)
    lines = law_named(options.law).method == "isoflop" and budgets_of(table) is not None
    if options.c_convention == "6nd" and (lacks or lines) and "flops" in table.columns:
        return dataclasses.replace(options, c_convention="given")
    return options


def rung_size(options: AnalysisOptions) -> str:
    """Return the variable by which rungs are ordered: N, C or D, else the first of the law."""
    variables = law_named(options.law).variables
    if "x" in variables:
        return options.x
    return next((name for name in ("N", "C", "D") if name in variables), variables[0])


def with_default_law(options: AnalysisOptions, rows: pd.DataFrame) -> AnalysisOptions:
    """Return ``options`` with the law that ``auto`` stands for on ``rows`` of one arm or several.

    A power law of x, with a floor where the points of each arm refuse a floor of zero, with a floor that the
    arms share where all of them together do.
    """
    if options.law != "auto":
        return options
    y = pd.to_numeric(rows[options.y], errors="coerce")
    kept, law = rows[np.isfinite(y) & (y > 0)], "power"
    if options.y == "loss" and len(kept):
        parts = [part for _, part in kept.groupby("arm", sort=False)]
        arms = [(tidy.variable_of(part, options.x, options), part["loss"].to_numpy(float)) for part in parts]
        if all(profile.zero > profile.critical for profile in (floor_profile(*arm) for arm in arms)):
            law = "power-floor"
        elif len(arms) > 1 and _has_shared_floor(arms):
            law = "power-floor-shared"
    return dataclasses.replace(options, law=law)


def _has_shared_floor(arms: Sequence[tuple[FloatArray, FloatArray]]) -> bool:
    """Whether one floor for all ``arms``, each its x and y, fits better than none, by more than the noise."""
    sizes = [len(np.unique(x)) for x, _ in arms]
    # An arm of two sizes goes through its points whatever the floor, and leaves it to the others.
    if max(sizes) < FEWEST_SIZES - 1 or min(sizes) < 2:
        return False
    squares, points = AnalysisOptions(loss="l2"), [({"x": x}, y) for x, y in arms]
    shared = joint_fit(points, law_named("power-floor-shared"), squares)
    without = sum(fit_points(points_of(law_named("power"), v), y, squares).objective for v, y in points)
    seeds, df = pooled_noise(np.log(shared.y), shared.points.cells), len(shared.y) - shared.theta.size
    # The objective is half the sum of squares; data that lie on the law leave no variance to divide by.
    candidates = [(seeds.sd**2, seeds.df), (2 * shared.objective / max(df, 1), df)]
    variance, df = max([each for each in candidates if each[1] > 0], default=(np.inf, 1))
    errors = np.sqrt(max(2 * (without - shared.objective), 0.0) / max(variance, 1e-30))
    return bool(errors > t_quantile(0.95, df))


@dataclass(frozen=True)
class FloorProfile:
    """The fit with E = 0 and with E = 0.9 of the lowest loss, each in standard errors worse than the best."""

    zero: float
    high: float
    critical: float

    @property
    def warnings(self) -> list[str]:
        """One sentence for people who would quote the exponent; none where the floor is identified."""
        if not np.isfinite(self.critical):
            return [
                "fewer than four sizes or no noise figure: the irreducible loss cannot be identified; "
                "compare levels, not exponents"
            ]
        ends = {"zero": self.zero, f"{HIGH_FLOOR:g} of the lowest loss": self.high}
        fitting = [f"{name} ({worse:.1f})" for name, worse in ends.items() if worse <= self.critical]
        return fitting and [
            f"the irreducible loss is not identified: {' and '.join(fitting)} cannot be excluded (in "
            f"brackets standard errors from the best fit; {self.critical:.1f} would exclude it): compare "
            "levels, not exponents"
        ]


def floor_profile(x: FloatArray, loss: FloatArray) -> FloorProfile:
    """How much worse E = 0 and a high E fit the points x [points], loss [points] than the best E.

    Least squares on log loss of ``E + A/x^alpha``; the noise is the larger of the seeds' and the residuals'
    of the best fit, since a wrong form of the law is no evidence for a floor.
    """
    best = _squares(x, loss, None)
    distinct = len(np.unique(x))
    seeds = pooled_noise(np.log(loss), x)
    # Three are fitted: E, A and alpha.
    residual_df = len(x) - 3
    candidates = [(seeds.sd**2, seeds.df)] if seeds.df else []
    if residual_df > 0:
        candidates.append((best / residual_df, residual_df))
    if distinct < FEWEST_SIZES or not candidates:
        return FloorProfile(0.0, 0.0, float("inf"))
    variance, df = max(candidates)
    # Data that lie on the law exactly leave no variance to divide by.
    variance = max(variance, 1e-30)
    critical = t_quantile(0.95, df)
    zero, high = (
        float(np.sqrt(max(_squares(x, loss, floor) - best, 0.0) / variance))
        for floor in (0.0, HIGH_FLOOR * float(loss.min()))
    )
    return FloorProfile(zero, high, critical)


def _squares(x: FloatArray, loss: FloatArray, floor: float | None) -> float:
    """The least sum of squared log residuals with E held at ``floor`` (free: the better of free and zero)."""
    law = law_named("power-floor" if floor is None else f"power-floor; fix E = {floor!r}")
    # The solver's objective is half the sum of squares.
    least = 2.0 * fit_points(points_of(law, {"x": x}), loss, AnalysisOptions(loss="l2")).objective
    return least if floor is not None else min(least, _squares(x, loss, 0.0))
