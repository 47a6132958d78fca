"""The points of one fit: between the parameters of a law and the solver's ``theta``.

theta is ln p of a parameter p that is above zero, a logistic coordinate between two bounds, and p in units of
its size otherwise. The coefficient of a power term has its logarithm at the middle of the variable's range,
so that it hardly depends on the exponent. What depends on the points (these units, the middles, fixed values)
are names, so that the derivatives of a law are made once.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import FloatArray, mostly_repeated
from scalevec.analysis.errors import DataError
from scalevec.analysis.formula.formula import Builder, Range
from scalevec.analysis.formula.steps import FormulaSteps
from scalevec.analysis.laws import Law, computed
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.newton import objective
from scalevec.analysis.solver.objective import Derivatives, Problem

NEAR_BOUND = 1e-3
"""How near to a bound a search begins, as a share of the bound or of what lies between two."""
MOST_STEPS = 1_500
"""Steps that value and derivatives may take: more than any law, few enough for a fit within a second."""
_COLLINEAR = 0.02
"""Smallest over largest singular value of centred ln N, ln D below which exponents are not told apart."""
_SINGULAR = 1e-7
"""The same of the slopes of a law by its parameters, below which its parameters are not told apart."""


@dataclass(frozen=True)
class Points:
    """The points of a fit: ``variables`` name -> [points]; ``weights`` [points], equal without.

    In a joint fit ``groups`` [points] numbers the arm of each point, and the parameters ``per_arm`` have a
    value for each arm. ``start_values`` [starts, parameters] begin the fit, the best of them gives ``sizes``,
    the units of theta.
    """

    law: Law
    variables: Mapping[str, FloatArray]
    weights: FloatArray | None = None
    groups: npt.NDArray[np.intp] | None = None
    per_arm: tuple[str, ...] = ()
    start_values: FloatArray | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)

    @property
    def n_arms(self) -> int:
        """Arms of a joint fit; one of a fit alone."""
        return 1 if self.groups is None else int(self.groups.max()) + 1

    @property
    def free(self) -> tuple[tuple[str, int], ...]:
        """(name, arm) of each column of theta; arm 0 stands for all where the parameter is shared."""
        return self.by_theta.names

    @cached_property
    def by_theta(self) -> Derivatives:
        """The law by theta."""
        return derivatives(self.law, self.per_arm, self.n_arms)

    @property
    def n_points(self) -> int:
        """Number of points."""
        return len(next(iter(self.variables.values())))

    @cached_property
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
    def middles(self) -> dict[str, float]:
        """Mean of the logarithm of each variable over the points."""
        with np.errstate(all="ignore"):
            return {name: float(np.mean(np.log(self.variables[name]))) for name in self.law.variables}

    @cached_property
    def _known(self) -> dict[int, Any]:
        """The steps by theta that no parameter changes."""
        names: dict[str, Any] = {**self.variables, **self.law.constants}
        names |= {f"middle {name}": np.float64(value) for name, value in self.middles.items()}
        names |= {f"size {name}": np.float64(self._size(name)) for name in self.law.parameters}
        if self.groups is not None:
            names |= {f"in arm {arm}": (self.groups == arm).astype(float) for arm in range(self.n_arms)}
        by_theta, known = self.by_theta, dict[int, Any]()
        moving = set(by_theta.places)
        for index in by_theta.of_all:
            operation, first, second = by_theta.steps.steps[index]
            if operation not in ("number", "name") and {first, second} & moving:
                moving.add(index)
            elif index not in moving:
                computed(by_theta.steps, [index], known, names)
        return known

    def _size(self, name: str) -> float:
        return self.sizes.get(name, 1.0)

    def problem(self, y: FloatArray, weights: FloatArray | None, options: AnalysisOptions) -> Problem:
        """The solver's problem for ``y`` [points] or [rows, points]; weights default to one."""
        values, weighed = np.atleast_2d(y), self.weighed(weights)
        log = options.residual == "log"
        return Problem(self.by_theta, self._known, values, weighed, solver_delta(options), log)

    def weighed(self, copies: FloatArray | None) -> FloatArray:
        """The weights [1 or rows, points] of ``copies`` of each point: those of the points times them."""
        if self.weights is None:
            return np.ones((1, self.n_points)) if copies is None else np.atleast_2d(copies)
        # A mean of one keeps the objective in the units of an objective without weights.
        weights = self.weights / self.weights.mean()
        return np.atleast_2d(weights if copies is None else weights * copies)

    def parameters(self, theta: FloatArray, arm: int = 0) -> dict[str, FloatArray]:
        """Name -> values [rows] of the parameters of an arm, from theta [rows, parameters]."""
        rows, values = np.atleast_2d(theta), dict[str, FloatArray]()
        for name in self._exponents_first():
            column = rows[:, self.free.index((name, arm if name in self.per_arm else 0))]
            values[name] = self._of_theta(name, column + self._shift(name, values))
        return {name: values[name] for name in self.law.parameters}

    def theta(self, values: FloatArray) -> FloatArray:
        """theta [rows, parameters] of the parameters' ``values`` [rows, parameters], alike in all arms."""
        by_name, ranges = dict(zip(self.law.parameters, values.T, strict=True)), self.law.ranges
        with np.errstate(all="ignore"):
            columns = {
                name: _theta_of(of_name, self._size(name), ranges.get(name)) - self._shift(name, by_name)
                for name, of_name in by_name.items()
            }
        return np.stack([columns[name] for name, _ in self.free], axis=1)

    def _exponents_first(self) -> list[str]:
        coefficients = [term.coefficient for term in self.law.written.terms]
        return sorted(self.law.parameters, key=lambda name: name in coefficients)

    def _shift(self, name: str, values: Mapping[str, FloatArray]) -> FloatArray | float:
        """How far ln of a coefficient lies above its theta, which is that at the middle of the variable."""
        term = next((t for t in self.law.written.terms if t.coefficient == name and t.variable), None)
        if term is None or name not in self.law.positive or name in self.law.written.bounds:
            return 0.0
        known: dict[str, Any] = {**self.law.fixed, **values}
        exponent = known[term.exponent] if term.exponent else 1.0
        return (-1.0 if term.rising else 1.0) * self.middles[term.variable] * exponent

    def _of_theta(self, name: str, theta: FloatArray) -> FloatArray:
        steps, known, ends = FormulaSteps(), dict[int, Any](), self.law.ranges.get(name)
        value = bounded(steps, steps.name("theta"), "size", ends)
        # exp overflows float64 above 709.
        inside = np.clip(theta, -700, 700) if ends else theta
        computed(steps, steps.needed(value), known, {"theta": inside, "size": np.float64(self._size(name))})
        return np.asarray(known[value])

    def starts(self, problem: Problem) -> FloatArray:
        """The best few starts [starts, parameters]."""
        if self.start_values is None:
            raise DataError("points are scaled before they are fitted")
        theta = self.theta(self.start_values)
        return theta[np.isfinite(objective(problem, theta))]


