"""The best fit of a law to points: all starts, the best first, and how sure it is to be the optimum."""

from dataclasses import dataclass, replace

import numpy as np

from analysis.data import FloatArray
from analysis.parametrisation import Options, Parametrisation
from analysis.solver import Solution, flat_directions, rounding, solve
from analysis.sums import Problem

AGREEMENT = 1e-6
"""A start agrees with the best when its objective is at most this fraction above."""


@dataclass(frozen=True)
class Estimated:
    """A law fitted to y [points]: ``solution`` of all starts, the best first."""

    points: Parametrisation
    y: FloatArray
    options: Options
    solution: Solution

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
        best = self.objective * (1 + AGREEMENT) + 1e-24
        return int(np.sum(self.solution.objective <= best))

    def problem(self, y: FloatArray | None = None, weights: FloatArray | None = None) -> Problem:
        """The solver's problem on these points, with other losses or weights if given."""
        return self.points.problem(self.y if y is None else y, weights, self.options)

    def parameters(self, arm: int = 0) -> dict[str, float]:
        """The published parameters."""
        found = self.points.parameters(self.theta, arm)
        return {name: float(values[0]) for name, values in found.items()}

    def predicted(self) -> FloatArray:
        """y of the law at the points [points]."""
        if self.points.groups is None:
            return self.points.law.predict(self.parameters(), self.points.variables)
        result = np.empty(len(self.y))
        for arm in range(int(self.points.groups.max()) + 1):
            own = self.points.groups == arm
            here = {name: values[own] for name, values in self.points.variables.items()}
            result[own] = self.points.law.predict(self.parameters(arm), here)
        return result

    def residuals(self) -> FloatArray:
        """y minus the law on the scale of the residual [points]."""
        predicted = self.predicted()
        return np.log(self.y / predicted) if self.options.residual == "log" else self.y - predicted

    def at(self, theta: FloatArray) -> "Estimated":
        """The same points with another ``theta`` [parameters] in place of the best."""
        one = Solution(theta[None], np.full(1, np.nan), np.full(1, np.nan), np.ones(1, bool))
        return replace(self, solution=one)

    def redone(self, y: FloatArray | None = None, weights: FloatArray | None = None) -> Solution:
        """The fits to other losses [rows, points] or weights [rows, points], each from this theta."""
        rows = len(y) if y is not None else len(weights) if weights is not None else 1
        return solve(self.problem(y, weights), np.repeat(self.theta[None], rows, axis=0))

    def conditioning(self) -> tuple[float, list[str]]:
        """Condition number of the scaled curvature, and each flat direction by its parameters."""
        condition, flat = flat_directions(self.problem(), self.theta)
        names = [name for name, _ in self.points.free]
        said = [
            ", ".join(dict.fromkeys(n for n, share in zip(names, way, strict=True) if abs(share) > 0.2))
            for way in flat
        ]
        return condition, said


def estimated(points: Parametrisation, y: FloatArray, options: Options) -> Estimated:
    """Fit from all starts of :meth:`Parametrisation.starts`."""
    problem = points.problem(y, None, options)
    return Estimated(points, y, options, solve(problem, points.starts(problem)).best_first())


def best_solution(points: Parametrisation, loss: FloatArray, options: Options) -> Solution:
    """The solutions from all starts, the best first. Points: ``loss`` [points]."""
    return estimated(points, loss, options).solution
