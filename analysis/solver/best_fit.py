"""The best fit of a law to points: where it begins, all starts, and how sure the best is the optimum.

Starts have parameters spread evenly over what they may be, those that are linear at their best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalevec.analysis.data.tidy import FloatArray, mostly_repeated
from scalevec.analysis.errors import DataError
from scalevec.analysis.formula.jets import constant, evaluate, parameter
from scalevec.analysis.laws import Law, law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.law_points import Points, points_of, require_identifiable
from scalevec.analysis.solver.newton import (
    DECREMENT_TOLERANCE,
    Problem,
    Solution,
    flat_directions,
    newton,
    objective,
    rounding,
)

PointsOfArm = tuple[Mapping[str, FloatArray], FloatArray]
"""One arm's variables (name -> [points]) and losses [points]."""
MOST_KEPT, MOST_POINTS = 256, 2_000
"""Fits that are kept, and the points of one: together some hundred megabytes at most."""
_KEPT: dict[tuple[object, ...], "FittedLaw"] = {}
AGREEMENT = 1e-6
"""A start agrees with the best when its objective is at most this fraction above."""
NARROW = 1e-5
"""Laws whose predictions differ by less, as a share, are one."""
AT_BOUND = 1e-5
"""A parameter this near to a bound, as a share of it, lies there."""
STARTS = 12
SAMPLES, FEWEST = 1_024, 32
"""Values of the parameters that are not linear, of which the best begin a fit: four times FEWEST where it is
one parameter, and four times as many for each other."""
WIDEST = 50.0
"""A parameter without a start is sought from 1/WIDEST to WIDEST."""
EXPONENTS = (0.01, 2.0)
"""The exponents of power terms that are tried."""
RIDGE = 1e-12
"""Added to normal equations, so that terms which are equal at all points can be solved for."""
SMALLEST_SHARE = 1e-6
"""A start gives every term at least this share of the loss, since theta holds its logarithm."""


