"""Between the parameters of a law and the solver's ``theta``, and which points can identify a law.

``theta`` holds ln coefficient and exponent of each term, with the logarithms of the variables centred so
that they are nearly independent of each other, and the logarithm of the outer power of a law that has one.
Starts are found by variable projection: a grid of exponents, each with its exact best coefficients.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import FloatArray, mostly_repeated
from scalevec.analysis.errors import DataError
from scalevec.analysis.laws import Law, Term
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.newton import Problem, objective

EXPONENTS = np.geomspace(0.01, 2.0, 14)
POWERS = np.geomspace(0.02, 1.0, 8)
"""Outer powers that are tried, for a law that has one."""
LARGEST_NUMBER_OF_STARTS = 12
SMALLEST_SHARE = 1e-6
"""A start gives every term at least this share of the loss, since theta holds its logarithm."""


_COLLINEAR = 0.02
"""Smallest over largest singular value of centred ln N, ln D below which exponents are not told apart."""


@dataclass(frozen=True)
class DesignMatrix:
    """The points of one fit: ``variables`` name -> [points]. ``floor`` fixes the constant E, if given.

    In a joint fit ``groups`` [points] numbers the arm of each point, and the coefficients ``per_arm`` have a
    value for each arm.
    """

    law: Law
    variables: Mapping[str, FloatArray]
    floor: float | None = None
    groups: npt.NDArray[np.intp] | None = None
    per_arm: tuple[str, ...] = ()
    weights: FloatArray | None = None
    """What each point counts in the objective [points]; equally without."""

    @cached_property
    def free(self) -> tuple[tuple[str, int], ...]:
        """(name, arm) of each column of theta; arm 0 stands for all where the parameter is shared."""
        names = [name for name in self.law.inner if not (name == "E" and self.floor is not None)]
        n_groups = 1 if self.groups is None else int(self.groups.max()) + 1
        columns = [(name, arm) for name in names for arm in range(n_groups if name in self.per_arm else 1)]
        return tuple(columns + ([(self.law.power, 0)] if self.law.power else []))

    def column(self, name: str, arm: int = 0) -> int:
        """The column of theta of a parameter of the terms."""
        return self._columns[name, arm if name in self.per_arm else 0]

    @cached_property
    def _columns(self) -> dict[tuple[str, int], int]:
        return {free: column for column, free in enumerate(self.free)}

    @property
    def n_points(self) -> int:
        """Number of points."""
        return len(next(iter(self.variables.values())))

    @property
    def cells(self) -> FloatArray:
        """A number for each point, equal where all variables (and the arm) are."""
        # Rounded: a size that was computed in two ways may differ in its last digit.
        columns = [np.round(np.log(values), 9) for values in self.variables.values()]
        if self.groups is not None:
            columns.append(self.groups.astype(float))
        return np.unique(np.stack(columns), axis=1, return_inverse=True)[1].ravel().astype(float)

    @property
    def seeds_repeat(self) -> bool:
        """Whether most points share their cell with another, so that the noise between seeds is known."""
        return mostly_repeated(self.cells)

    @cached_property
    def centres(self) -> dict[str, float]:
        """Mean of the logarithm of each variable of the terms over the points."""
        return {name: float(np.mean(np.log(self.variables[name]))) for name in self.law.variables}

    def _held(self, term: Term) -> bool:
        return self.floor is not None and term.coefficient == "E"

    def _slope(self, term: Term) -> FloatArray:
        """d z / d exponent [points]."""
        assert term.variable is not None
        centred = np.log(self.variables[term.variable]) - self.centres[term.variable]
        return np.asarray(centred if term.rising else -centred)

    def design(self) -> tuple[FloatArray, FloatArray]:
        """The solver's design [terms, points, parameters] and offset [terms, points]."""
        design = np.zeros((len(self.law.terms), self.n_points, len(self.free)))
        offset = np.zeros(design.shape[:2])
        for index, term in enumerate(self.law.terms):
            if self._held(term):
                # A floor of zero is ln 0 = -inf: Problem.terms leaves such a term out.
                offset[index] = np.log(self.floor) if self.floor else -np.inf
                continue
            if self.groups is not None and term.coefficient in self.per_arm:
                for arm in range(int(self.groups.max()) + 1):
                    design[index, self.groups == arm, self.column(term.coefficient, arm)] = 1.0
            else:
                design[index, :, self.column(term.coefficient)] = 1.0
            if term.variable and term.exponent:
                design[index, :, self.column(term.exponent)] = self._slope(term)
            elif term.variable:
                offset[index] = self._slope(term)
        return design, offset

    def problem(self, y: FloatArray, weights: FloatArray | None, options: AnalysisOptions) -> Problem:
        """The solver's problem for losses ``y`` [points] or [rows, points]; weights default to one."""
        design, offset = self.design()
        power, delta = self.column(self.law.power) if self.law.power else None, solver_delta(options)
        log, losses = options.residual == "log", np.atleast_2d(y)
        return Problem(design, offset, losses, self.weighed(weights), delta, log, power)

    def weighed(self, copies: FloatArray | None) -> FloatArray:
        """The weights [1 or rows, points] of ``copies`` of each point: those of the points times them."""
        if self.weights is None:
            return np.ones((1, self.n_points)) if copies is None else np.atleast_2d(copies)
        of_points = np.asarray(self.weights[None] / self.weights.mean())
        return of_points if copies is None else of_points * np.atleast_2d(copies)

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
                shift = exponent * self.centres[term.variable]
                log_coefficient = log_coefficient + (-shift if term.rising else shift)
            # exp overflows float64 above 709.
            inner[term.coefficient] = np.exp(np.clip(log_coefficient, -700, 700))
        if self.law.power:
            inner[self.law.power] = np.exp(rows[:, self.column(self.law.power)])
        return self.law.published(inner)

    def scaled(self, y: FloatArray, options: AnalysisOptions) -> "DesignMatrix":  # noqa: ARG002
        """The same points with theta in units that suit ``y`` [points]; those of power terms always do."""
        return self

    def starts(self, problem: Problem) -> FloatArray:
        """The best few starts [starts, parameters]: a grid of exponents, each with its best coefficients."""
        terms = [term for term in self.law.terms if not self._held(term)]
        searched = list(self.law.exponents)
        slopes = [
            Slope(
                self._slope(term) if term.variable else None,
                searched.index(term.exponent) if term.exponent else None,
            )
            for term in terms
        ]
        y = np.mean(problem.y, axis=0)
        has_power = self.law.power is not None
        grid = projected(slopes, y, self.floor or 0.0, has_power, both_signs=len(searched) == 1)
        thetas = np.empty((len(grid.power), len(self.free)))
        for position, (name, _) in enumerate(self.free):
            if name == self.law.power:
                thetas[:, position] = np.log(grid.power)
            elif name in searched:
                thetas[:, position] = grid.exponents[:, searched.index(name)]
            else:
                which = [term.coefficient for term in terms].index(name)
                thetas[:, position] = grid.log_coefficients[:, which]
        return np.asarray(thetas[chosen(objective(problem, thetas), grid.shape)])


