"""The points of one fit: between the parameters of a law and the solver's ``theta``.

theta is ln p of a parameter p that is above zero, a logistic coordinate between two bounds, and p in units of
its size otherwise. The coefficient of a power term has its logarithm at the middle of the variable's range,
so that it hardly depends on the exponent.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formula.formula import Range, names_in, written
from scalevec.analysis.formula.jets import Jet, add, constant, evaluate, exp, minus, parameter, sigmoid, times
from scalevec.analysis.laws import Law
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.newton import Problem, Rows

NEAR_BOUND = 1e-3
"""How near to a bound a search begins, as a share of the bound or of what lies between two."""
LEAST, MOST = 1e-304, 1e304
"""Between what a coefficient is shown."""
_COLLINEAR = 0.02
"""Smallest over largest singular value of centred ln N, ln D below which exponents are not told apart."""
_SINGULAR = 1e-7
"""The same of the slopes of a law by its parameters, below which its parameters are not told apart."""


@dataclass(frozen=True)
class Points:
    """The points of a fit: ``variables`` name -> [points].

    In a joint fit ``groups`` [points] numbers the arm of each point, and the law's ``per_arm`` have a value
    for each arm. ``sizes`` are the units of theta.
    """

    law: Law
    variables: Mapping[str, FloatArray]
    groups: npt.NDArray[np.intp] | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)

    @property
    def per_arm(self) -> tuple[str, ...]:
        """The parameters of which each arm has its own."""
        return () if self.groups is None else self.law.per_arm

    @cached_property
    def free(self) -> tuple[tuple[str, int], ...]:
        """(name, arm) of each column of theta; arm 0 stands for all where the parameter is shared."""
        n_arms = 1 if self.groups is None else int(self.groups.max()) + 1
        arms = {name: range(n_arms if name in self.per_arm else 1) for name in self.law.parameters}
        return tuple((name, arm) for name, of_name in arms.items() for arm in of_name)

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

    @cached_property
    def constants(self) -> dict[str, Jet]:
        """What no fit changes: the variables, and the parameters that are not fitted."""
        return {name: constant(value) for name, value in {**self.law.fixed, **self.variables}.items()}

    def problem(self, y: FloatArray, weights: FloatArray | None, options: AnalysisOptions) -> Problem:
        """The solver's problem for ``y`` and copies of each point, both [points] or [rows, points]."""
        groups = self.groups
        of_arm = [
            (name, None if groups is None or name not in self.per_arm else (groups == arm).astype(float))
            for name, arm in self.free
        ]
        log, delta = options.residual == "log", np.inf if options.with_loss().loss == "l2" else options.delta
        values, copies = np.atleast_2d(np.log(y) if log else y), np.ones(self.n_points)
        copies = np.atleast_2d(copies if weights is None else weights)
        problem = Problem(self.at, of_arm, values, copies, delta, log)
        first, kinds = self._kinds
        if np.isfinite(delta) or len(first) == self.n_points:
            return problem
        return problem.merged(lambda theta: self.at(theta, first), first, kinds)

    @cached_property
    def _kinds(self) -> tuple[Rows, Rows]:
        """The first point of each cell, and which of these each point repeats."""
        return np.unique(self.cells, return_index=True, return_inverse=True)[1:]

    def at(self, theta: FloatArray, which: Rows | None = None) -> Jet:
        """The law at the points ``which``, by default all, for ``theta`` [rows, parameters]."""
        chosen = slice(None) if which is None else which

        def of_points(name: str) -> Jet:
            columns = np.array([self.free.index((name, 0))])
            if self.groups is not None and name in self.per_arm:
                columns = columns + self.groups[chosen]
            return parameter(name, theta[:, columns])

        variables = {name: constant(values[chosen]) for name, values in self.variables.items()}
        known = {**self.constants, **variables, **self._parameters(of_points)}
        return evaluate(self.law.written.tree, known)

    def predicted(self, theta: FloatArray) -> FloatArray:
        """The law's values [rows, points] for ``theta`` [rows, parameters]."""
        with np.errstate(all="ignore"):
            return np.array(np.broadcast_to(self.at(theta).value, (len(theta), self.n_points)))

    def parameters(self, theta: FloatArray, arm: int = 0) -> dict[str, FloatArray]:
        """Name -> values [rows] of the parameters of an arm, from theta [rows, parameters]."""
        rows = np.atleast_2d(theta)

        def of_arm(name: str) -> Jet:
            return constant(rows[:, self.free.index((name, arm if name in self.per_arm else 0))])

        with np.errstate(over="ignore"):
            values = {name: np.asarray(jet.value) for name, jet in self._parameters(of_arm).items()}
        above = {name for name, (low, _) in self.law.ranges.items() if low == 0}
        return {n: np.clip(values[n], LEAST, MOST) if n in above else values[n] for n in self.law.parameters}

    def theta(self, values: FloatArray) -> FloatArray:
        """theta [rows, parameters] of the parameters' ``values`` [rows, parameters], alike in all arms."""
        by_name = dict(zip(self.law.parameters, values.T, strict=True))
        known = {**self.constants, **{name: constant(of_name) for name, of_name in by_name.items()}}
        columns = []
        with np.errstate(all="ignore"):
            for name, _ in self.free:
                size, ends = self.sizes.get(name, 1.0), self.law.ranges.get(name)
                columns.append(_theta_of(by_name[name], size, ends) - self._shift(name, known).value)
        return np.stack(columns, axis=1)

    def _parameters(self, theta_of: Callable[[str], Jet]) -> dict[str, Jet]:
        """Each parameter from the theta of its name."""
        known = dict(self.constants)
        # An exponent comes before the coefficient that is centred by it.
        for name in sorted(self.law.parameters, key=lambda name: name in self._centred):
            theta = add(theta_of(name), self._shift(name, known))
            known[name] = _bounded(theta, self.sizes.get(name, 1.0), self.law.ranges.get(name))
        return {name: known[name] for name in self.law.parameters}

    @cached_property
    def _centred(self) -> dict[str, tuple[float, str]]:
        """Of each coefficient above zero the middle of its variable, signed, and the exponent of that."""
        result = {}
        for term in self.law.written.terms:
            if term.variable and self.law.ranges.get(term.coefficient) == (0.0, np.inf):
                with np.errstate(all="ignore"):
                    middle = float(np.mean(np.log(self.variables[term.variable])))
                result[term.coefficient] = (middle * (-1 if term.rising else 1), term.exponent)
        return result

    def _shift(self, name: str, known: Mapping[str, Jet]) -> Jet:
        """How far ln of a coefficient lies above its theta, which is that at the middle of the variable."""
        middle, exponent = self._centred.get(name, (0.0, ""))
        return times(constant(middle), known[exponent]) if exponent else constant(middle)