def derivatives(law: Law, per_arm: Sequence[str] = (), n_arms: int = 1) -> Derivatives:
    """The derivatives of ``law``; in a joint fit ``per_arm`` have a value for each of ``n_arms``.

    Raises :class:`DataError` where they take more than :data:`MOST_STEPS`.
    """
    given = tuple((name, 0.0) for name in law.fixed)  # their values are names, as all that may differ
    return _derivatives(replace(law, name="", given=given), tuple(per_arm), n_arms)


@functools.lru_cache(maxsize=128)
def _derivatives(law: Law, per_arm: tuple[str, ...], n_arms: int) -> Derivatives:
    steps, parameters = FormulaSteps(), law.parameters
    names = [(n, arm) for n in parameters for arm in range(n_arms if n in per_arm else 1)]
    thetas = {column: steps.name(f"theta {column[0]} {column[1]}") for column in names}
    values: dict[str, int] = {}
    middles = {term.coefficient: term for term in law.written.terms if term.coefficient in law.positive}
    # An exponent comes before the coefficient that is centred by it.
    for parameter in sorted(parameters, key=lambda n: n in middles):
        theta = thetas[parameter, 0]
        if parameter in per_arm:
            arms = range(n_arms)
            parts = [steps.times(steps.name(f"in arm {arm}"), thetas[parameter, arm]) for arm in arms]
            theta = functools.reduce(steps.add, parts)
        term = middles.get(parameter)
        if term and term.variable and parameter not in law.written.bounds:
            exponent = steps.number(1.0)
            if term.exponent:
                exponent = values.get(term.exponent, steps.name(term.exponent))
            shift = steps.times(steps.name(f"middle {term.variable}"), exponent)
            theta = steps.add(theta, steps.minus(shift) if term.rising else shift)
        values[parameter] = bounded(steps, theta, f"size {parameter}", law.ranges.get(parameter))
    value = Builder(law.written.expression, steps, values).step(law.written.expression.tree)
    first, second = [], {}
    for i, (name_i, arm_i) in enumerate(names):
        first.append(steps.derivative(value, f"theta {name_i} {arm_i}"))
        for j, (name_j, arm_j) in enumerate(names[: i + 1]):
            # A point belongs to one arm: what two arms have of their own never meets.
            apart = name_i in per_arm and name_j in per_arm and arm_i != arm_j
            index = steps.number(0.0) if apart else steps.derivative(first[i], f"theta {name_j} {arm_j}")
            if not steps.is_zero(index):
                second[i, j] = index
            if len(steps.steps) > MOST_STEPS * n_arms:
                raise law.written.refuse(0, "it is too complex: its derivatives take too many steps")
    return Derivatives(steps, tuple(names), tuple(thetas.values()), value, tuple(first), second)


def bounded(steps: FormulaSteps, theta: int, size: str, ends: Range | None) -> int:
    """The parameter by its ``theta``; ``size`` names its unit where it has no bounds."""
    if ends is None:
        return steps.times(steps.name(size), theta)
    low, high = ends
    if high == float("inf"):
        return steps.add(steps.number(low), steps.exp(theta))
    if low == -float("inf"):
        return steps.add(steps.number(high), steps.minus(steps.exp(theta)))
    return steps.add(steps.number(low), steps.times(steps.number(high - low), steps.call("sigmoid", theta)))


