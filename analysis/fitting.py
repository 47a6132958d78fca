"""Fit a law to each arm: robust, from several starts, with its optimality verified and said."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analysis.data import (
    C_CONVENTIONS,
    N_CONVENTIONS,
    DataError,
    FloatArray,
    checked,
    completed_rows,
    compute_of,
    parameters_of,
    require_choice,
    require_column,
    unit_warnings,
)
from analysis.laws import VARIABLES, law_named
from analysis.noise import floor_profile
from analysis.parametrisation import Options, Parametrisation, require_identifiable
from analysis.solver import Solution, rounding, solve
from analysis.where import select

LOSSES = ("huber", "l1", "l2")
RESIDUALS = ("log", "linear")
FEWEST_CLUSTERS = 10
"""With fewer independent clusters a bootstrap interval covers far less than it says, so none is given."""
AGREEMENT = 1e-6
"""A start agrees with the best when its objective is at most this fraction above."""
NO_FLOOR = 1e-4
"""An irreducible loss below this share of the lowest loss is the bound of zero (theta holds ln E)."""


@dataclass(frozen=True)
class FitSettings:
    """Everything that decides a fit beside the points; each output states it.

    ``x`` (N, D or C) is the variable of a law in one variable; ``delta`` is Huber's, in log loss or nats.
    """

    law: str = "power"
    x: str = "C"
    n_convention: str = "matrices"
    c_convention: str = "6nd"
    loss: str = "huber"
    delta: float = 1e-3
    residual: str = "log"
    level: float = 0.95
    bootstrap: int = 1000
    seed: int = 0
    cluster: str = "cluster"

    def __post_init__(self) -> None:
        law_named(self.law)
        require_choice("x", self.x, VARIABLES)
        require_choice("n_convention", self.n_convention, N_CONVENTIONS)
        require_choice("c_convention", self.c_convention, C_CONVENTIONS)
        require_choice("loss", self.loss, LOSSES)
        require_choice("residual", self.residual, RESIDUALS)
        for name, value, good, allowed in (
            ("delta", self.delta, 0 < self.delta < np.inf, "a number above zero"),
            ("level", self.level, 0 < self.level < 1, "a number between 0 and 1"),
            ("bootstrap", self.bootstrap, 0 <= self.bootstrap <= 1_000_000, "0 (none) to 1000000"),
        ):
            if not good:
                raise DataError(f"{name} is {value!r}; allowed: {allowed}")

    @property
    def options(self) -> Options:
        """What the solver needs to know."""
        return Options(self.loss, self.delta, self.residual)

    def variables(self, rows: pd.DataFrame) -> dict[str, FloatArray]:
        """The law's variables, name -> [rows]; units: counts and FLOPs."""
        return {
            name: self._variable(self.x if name == "x" else name, rows)
            for name in law_named(self.law).variables
        }

    def _variable(self, name: str, rows: pd.DataFrame) -> FloatArray:
        if name == "C":
            return compute_of(rows, self.n_convention, self.c_convention)
        return parameters_of(rows, self.n_convention) if name == "N" else rows["n_tokens"].to_numpy(float)