def solver_delta(options: AnalysisOptions) -> float:
    """Return Huber's delta as the solver takes it: infinite is least squares, zero L1."""
    return {"huber": options.delta, "l1": 0.0, "l2": np.inf}[options.with_loss().loss]


def require_identifiable(points: DesignMatrix, arm: str, x: str) -> None:
    """Refuse points from which no optimiser can tell the exponents: the number would mean nothing.

    ``x`` is the name of the law's variable in one variable, N, D or C, for the message.

    Raises :class:`DataError` where there are fewer distinct points than parameters, where a variable
    has one value only, or where N and D are proportional (one number of tokens per parameter).
    """
    law = points.law
    logs = np.stack([np.log(points.variables[name]) for name in law.variables])
    distinct = np.unique(np.round(logs, 9), axis=1).shape[1]
    for name, values in zip(law.variables, logs, strict=True):
        if law.terms and np.ptp(values) < 1e-9:
            shown = x if name == "x" else name
            free = law.leaves_free(name)
            raise DataError(f"arm {arm!r}: all points have one value of {shown}, which leaves {free} free")
    if distinct < len(law.parameters):
        raise DataError(
            f"arm {arm!r}: {distinct} distinct points for {len(law.parameters)} parameters of {law.name}"
        )
    if not law.terms:
        return  # what the points of a formula leave free is seen at its optimum
    singular = np.linalg.svd(logs - logs.mean(axis=1, keepdims=True), compute_uv=False)
    if len(singular) > 1 and singular[-1] < _COLLINEAR * singular[0]:
        raise DataError(
            f"arm {arm!r}: {' and '.join(law.variables)} are proportional, which leaves their exponents "
            "free; several numbers of tokens per parameter are needed, or a law in one variable"
        )


@dataclass(frozen=True)
class Slope:
    """One term of the sum, coefficient x exp(exponent x slope): slope [points] is None for a constant.

    ``exponent`` numbers the exponents that are searched; None with a slope is a fixed exponent of one.
    """

    slope: FloatArray | None
    exponent: int | None