def _bounded(theta: Jet, size: float, ends: Range | None) -> Jet:
    """The parameter by its ``theta``; ``size`` is its unit where it has no bounds."""
    if ends is None:
        return times(constant(size), theta)
    low, high = ends
    if high == np.inf:
        return add(constant(low), exp(theta))
    if low == -np.inf:
        return add(constant(high), minus(exp(theta)))
    return add(constant(low), times(constant(high - low), sigmoid(theta)))


def points_of(law: Law, variables: Mapping[str, FloatArray]) -> Points:
    """Return the points of one fit of ``law``.

    Raises :class:`DataError` where the formula divides by zero at a point, or leaves what a function allows.
    """
    points = Points(law, variables)
    for node in reversed(list(ast.walk(law.written.tree))):
        part = node
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            # A power of parameters needs the logarithm of its base.
            part = ast.Call(ast.Name("log"), [node.left], [])
        if not isinstance(part, ast.BinOp | ast.Call) or {*names_in(part)} & {*law.parameters}:
            continue
        with np.errstate(all="ignore"):
            bad = ~np.isfinite(np.atleast_1d(evaluate(part, points.constants).value))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            at = ", ".join(f"{name} = {values[row]:g}" for name, values in variables.items())
            raise law.written.refuse(
                f"{written(part)} is no finite number at the data (point {row + 1}: {at})"
            )
    return points


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
    logs = {name: np.log(points.variables[name]) for name in law.variables}
    distinct = np.unique(np.round(np.stack([*logs.values()]), 9), axis=1).shape[1]
    both = {"N", "D"} <= logs.keys()
    for name, values in logs.items():
        free = law.touched_by(name)
        if np.ptp(values) < 1e-9 and free and ((both and name in ("N", "D")) or _is_singular(points)):
            shown = x if name == "x" else name
            raise DataError(
                f"arm {arm!r}: all points have one value of {shown}, which leaves {', '.join(free)} free"
            )
    if distinct < len(law.parameters):
        raise DataError(
            f"arm {arm!r}: {distinct} distinct points for {len(law.parameters)} parameters of {law.name}"
        )
    if both and "C" not in logs:
        sizes = np.stack([logs["N"], logs["D"]])
        singular = np.linalg.svd(sizes - sizes.mean(axis=1, keepdims=True), compute_uv=False)
        if singular[-1] < _COLLINEAR * singular[0]:
            raise DataError(
                f"arm {arm!r}: N and D are proportional, which leaves their exponents free; several numbers "
                "of tokens per parameter are needed, or a law in one variable"
            )


def _is_singular(points: Points) -> bool:
    """Whether parameters can move together without a change of the law at any of the points."""
    # At parameters of no meaning: what is free there is free everywhere, but for coincidences.
    names = {name: constant(value) for name, value in points.law.fixed.items()}
    names |= {name: constant(column / column.mean()) for name, column in points.variables.items()}
    names |= {name: parameter(name, 0.31 + 0.17 * k) for k, name in enumerate(points.law.parameters)}
    with np.errstate(all="ignore"):
        slopes = evaluate(points.law.written.tree, names).first
    matrix = np.stack([np.broadcast_to(slopes[name], points.n_points) for name in points.law.parameters])
    if not np.isfinite(matrix).all():
        return False
    size = np.linalg.norm(matrix, axis=1)
    singular = np.linalg.svd(matrix / np.where(size > 0, size, 1.0)[:, None], compute_uv=False)
    return bool(len(singular) < len(matrix) or singular[-1] < _SINGULAR * singular[0])