@dataclass(frozen=True)
class Fit:
    """A fitted law of one arm. Parameters in counts, FLOPs and nats; ``objective`` is a sum over points.

    ``optimality`` is the decrement over the objective at the solution (verified below 1e-9), ``hold_out``
    the largest rung predicted from the others.
    """

    arm: str
    law: str
    formula: str
    x: str
    parameters: dict[str, float]
    intervals: dict[str, tuple[float, float]] | None
    interval_note: str
    level: float
    n_bootstrap: int
    seed: int
    objective: float
    optimality: float
    starts_agreeing: int
    n_starts: int
    n_points: int
    n_clusters: int
    excluded: dict[str, int]
    loss: str
    delta: float
    residual: str
    n_convention: str
    c_convention: str
    hold_out: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def predict(self, **variables: FloatArray) -> FloatArray:
        """Loss in nats a token at the law's variables (``x=``, or ``N=`` and ``D=``)."""
        return law_named(self.law).predict(self.parameters, variables)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def fit(
    results: pd.DataFrame, *, where: str | None = None, hold_out: bool = True, **settings: Any
) -> list[Fit]:
    """Fit a law to the completed comparison trials of each arm, arms in the order of the table.

    ``settings`` are the fields of :class:`FitSettings`. Raises :class:`DataError` for bad values and for
    points that leave a parameter free.

    >>> table = pd.DataFrame({"n_params": [1e5, 2e5, 4e5], "n_tokens": [2e6, 4e6, 8e6]})
    >>> table["loss"] = 40.0 * (6 * table.n_params * table.n_tokens) ** -0.1
    >>> [f"{fit.parameters['alpha']:.4f}" for fit in fit(table, law="power", bootstrap=0)]
    ['0.1000']
    """
    chosen = settings_from(settings)
    table = checked(select(results, where))
    arms = comparison_arms(table)
    return [fit_arm(table[table["arm"] == arm], chosen, hold_out=hold_out) for arm in arms]


def settings_from(settings: Mapping[str, Any]) -> FitSettings:
    """The settings by name; raises :class:`DataError` for a name that is none, or a bad value."""
    for name in settings:
        require_choice("option", name, [f.name for f in dataclasses.fields(FitSettings)])
    return FitSettings(**settings)


def comparison_arms(table: pd.DataFrame) -> list[str]:
    """Names of the arms that have a comparison trial, in the order of the table."""
    return list(dict.fromkeys(table.loc[table["stage"] != "tuning", "arm"]))


def fit_arm(table: pd.DataFrame, settings: FitSettings, *, hold_out: bool = True) -> Fit:
    """Fit one arm's checked rows; see :func:`fit`."""
    arm = str(table["arm"].iloc[0])
    rows, excluded = completed_rows(table)
    if not len(rows):
        raise DataError(f"arm {arm!r} has no completed trial")
    require_column(rows, settings.cluster)
    points = Parametrisation(law_named(settings.law), settings.variables(rows))
    require_identifiable(points, arm, settings.x)
    loss = rows["loss"].to_numpy(float)
    solution = best_solution(points, loss, settings.options)
    n_clusters = rows[settings.cluster].nunique()
    intervals, note = _intervals(points, loss, rows[settings.cluster], solution, settings)
    law = points.law
    return Fit(
        arm=arm,
        formula=law.formula.replace("x", settings.x) if "x" in law.variables else law.formula,
        parameters=_first(points, solution),
        intervals=intervals,
        interval_note=note,
        n_bootstrap=settings.bootstrap if intervals else 0,
        objective=float(solution.objective[0]),
        optimality=float(solution.decrement[0] / (solution.objective[0] + rounding(len(rows)))),
        starts_agreeing=_agreeing(solution),
        n_starts=len(solution.objective),
        n_points=len(rows),
        n_clusters=n_clusters,
        excluded=excluded,
        hold_out=_hold_out(rows, settings) if hold_out else {},
        warnings=tuple(_warnings(rows, points, solution, settings)),
        **{name: getattr(settings, name) for name in _COPIED},
    )


_COPIED = ("law", "x", "level", "seed", "loss", "delta", "residual", "n_convention", "c_convention")


def best_solution(points: Parametrisation, loss: FloatArray, options: Options) -> Solution:
    """The solutions from all starts, the best first. Points: ``loss`` [points]."""
    problem = points.problem(loss, None, options)
    found = solve(problem, points.starts(problem))
    # Among equal objectives a verified optimum goes first.
    order = np.lexsort((~found.optimal, found.objective))
    return Solution(found.theta[order], found.objective[order], found.decrement[order], found.optimal[order])


def _first(points: Parametrisation, solution: Solution) -> dict[str, float]:
    return {name: float(values[0]) for name, values in points.parameters(solution.theta).items()}


def _agreeing(solution: Solution) -> int:
    return int(np.sum(solution.objective <= solution.objective[0] * (1 + AGREEMENT) + 1e-24))


