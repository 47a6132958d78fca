"""The columns that a law reads, and the law where none is named: with a floor where the points tell one."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import budgets_of
from scalevec.analysis.data.tidy import FloatArray, compute_of, parameters_of
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import VARIABLES, AnalysisOptions
from scalevec.analysis.solver.best_fit import fit_points, joint_fit
from scalevec.analysis.solver.law_points import points_of
from scalevec.analysis.statistics.noise import pooled_noise, t_quantile

FEWEST_SIZES = 4
"""A law with a floor has three parameters: fewer sizes cannot tell whether it is needed."""
HIGH_FLOOR = 0.9
"""The high irreducible loss that is tried, as a share of the lowest loss seen."""


@dataclasses.dataclass(frozen=True)
class FloorProfile:
    """The fit with E = 0 and with E = 0.9 of the lowest loss, each in standard errors worse than the best."""

    zero: float
    high: float
    critical: float
    identified: bool

    @property
    def warning(self) -> str:
        """One sentence for people who would quote the exponent."""
        if not np.isfinite(self.critical):
            return (
                "fewer than four sizes or no noise figure: the irreducible loss cannot be identified; "
                "compare levels, not exponents"
            )
        return (
            f"the irreducible loss is not identified: E = 0 fits within {self.zero:.1f} and "
            f"E = {HIGH_FLOOR:g} min(loss) within {self.high:.1f} SE of the best fit "
            f"({self.critical:.1f} would exclude it); compare levels, not exponents"
        )


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


def variable_of(rows: pd.DataFrame, name: str, options: AnalysisOptions) -> FloatArray:
    """Return N, D, C or a column of each row [rows]."""
    if name not in VARIABLES:
        return rows[name].to_numpy(float)
    if name == "C":
        return compute_of(rows, options.n_convention, options.c_convention)
    return parameters_of(rows, options.n_convention) if name == "N" else rows["n_tokens"].to_numpy(float)


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
        arms = [(variable_of(part, options.x, options), part["loss"].to_numpy(float)) for part in parts]
        if all(profile.zero > profile.critical for profile in (floor_profile(*arm) for arm in arms)):
            law = "power-floor"
        elif len(arms) > 1 and _has_shared_floor(arms):
            law = "power-floor-shared"
    return dataclasses.replace(options, law=law)


def _has_shared_floor(arms: Sequence[tuple[FloatArray, FloatArray]]) -> bool:
    """Whether one floor for all ``arms``, each its x and y, fits better than none, by more than the noise."""
    if min(len(np.unique(x)) for x, _ in arms) < FEWEST_SIZES - 1:
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
        return FloorProfile(0.0, 0.0, float("inf"), False)
    variance, df = max(candidates)
    # Data that lie on the law exactly leave no variance to divide by.
    variance = max(variance, 1e-30)
    critical = t_quantile(0.95, df)
    zero, high = (
        float(np.sqrt(max(_squares(x, loss, floor) - best, 0.0) / variance))
        for floor in (0.0, HIGH_FLOOR * float(loss.min()))
    )
    return FloorProfile(zero, high, critical, min(zero, high) > critical)


def _squares(x: FloatArray, loss: FloatArray, floor: float | None) -> float:
    """The least sum of squared log residuals with E held at ``floor`` (free: the better of free and zero)."""
    law = law_named("power-floor" if floor is None else f"power-floor; fix E = {floor!r}")
    # The solver's objective is half the sum of squares.
    least = 2.0 * fit_points(points_of(law, {"x": x}), loss, AnalysisOptions(loss="l2")).objective
    return least if floor is not None else min(least, _squares(x, loss, 0.0))
