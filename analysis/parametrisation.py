"""Between the parameters of a law and the solver's ``theta``, and which points can identify a law.

``theta`` holds ln coefficient and exponent of each term, with the logarithms of the variables centred so
that they are nearly independent of each other, and the logarithm of the outer power of a law that has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis import starts
from analysis.data import DataError, FloatArray
from analysis.laws import Law, Term
from analysis.solver import Problem, objective

_COLLINEAR = 0.02
"""Smallest over largest singular value of centred ln N, ln D below which exponents are not told apart."""


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
    """The points of one fit: ``variables`` name -> [points]. ``floor`` fixes the constant E, if given.

    In a joint fit ``groups`` [points] numbers the arm of each point, and the coefficients ``own`` have a
    value for each arm.
    """

    law: Law
    variables: Mapping[str, FloatArray]
    floor: float | None = None
    groups: npt.NDArray[np.intp] | None = None
    own: tuple[str, ...] = ()

    @property
    def free(self) -> tuple[tuple[str, int], ...]:
        """(name, arm) of each column of theta; arm 0 stands for all where the parameter is shared."""
        names = [name for name in self.law.inner if not (name == "E" and self.floor is not None)]
        n_groups = 1 if self.groups is None else int(self.groups.max()) + 1
        columns = [(name, arm) for name in names for arm in range(n_groups if name in self.own else 1)]
        return tuple(columns + ([(self.law.power, 0)] if self.law.power else []))

    def column(self, name: str, arm: int = 0) -> int:
        """The column of theta of a parameter of the terms."""
        return self.free.index((name, arm if name in self.own else 0))

    @property
    def n_points(self) -> int:
        """Number of points."""
        return len(next(iter(self.variables.values())))

    @property
    def cells(self) -> FloatArray:
        """A number for each point, equal where all variables (and the arm) are."""
        columns = [np.round(np.log(values), 9) for values in self.variables.values()]
        if self.groups is not None:
            columns.append(self.groups.astype(float))
        return np.unique(np.stack(columns), axis=1, return_inverse=True)[1].ravel().astype(float)

    def centre(self, variable: str) -> float:
        """Mean of ln variable over the points."""
        return float(np.mean(np.log(self.variables[variable])))

    def _held(self, term: Term) -> bool:
        return self.floor is not None and term.coefficient == "E"

    def _slope(self, term: Term) -> FloatArray:
        """d z / d exponent [points]."""
        assert term.variable is not None
        centred = np.log(self.variables[term.variable]) - self.centre(term.variable)
        return np.asarray(centred if term.rising else -centred)

    def design(self) -> tuple[FloatArray, FloatArray]:
        """The solver's design [terms, points, parameters] and offset [terms, points]."""
        design = np.zeros((len(self.law.terms), self.n_points, len(self.free)))
        offset = np.zeros(design.shape[:2])
        for index, term in enumerate(self.law.terms):
            if self._held(term):
                offset[index] = np.log(self.floor) if self.floor else -np.inf
                continue
            if self.groups is not None and term.coefficient in self.own:
                for arm in range(int(self.groups.max()) + 1):
                    design[index, self.groups == arm, self.column(term.coefficient, arm)] = 1.0
            else:
                design[index, :, self.column(term.coefficient)] = 1.0
            if term.variable and term.exponent:
                design[index, :, self.column(term.exponent)] = self._slope(term)
            elif term.variable:
                offset[index] = self._slope(term)
        return design, offset

    def problem(self, y: FloatArray, weights: FloatArray | None, options: Options) -> Problem:
        """The solver's problem for losses ``y`` [points] or [rows, points]; weights default to one."""
        design, offset = self.design()
        y = np.atleast_2d(y)
        weights = np.ones((1, y.shape[1])) if weights is None else np.atleast_2d(weights)
        power = self.column(self.law.power) if self.law.power else None
        return Problem(design, offset, y, weights, options.solver_delta, options.residual == "log", power)

    def parameters(self, theta: FloatArray, arm: int = 0) -> dict[str, FloatArray]:
        """Name -> values [rows] of the law's published parameters, from theta [rows, parameters]."""
        rows = np.atleast_2d(theta)
        inner: dict[str, FloatArray] = {}
        for term in self.law.terms:
            if self._held(term):
                inner["E"] = np.full(len(rows), self.floor)
                continue
            log_coefficient = rows[:, self.column(term.coefficient, arm)]
            if term.variable:
                exponent = rows[:, self.column(term.exponent)] if term.exponent else np.ones(len(rows))
                if term.exponent:
                    inner[term.exponent] = exponent
                shift = exponent * self.centre(term.variable)
                log_coefficient = log_coefficient + (-shift if term.rising else shift)
            inner[term.coefficient] = np.exp(np.clip(log_coefficient, -700, 700))
        if self.law.power:
            inner[self.law.power] = np.exp(rows[:, self.column(self.law.power)])
        return self.law.published(inner)

    def starts(self, problem: Problem) -> FloatArray:
        """The best few starts [starts, parameters]: a grid of exponents, each with its best coefficients."""
        terms = [term for term in self.law.terms if not self._held(term)]
        searched = list(self.law.exponents)
        slopes = [
            starts.Slope(
                self._slope(term) if term.variable else None,
                searched.index(term.exponent) if term.exponent else None,
            )
            for term in terms
        ]
        y = np.mean(problem.y, axis=0)
        has_power = self.law.power is not None
        grid = starts.projected(slopes, y, self.floor or 0.0, has_power, both_signs=len(searched) == 1)
        thetas = np.empty((len(grid.power), len(self.free)))
        for position, (name, _) in enumerate(self.free):
            if name == self.law.power:
                thetas[:, position] = np.log(grid.power)
            elif name in searched:
                thetas[:, position] = grid.exponents[:, searched.index(name)]
            else:
                which = [term.coefficient for term in terms].index(name)
                thetas[:, position] = grid.log_coefficients[:, which]
        return np.asarray(thetas[starts.chosen(objective(problem, thetas), grid.shape)])


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
            free = law.leaves_free(name)
            raise DataError(f"arm {arm!r}: all points have one value of {shown}, which leaves {free} free")
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