def _intervals(
    points: Parametrisation,
    loss: FloatArray,
    clusters: "pd.Series[str]",
    solution: Solution,
    settings: FitSettings,
) -> tuple[dict[str, tuple[float, float]] | None, str]:
    """Percentile bootstrap over clusters, and what it is; none with the reason where it would mislead."""
    codes, names = pd.factorize(clusters)
    if settings.bootstrap == 0:
        return None, "no interval was asked for"
    if len(names) < FEWEST_CLUSTERS:
        return None, (
            f"no interval: {len(names)} independent runs; a bootstrap of fewer than "
            f"{FEWEST_CLUSTERS} covers far less than it says"
        )
    rng = np.random.default_rng(settings.seed)
    copies = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), settings.bootstrap)
    problem = points.problem(loss, copies[:, codes].astype(float), settings.options)
    found = solve(problem, np.repeat(solution.theta[:1], settings.bootstrap, axis=0))
    kept = found.theta[found.optimal]
    if len(kept) < 0.95 * settings.bootstrap:
        return None, f"no interval: {settings.bootstrap - len(kept)} of the resamples leave a parameter free"
    tail = (1 - settings.level) / 2
    bounds = {
        name: (float(low), float(high))
        for name, values in points.parameters(kept).items()
        for low, high in [np.quantile(values, [tail, 1 - tail])]
    }
    return bounds, f"percentile bootstrap over {len(names)} independent runs"


def _hold_out(rows: pd.DataFrame, settings: FitSettings) -> dict[str, Any]:
    """The largest rung predicted from the others: relative error of the predicted against the mean loss."""
    law = law_named(settings.law)
    size = settings.variables(rows)["x" if "x" in law.variables else "N"]
    largest = size >= size.max() * (1 - 1e-9)
    rest, held = rows[~largest], rows[largest]
    described = {"rung": str(held["rung"].iloc[0]), "n_points": len(held)}
    try:
        if not len(rest):
            raise DataError("there is one rung only")
        points = Parametrisation(law, settings.variables(rest))
        require_identifiable(points, str(rows["arm"].iloc[0]), settings.x)
    except DataError as error:
        return {**described, "reason": f"not predicted: {error}"}
    solution = best_solution(points, rest["loss"].to_numpy(float), settings.options)
    predicted = float(np.mean(law.predict(_first(points, solution), settings.variables(held))))
    observed = float(held["loss"].mean())
    return {
        **described,
        "predicted": predicted,
        "observed": observed,
        "relative_error": predicted / observed - 1.0,
    }


def _warnings(
    rows: pd.DataFrame, points: Parametrisation, solution: Solution, settings: FitSettings
) -> list[str]:
    found = unit_warnings(rows)
    loss = rows["loss"].to_numpy(float)
    if not solution.optimal[0]:
        found.append("the best solution is not a verified optimum: read no digit of the parameters")
    if _agreeing(solution) == 1 and len(solution.objective) > 1:
        found.append("only one start reached the best objective")
    if points.law.variables == ("x",):
        profile = floor_profile(points.variables["x"], loss)
        if not profile.identified:
            found.append(profile.warning)
    if _first(points, solution).get("E", 1.0) < NO_FLOOR * loss.min():
        found.append("the best fit has no irreducible loss: E lies at its bound of zero")
    if rows.duplicated([name for name in ("arm", "rung", "n_tokens", "seed", "loss") if name in rows]).any():
        found.append("some rows are exact duplicates; each counts as a point")
    return found + _delta_warning(points, loss, solution, settings)


def _delta_warning(
    points: Parametrisation, loss: FloatArray, solution: Solution, settings: FitSettings
) -> list[str]:
    if settings.loss != "huber" or settings.residual != "log":
        return []
    predicted = points.law.predict(_first(points, solution), points.variables)
    scatter = float(np.median(np.abs(np.log(predicted / loss))))
    if scatter <= 5 * settings.delta:
        return []
    return [
        f"delta {settings.delta:g} is far below the residuals (median {scatter:.2g}): "
        "this is in effect a fit of least absolute deviations"
    ]