@dataclass(frozen=True)
class FittedLaw:
    """A law fitted to y [points]: ``solution`` of all starts, the best first.

    ``equal_optima`` predict otherwise, yet fit as well as the best: Huber's loss is linear beyond ``delta``,
    so where as many points lie above the law as below it, the law can move without a change of the objective.
    No rows where the optimum is one.
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
        return {
            name: end
            for name, ends in ranges.items()
            for end in ends
            if 0 < abs(end) < np.inf and abs(parameters[name] - end) <= AT_BOUND * abs(end)
        }

    def predicted(self) -> FloatArray:
        """y of the law at the points [points]."""
        return np.asarray(self.points.predicted(self.theta[None])[0])

    def residuals(self) -> FloatArray:
        """y minus the law on the scale of the residual [points]."""
        return self.away_from(self.predicted())

    def away_from(self, predicted: FloatArray) -> FloatArray:
        """y minus what is ``predicted`` on the scale of the residual [points]."""
        return np.log(self.y / predicted) if self.options.residual == "log" else self.y - predicted

    def redone(self, y: FloatArray | None = None, weights: FloatArray | None = None) -> Solution:
        """The fits to other losses [rows, points] or weights [rows, points], each from this theta."""
        problem = self.problem(y, weights)
        return newton(problem, np.repeat(self.theta[None], max(len(problem.y), len(problem.weights)), axis=0))

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


def laws_of_arms(arms: Mapping[str, PointsOfArm], options: AnalysisOptions) -> list[FittedLaw]:
    """Return the law of each arm, one and the same where the law is fitted to all arms jointly.

    Raises :class:`DataError` where the points leave a parameter free.
    """
    law, laws = law_named(options.law), list[FittedLaw]()
    if law.per_arm:
        return [joint_fit(list(arms.values()), law, options)] * len(arms)
    for arm, (variables, y) in arms.items():
        points = points_of(law, variables)
        require_identifiable(points, arm, options.x)
        laws.append(fit_points(points, y, options))
    return laws


def fit_points(points: Points, y: FloatArray, options: AnalysisOptions) -> FittedLaw:
    """Fit from the best starts (:func:`started`), by the loss function that suits the points.

    The latest fits are kept: a comparison, its hold-outs, tables and figures ask for the same ones.
    """
    options = options.with_loss(seeds_repeat=mostly_repeated(points.cells))
    if points.n_points > MOST_POINTS:
        return _fit(points, y, options)
    law, criterion = points.law, (options.loss, options.delta, options.residual)
    arrays = [y, points.groups, *points.variables.values()]
    data = [None if array is None else array.tobytes() for array in arrays]
    key = (law.name, law.written.text, *points.variables, *criterion, *data)
    if key not in _KEPT:
        _KEPT[key] = _fit(points, y, options)
        while len(_KEPT) > MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
    return replace(_KEPT[key], options=options)


def _fit(points: Points, y: FloatArray, options: AnalysisOptions) -> FittedLaw:
    values = started(points, y, options)
    sizes = zip(points.law.parameters, map(float, np.abs(values[0])), strict=True)
    points = replace(points, sizes={name: size or 1.0 for name, size in sizes})
    problem = points.problem(y, None, options)
    starts = points.theta(values)
    starts = starts[np.isfinite(objective(problem, starts))]
    solution = newton(problem, starts)
    # Among equal ones a verified optimum goes first.
    solution = solution.rows(np.lexsort((~solution.optimal, solution.objective)))
    least = solution.objective[0] * (1 + DECREMENT_TOLERANCE) + rounding(len(y))
    equal = solution.rows(solution.objective <= least)
    if np.ptp(np.log(points.predicted(equal.theta)), axis=0).max() < NARROW:
        return FittedLaw(points, y, options, solution, solution.rows(np.arange(0)))
    # Of laws that fit equally well, the one with the least squares leads.
    squares = np.full(len(solution.theta), np.inf)
    squares[: len(equal.theta)] = objective(replace(problem, delta=np.inf), equal.theta)
    return FittedLaw(points, y, options, solution.rows(np.argsort(squares, kind="stable")), equal)


def joint_fit(arms: Sequence[PointsOfArm], law: Law, options: AnalysisOptions) -> FittedLaw:
    """Fit all arms at once; each keeps the law's ``per_arm``.

    Raises :class:`DataError` for fewer than two arms, and if not identified.
    """
    if len(arms) < 2:
        raise DataError(f"law {law.name} joins several arms; there is one: use its form for a single arm")
    variables = {name: np.concatenate([data[name] for data, _ in arms]) for name in arms[0][0]}
    groups = np.repeat(np.arange(len(arms)), [len(y) for _, y in arms])
    points = points_of(law, variables)
    # What leaves a parameter free says more than a number of points, where both are so.
    require_identifiable(points, "all", options.x)
    points = replace(points, groups=groups)
    if points.n_points < len(points.free):
        n_free = len(points.free)
        raise DataError(f"{points.n_points} points for {n_free} parameters of a joint {law.name} fit")
    return fit_points(points, np.concatenate([y for _, y in arms]), options)


def started(points: Points, y: FloatArray, options: AnalysisOptions) -> FloatArray:
    """The values of the parameters [starts, parameters] that begin a fit to ``y`` [points], the best first.

    Raises :class:`DataError` where the law is no number above zero at any parameters that are tried.
    """
    values = searched(points, y)
    at = objective(points.problem(y, None, options), points.theta(values))
    if not np.isfinite(at).any():
        raise points.law.written.refuse(
            "it is above zero and finite at all points for no parameters that were tried; give 'start'"
        )
    return values[np.argsort(at, kind="stable")[:STARTS]]


def searched(points: Points, y: FloatArray) -> FloatArray:
    """Values of the parameters [samples, parameters]: those that are linear are the best for the others."""
    law = points.law
    linear = [n for n in law.linear if n not in law.written.start and n not in law.written.bounds]
    sought = [name for name in law.parameters if name not in linear]
    rows = min(SAMPLES, FEWEST * 4 ** len(sought)) if sought else 1
    values: dict[str, Any] = dict(zip(sought, _spread(law, sought, rows), strict=True))
    names = dict(points.constants)
    names |= {name: constant(of_name[:, None]) for name, of_name in values.items()}
    names |= {name: parameter(name, np.zeros((rows, 1))) for name in linear}
    full = (rows, points.n_points)
    with np.errstate(all="ignore"):
        at = evaluate(law.written.tree, names)
        rest = 1.0 - np.broadcast_to(at.value, full) / y
        parts = [np.broadcast_to(at.first[name], full) / y for name in linear]
        if linear:
            values |= dict(zip(linear, _projected(parts, rest, law, linear), strict=True))
    return np.stack([np.broadcast_to(values[name], rows) for name in law.parameters], axis=1)


def _spread(law: Law, names: Sequence[str], n_samples: int) -> list[FloatArray]:
    """Values [samples] of each parameter, evenly spread by the additive recurrence of Roberts (2018)."""
    ratio, result = 2.0, list[Any]()
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (len(names) + 1))
    exponents = {term.exponent for term in law.written.terms if term.exponent}
    for number, name in enumerate(names, 1):
        share: Any = (0.5 + np.arange(n_samples) * ratio**-number) % 1.0
        first, last = law.written.start.get(name, (0.0, 0.0))
        low, high = law.ranges.get(name, (-np.inf, np.inf))
        if first:
            result.append(first * (last / first) ** share)
        elif high - low < np.inf:
            result.append(low * (high / low) ** share if low > 0 else low + (high - low) * share)
        elif name in law.ranges:
            end, side = (low, 1.0) if high == np.inf else (high, -1.0)
            result.append(end + side * (abs(end) or 1.0) * WIDEST ** (2 * share - 1))
        else:
            least, most = EXPONENTS if name in exponents else (1 / WIDEST, WIDEST)
            # With one exponent a rising loss is tried too.
            both = share if name in exponents and len(exponents) > 1 else 4 * share - 2
            result.append(np.where(both < 0, -1.0, 1.0) * least * (most / least) ** (np.abs(both) % 1))
    return [np.asarray(values) for values in result]


def _projected(parts: Sequence[FloatArray], rest: FloatArray, law: Law, names: Sequence[str]) -> FloatArray:
    """The coefficients [names, samples] with which ``parts`` [samples, points] are nearest to ``rest``."""
    sizes = np.stack([np.sqrt(np.mean(part**2, axis=1)) for part in parts], axis=1)
    usable = np.all(np.isfinite(sizes) & (sizes > 0), axis=1) & np.all(np.isfinite(rest), axis=1)
    columns = np.stack(parts, axis=1)[usable] / sizes[usable, :, None]
    gram = columns @ columns.swapaxes(1, 2)
    right = (columns @ rest[usable, :, None])[..., 0]
    above = np.array([name in law.positive for name in names])
    used, solved = np.ones(right.shape), right
    for _ in names:
        # What would fall below zero is left out, and the others are solved for again.
        inside = used[:, :, None] * used[:, None]
        ridge = (1 - used + RIDGE * rest.shape[1] * used)[..., None] * np.eye(len(names))
        solved = np.linalg.solve(gram * inside + ridge, (right * used)[..., None])[..., 0]
        used = used * (~above | (solved > 0))
    result = np.full(sizes.shape, np.nan)
    result[usable] = np.maximum(solved, np.where(above, SMALLEST_SHARE, -np.inf)) / sizes[usable]
    return result.T
