"""Between the parameters of a law and the solver's ``theta``, and the starts of a fit.

``theta`` holds ln coefficient and exponent of each term, with the logarithms of the variables centred so
that they are nearly independent of each other.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.data import DataError, FloatArray
from analysis.laws import Law
from analysis.solver import Problem, objective

START_EXPONENTS = np.geomspace(0.01, 2.0, 14)
LARGEST_NUMBER_OF_STARTS = 12
_COLLINEAR = 0.02
"""Smallest over largest singular value of centred ln N, ln D below which exponents are not told apart."""
_SMALLEST_SHARE = 1e-6
"""A start gives every term at least this share of the loss, since theta holds its logarithm."""


@dataclass(frozen=True)
class Options:
    """How a fit is made. ``delta`` is Huber's, in log loss (``residual`` log) or nats (linear)."""

    loss: str = "huber"
    delta: float = 1e-3
    residual: str = "log"

    @property
    def solver_delta(self) -> float:
        """Delta for the solver: infinite is least squares, zero L1."""
        return {"huber": self.delta, "l1": 0.0, "l2": np.inf}[self.loss]


@dataclass(frozen=True)
class Parametrisation:
    """The points of one fit: ``variables`` name -> [points]. ``floor`` fixes the constant E, if given."""

    law: Law
    variables: Mapping[str, FloatArray]
    floor: float | None = None

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the parameters that are fitted, in the order of theta."""
        return tuple(name for name in self.law.parameters if not (name == "E" and self.floor is not None))

    def centre(self, variable: str) -> float:
        """Mean of ln variable over the points."""
        return float(np.mean(np.log(self.variables[variable])))

    def design(self) -> tuple[FloatArray, FloatArray]:
        """The solver's design [terms, points, parameters] and offset [terms, points]."""
        n_points = len(next(iter(self.variables.values())))
        design = np.zeros((len(self.law.terms), n_points, len(self.free)))
        offset = np.zeros(design.shape[:2])
        for index, term in enumerate(self.law.terms):
            if term.coefficient not in self.free:
                offset[index] = np.log(self.floor) if self.floor else -np.inf
                continue
            design[index, :, self.free.index(term.coefficient)] = 1.0
            if term.variable and term.exponent:
                centred = np.log(self.variables[term.variable]) - self.centre(term.variable)
                design[index, :, self.free.index(term.exponent)] = -centred
        return design, offset

    def problem(self, y: FloatArray, weights: FloatArray | None, options: Options) -> Problem:
        """The solver's problem for losses ``y`` [points] or [rows, points]; weights default to one."""
        design, offset = self.design()
        y = np.atleast_2d(y)
        weights = np.ones((1, y.shape[1])) if weights is None else np.atleast_2d(weights)
        return Problem(design, offset, y, weights, options.solver_delta, options.residual == "log")

    def parameters(self, theta: FloatArray) -> dict[str, FloatArray]:
        """Name -> values [rows] of the law's parameters, from theta [rows, parameters]."""
        rows = np.atleast_2d(theta)
        values = {name: rows[:, index] for index, name in enumerate(self.free)}
        result = {}
        for term in self.law.terms:
            if term.coefficient not in self.free:
                result[term.coefficient] = np.full(len(rows), self.floor)
                continue
            log_coefficient = values[term.coefficient]
            if term.variable and term.exponent:
                result[term.exponent] = values[term.exponent]
                log_coefficient = log_coefficient + values[term.exponent] * self.centre(term.variable)
            result[term.coefficient] = np.exp(np.clip(log_coefficient, -700, 700))
        return {name: result[name] for name in self.law.parameters}

    def starts(self, problem: Problem) -> FloatArray:
        """The best few starts [starts, parameters]: a grid of exponents, each with its best coefficients."""
        grid = list(itertools.product(START_EXPONENTS, repeat=len(self.law.exponents)))
        y = np.mean(problem.y, axis=0)
        thetas = np.array(
            [self._start(dict(zip(self.law.exponents, point, strict=True)), y) for point in grid]
        )
        order = np.argsort(objective(problem, thetas), kind="stable")
        return thetas[order[:LARGEST_NUMBER_OF_STARTS]]

    def _start(self, exponents: dict[str, float], y: FloatArray) -> FloatArray:
        """Coefficients by non-negative least squares on the relative residual, exponents held."""
        from scipy.optimize import nnls

        columns = []
        for term in self.law.terms:
            centred = np.zeros(len(y))
            if term.variable and term.exponent:
                centred = np.log(self.variables[term.variable]) - self.centre(term.variable)
                centred = centred * exponents[term.exponent]
            columns.append(np.exp(-centred) / y)
        target = np.ones(len(y))
        if self.floor is not None:
            target = target - self.floor / y
            columns = [c for c, t in zip(columns, self.law.terms, strict=True) if t.coefficient != "E"]
        matrix = np.stack(columns, axis=1)
        solved, _ = nnls(matrix, target)
        solved = np.maximum(solved, _SMALLEST_SHARE / matrix.mean(axis=0))
        names = [term.coefficient for term in self.law.terms if term.coefficient in self.free]
        coefficients = dict(zip(names, np.log(solved), strict=True))
        return np.array(
            [coefficients[name] if name in coefficients else exponents[name] for name in self.free]
        )


def require_identifiable(points: Parametrisation, arm: str, x: str) -> None:
    """Refuse points from which no optimiser can tell the exponents: the number would mean nothing.

    ``x`` is the name of the law's variable in one variable, N, D or C, for the message.

    Raises :class:`DataError` where there are fewer distinct points than parameters, where a variable
    has one value only, or where N and D are proportional (one number of tokens per parameter).
    """
    law = points.law
    logs = np.stack([np.log(points.variables[name]) for name in law.variables])
    distinct = np.unique(np.round(logs, 9), axis=1).shape[1]
    for name, values in zip(law.variables, logs, strict=True):
        if np.ptp(values) < 1e-9:
            shown = x if name == "x" else name
            exponent = next(term.exponent for term in law.terms if term.variable == name)
            raise DataError(
                f"arm {arm!r}: all points have one value of {shown}, which leaves {exponent} free"
            )
    if distinct < len(law.parameters):
        raise DataError(
            f"arm {arm!r}: {distinct} distinct points for {len(law.parameters)} parameters of {law.name}"
        )
    singular = np.linalg.svd(logs - logs.mean(axis=1, keepdims=True), compute_uv=False)
    if len(singular) > 1 and singular[-1] < _COLLINEAR * singular[0]:
        raise DataError(
            f"arm {arm!r}: {' and '.join(law.variables)} are proportional, which leaves their exponents "
            "free; several numbers of tokens per parameter are needed, or a law in one variable"
        )
