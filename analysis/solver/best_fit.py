"""The best fit of a law to points: all starts, the best first, and how sure it is to be the optimum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.laws import Law
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.flat_optimum import NARROW, equal_optima
from scalevec.analysis.solver.law_points import Points, points_of, require_identifiable
from scalevec.analysis.solver.newton import Solution, flat_directions, rounding, solve
from scalevec.analysis.solver.objective import Problem
from scalevec.analysis.solver.starts import scaled

PointsOfArm = tuple[Mapping[str, FloatArray], FloatArray]
"""One arm's variables (name -> [points]) and losses [points]."""
MOST_KEPT, MOST_POINTS = 256, 2_000
"""Fits that are kept, and the points of one: together some hundred megabytes at most."""
_KEPT: dict[tuple[object, ...], "FittedLaw"] = {}
AGREEMENT = 1e-6
"""A start agrees with the best when its objective is at most this fraction above."""


AT_BOUND = 1e-5
"""A parameter this near to a bound, as a share of it, lies there."""


@dataclass(frozen=True)
class FittedLaw:
    """A law fitted to y [points]: ``solution`` of all starts, the best first.

    ``equal_optima`` fit as well as the best (:mod:`flat_optimum`); no rows where it is the only one.
    """

    points: Points
    y: FloatArray
    options: AnalysisOptions
    solution: Solution
    equal_optima: Solution

    @property
    def theta(self) -> FloatArray:
        """The best theta [parameters]."""
        return np.asarray(self.solution.theta[0])

    @property
    def objective(self) -> float:
        """The sum over points at the best theta."""
        return float(self.solution.objective[0])

    @property
    def optimality(self) -> float:
        """The undamped decrement over the objective."""
        return float(self.solution.decrement[0] / (self.objective + rounding(len(self.y))))

    @property
    def optimal(self) -> bool:
        """Whether the best theta is a verified optimum."""
        return bool(self.solution.optimal[0])

    @property
    def starts_agreeing(self) -> int:
        """How many starts reached the best objective."""
        # The last term serves data that lie on the law exactly, whose objective is zero.
        best = self.objective * (1 + AGREEMENT) + 1e-24
        return int(np.sum(self.solution.objective <= best))

    def problem(self, y: FloatArray | None = None, weights: FloatArray | None = None) -> Problem:
        """The solver's problem on these points, with other losses or weights if given."""
        return self.points.problem(self.y if y is None else y, weights, self.options)

    def parameters(self, arm: int = 0) -> dict[str, float]:
        """The published parameters; those that are fixed among them."""
        parameters = self.points.parameters(self.theta, arm)
        return {**{name: float(values[0]) for name, values in parameters.items()}, **self.points.law.fixed}

    def at_bounds(self, arm: int = 0) -> dict[str, float]:
        """The parameters that lie at a bound which the user gave, with that bound."""
        parameters, ranges = self.parameters(arm), self.points.law.ranges
        # Zero is the bound of a parameter above zero, which the law has and not its user.
        ends = {name: [end for end in of_name if 0 < abs(end) < np.inf] for name, of_name in ranges.items()}
        return {
            name: end
            for name, of_name in ends.items()
            for end in of_name
            if abs(parameters[name] - end) <= AT_BOUND * abs(end)
        }

    def values_at(self, theta: FloatArray, at: Mapping[str, float], arm: int = 0) -> FloatArray:
        """y [rows] at one point, given by its variables, of the laws with ``theta`` [rows, parameters]."""
        columns = {name: values[:, None] for name, values in self.points.parameters(theta, arm).items()}
        point = {name: np.full((len(theta), 1), value) for name, value in at.items()}
        return self.points.law.predict(columns, point)[:, 0]

    def predicted(self) -> FloatArray:
        """y of the law at the points [points]."""
        if self.points.groups is None:
            return self.points.law.predict(self.parameters(), self.points.variables)
        result = np.empty(len(self.y))
        for arm in range(int(self.points.groups.max()) + 1):
            of_arm = self.points.groups == arm
            here = {name: values[of_arm] for name, values in self.points.variables.items()}
            result[of_arm] = self.points.law.predict(self.parameters(arm), here)
        return result

    def residuals(self) -> FloatArray:
        """y minus the law on the scale of the residual [points]."""
        predicted = self.predicted()
        return np.log(self.y / predicted) if self.options.residual == "log" else self.y - predicted

    def at(self, theta: FloatArray) -> "FittedLaw":
        """The same points with another ``theta`` [parameters] in place of the best."""
        solution = Solution(theta[None], np.full(1, np.nan), np.full(1, np.nan), np.ones(1, bool))
        return replace(self, solution=solution)

    def redone(self, y: FloatArray | None = None, weights: FloatArray | None = None) -> Solution:
        """The fits to other losses [rows, points] or weights [rows, points], each from this theta."""
        rows = len(y) if y is not None else len(weights) if weights is not None else 1
        return solve(self.problem(y, weights), np.repeat(self.theta[None], rows, axis=0))

    def equal_parameters(self, arm: int = 0) -> dict[str, tuple[float, float]]:
        """The range of each published parameter that differs among optima that fit equally well."""
        ranges = {
            name: (float(values.min()), float(values.max()))
            for name, values in self.points.parameters(self.equal_optima.theta, arm).items()
            if len(values)
        }
        return {name: (low, high) for name, (low, high) in ranges.items() if high - low > NARROW * abs(high)}

    def conditioning(self) -> tuple[float, list[str]]:
        """Condition number of the scaled curvature, and each flat direction by its parameters."""
        condition, flat = flat_directions(self.problem(), self.theta)
        names = [name for name, _ in self.points.free]
        return condition, [
            ", ".join(dict.fromkeys(n for n, share in zip(names, way, strict=True) if abs(share) > 0.2))
            for way in flat
        ]