def points_of(law: Law, variables: Mapping[str, FloatArray], weights: FloatArray | None = None) -> Points:
    """Return the points of one fit of ``law``; ``weights`` [points].

    Raises :class:`DataError` where the formula divides by zero at a point, or leaves what a function allows.
    """
    steps, known = FormulaSteps(), dict[int, Any]()
    builder = Builder(law.written.expression, steps, {})
    root, moving = builder.step(law.written.expression.tree), set[int]()
    for index in steps.needed(root):
        operation, first, second = steps.steps[index]
        is_name = operation == "name"
        if (is_name and first in law.parameters) or (operation != "number" and {first, second} & moving):
            moving.add(index)
            continue
        computed(steps, [index], known, {**variables, **law.constants})
        bad = ~np.isfinite(np.atleast_1d(known[index]))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            at = ", ".join(f"{name} = {values[row]:g}" for name, values in variables.items())
            position = builder.marks.get(index, 0)
            raise law.written.refuse(position, f"no finite number at the data (point {row + 1}: {at})")
    return Points(law, variables, weights)


def solver_delta(options: AnalysisOptions) -> float:
    """Return Huber's delta as the solver takes it: infinite is least squares, zero L1."""
    return {"huber": options.delta, "l1": 0.0, "l2": np.inf}[options.with_loss().loss]


def _theta_of(values: FloatArray, size: float, ends: Range | None) -> FloatArray:
    """theta of a parameter's ``values``; those beyond its bounds begin a little inside."""
    if ends is None:
        return values / size
    low, high = ends
    if high == np.inf or low == -np.inf:
        inside = values - low if high == np.inf else high - values
        least = NEAR_BOUND * abs(low if high == np.inf else high)
        return np.log(np.maximum(inside, least) if least else inside)
    share = np.clip((values - low) / (high - low), NEAR_BOUND, 1 - NEAR_BOUND)
    return np.asarray(np.log(share / (1 - share)))


def require_identifiable(points: Points, arm: str, x: str) -> None:
    """Refuse points from which no optimiser can tell the parameters: the number would mean nothing.

    ``x`` is the name of the law's variable in one variable, N, D or C, for the message.

    Raises :class:`DataError` where there are fewer distinct points than parameters, where a variable that
    leaves parameters free has one value only, or where N and D are proportional.
    """
    law = points.law
    logs = np.stack([np.log(points.variables[name]) for name in law.variables])
    distinct = np.unique(np.round(logs, 9), axis=1).shape[1]
    for name, values in zip(law.variables, logs, strict=True):
        free, both = law.touched_by(name), {"N", "D"} <= set(law.variables)
        if np.ptp(values) < 1e-9 and free and ((both and name in ("N", "D")) or _is_singular(points)):
            shown = x if name == "x" else name
            raise DataError(
                f"arm {arm!r}: all points have one value of {shown}, which leaves {', '.join(free)} free"
            )
    if distinct < len(law.parameters):
        raise DataError(
            f"arm {arm!r}: {distinct} distinct points for {len(law.parameters)} parameters of {law.name}"
        )
    if {"N", "D"} <= set(law.variables) and "C" not in law.variables and _are_proportional(logs, law):
        raise DataError(
            f"arm {arm!r}: N and D are proportional, which leaves their exponents free; several numbers of "
            "tokens per parameter are needed, or a law in one variable"
        )


def _are_proportional(logs: FloatArray, law: Law) -> bool:
    """Whether N and D, of the variables' ``logs`` [variables, points], move together."""
    sizes = np.stack([logs[law.variables.index(name)] for name in ("N", "D")])
    singular = np.linalg.svd(sizes - sizes.mean(axis=1, keepdims=True), compute_uv=False)
    return bool(singular[-1] < _COLLINEAR * singular[0])


def _is_singular(points: Points) -> bool:
    """Whether parameters can move together without a change of the law at any of the points."""
    law = points.law
    (steps, root), known = law.steps, dict[int, Any]()
    slopes = [steps.derivative(root, name) for name in law.parameters]
    # At parameters of no meaning: what is free there is free everywhere, but for coincidences.
    values = {name: np.float64(0.31 + 0.17 * number) for number, name in enumerate(law.parameters)}
    scaled = {name: column / column.mean() for name, column in points.variables.items()}
    computed(steps, steps.needed(root, *slopes), known, {**law.constants, **values, **scaled})
    matrix = np.stack([np.broadcast_to(known[index], points.n_points) for index in slopes])
    if not np.isfinite(matrix).all():
        return False
    size = np.linalg.norm(matrix, axis=1)
    singular = np.linalg.svd(matrix / np.where(size > 0, size, 1.0)[:, None], compute_uv=False)
    return bool(len(singular) < len(matrix) or singular[-1] < _SINGULAR * singular[0])