@dataclass(frozen=True)
class Grid:
    """exponents [grid, exponents], power [grid], ln coefficients [grid, terms] and the grid's shape."""

    exponents: FloatArray
    power: FloatArray
    log_coefficients: FloatArray
    shape: tuple[int, ...]


def projected(
    slopes: Sequence[Slope], y: FloatArray, floor: float, has_power: bool, both_signs: bool
) -> Grid:
    """Best non-negative coefficients of the relative residuals of y [points] at each grid point.

    ``floor`` is a constant that is held; ``both_signs`` searches negative exponents too.
    """
    tried = np.concatenate([EXPONENTS, -EXPONENTS]) if both_signs else EXPONENTS
    n_exponents = 1 + max((s.exponent for s in slopes if s.exponent is not None), default=-1)
    index = np.array(list(itertools.product(range(len(tried)), repeat=n_exponents)), int)
    powers = POWERS if has_power else np.ones(1)
    parts = [_coefficients(slopes, y ** (1 / power), floor, tried, index) for power in powers]
    shape = (len(powers), *(len(tried),) * n_exponents)
    exponents = np.tile(tried[index], (len(powers), 1))
    return Grid(exponents, np.repeat(powers, len(index)), np.concatenate(parts), shape)


def _coefficients(
    slopes: Sequence[Slope], y: FloatArray, floor: float, tried: FloatArray, index: FloatArray
) -> FloatArray:
    """ln coefficients [grid, terms]."""
    columns = [_columns(slope, y, tried) for slope in slopes]
    target = 1.0 - floor / y
    which = [np.zeros(len(index), int) if s.exponent is None else index[:, s.exponent] for s in slopes]
    gram = np.empty((len(index), len(slopes), len(slopes)))
    right = np.empty((len(index), len(slopes)))
    for i, a in enumerate(columns):
        right[:, i] = (a @ target)[which[i]]
        for j, b in enumerate(columns):
            gram[:, i, j] = (a @ b.T)[which[i], which[j]]
    means = np.stack([c.mean(axis=1)[w] for c, w in zip(columns, which, strict=True)], axis=1)
    return np.asarray(np.log(np.maximum(non_negative(gram, right), SMALLEST_SHARE / means)))


def _columns(slope: Slope, y: FloatArray, tried: FloatArray) -> FloatArray:
    """The term with coefficient one, over y, for each exponent that is tried [exponents, points]."""
    if slope.slope is None:
        return (1.0 / y)[None]
    exponents = np.ones(1) if slope.exponent is None else tried
    # Up to 300, so that squares stay below float64's exp(709).
    return np.asarray(np.exp(np.clip(exponents[:, None] * slope.slope, -300, 300)) / y)


def non_negative(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Exact non-negative least squares of each system [grid, terms]: the best of all feasible subsets."""
    n_grid, n_terms = right.shape
    best, lowest = np.zeros((n_grid, n_terms)), np.zeros(n_grid)
    ridge = 1e-14 * np.trace(gram, axis1=1, axis2=2)
    # With few terms every subset can be tried: exact, and one batch for the whole grid.
    for size in range(1, n_terms + 1):
        for subset in itertools.combinations(range(n_terms), size):
            part = gram[:, subset][:, :, subset] + ridge[:, None, None] * np.eye(size)
            solved = np.linalg.solve(part, right[:, subset, None])[..., 0]
            # Squares at a least-squares solution, but for the constant target^2.
            squares = -np.sum(solved * right[:, subset], axis=1)
            better = np.all(solved >= 0, axis=1) & (squares < lowest)
            lowest = np.where(better, squares, lowest)
            full = np.zeros((n_grid, n_terms))
            full[:, subset] = solved
            best = np.where(better[:, None], full, best)
    return best


def chosen(objectives: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Which grid points to start from: the local minima by objective, then the lowest of the others."""
    grid = np.where(np.isfinite(objectives), objectives, np.inf).reshape(shape)
    # A border of inf gives points at the edge neighbours too.
    padded = np.pad(grid, 1, constant_values=np.inf)
    around = [
        padded[tuple(slice(1 + o, 1 + o + n) for o, n in zip(offset, shape, strict=True))]
        for offset in itertools.product((-1, 0, 1), repeat=len(shape))
        if any(offset)
    ]
    local = (grid <= np.minimum.reduce(around)).ravel() if around else np.ones(1, bool)
    # lexsort's last key counts first.
    order = np.lexsort((grid.ravel(), ~local))
    return np.asarray(order[:LARGEST_NUMBER_OF_STARTS])