def fit_identified(points: Points, y: FloatArray, options: AnalysisOptions, arm: str) -> FittedLaw:
    """:func:`fit_points`; raises :class:`DataError` where the points of ``arm`` leave a parameter free."""
    require_identifiable(points, arm, options.x)
    return fit_points(points, y, options)


def fit_points(points: Points, y: FloatArray, options: AnalysisOptions) -> FittedLaw:
    """Fit from the best starts (:mod:`starts`), by the loss function that suits the points.

    The latest fits are kept: a comparison, its hold-outs, tables and figures ask for the same ones.
    """
    options = options.with_loss(seeds_repeat=points.seeds_repeat)
    if points.n_points > MOST_POINTS:
        return _fit(points, y, options)
    law, criterion = points.law, (options.loss, options.delta, options.residual)
    arrays = [y, points.weights, points.groups, *points.variables.values()]
    data = [None if array is None else array.tobytes() for array in arrays]
    key = (law.name, law.written.text, *law.given, *points.variables, *points.per_arm, *criterion, *data)
    if key not in _KEPT:
        _KEPT[key] = _fit(points, y, options)
        while len(_KEPT) > MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
    return replace(_KEPT[key], options=options)


def _fit(points: Points, y: FloatArray, options: AnalysisOptions) -> FittedLaw:
    points = scaled(points, y, options)
    problem = points.problem(y, None, options)
    solution = solve(problem, points.starts(problem)).best_first()
    # Least squares have a point as their optimum.
    equal = solution.rows(np.arange(0)) if options.loss == "l2" else equal_optima(problem, solution)
    if len(equal.theta):
        solution = solution.led_by(equal.rows(np.arange(1)))
    return FittedLaw(points, y, options, solution, equal)


def coefficients(law: Law) -> tuple[str, ...]:
    """What arms keep for themselves in a joint fit: the coefficients in which the law is linear."""
    return law.per_arm or tuple(name for name in law.linear if name != law.floor)


def joint_fit(
    arms: Sequence[PointsOfArm],
    law: Law,
    options: AnalysisOptions,
    weights: Sequence[FloatArray | None] = (None,),
    per_arm: Sequence[str] | None = None,
) -> FittedLaw:
    """Fit all arms at once; each keeps ``per_arm`` (by default :func:`coefficients`) for itself.

    ``weights`` are of each arm's points. Raises :class:`DataError` if not identified.
    """
    points = joint_points(arms, law, weights, per_arm)
    # What leaves a parameter free says more than a number of points, where both are so.
    require_identifiable(replace(points, groups=None, per_arm=()), "all", options.x)
    if points.n_points < len(points.free):
        n_free = len(points.free)
        raise DataError(f"{points.n_points} points for {n_free} parameters of a joint {law.name} fit")
    return fit_points(points, np.concatenate([y for _, y in arms]), options)


def joint_points(
    arms: Sequence[PointsOfArm],
    law: Law,
    weights: Sequence[FloatArray | None] = (None,),
    per_arm: Sequence[str] | None = None,
) -> Points:
    """Return the points of :func:`joint_fit`. Raises :class:`DataError` for fewer than two arms."""
    if len(arms) < 2:
        raise DataError(f"law {law.name} joins several arms; there is one: use its form for a single arm")
    names = arms[0][0].keys()
    variables = {name: np.concatenate([data[name] for data, _ in arms]) for name in names}
    groups = np.repeat(np.arange(len(arms)), [len(y) for _, y in arms])
    given = [of_arm for of_arm in weights if of_arm is not None]
    separate = coefficients(law) if per_arm is None else tuple(per_arm)
    pooled = points_of(law, variables, np.concatenate(given) if given else None)
    return replace(pooled, groups=groups, per_arm=separate)
