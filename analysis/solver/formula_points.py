"""The points of a fit of a formula: the solver's problem on them, and a search for where it starts.

The solver asks for ln f with gradient and Hessian. Here they follow from the formula's steps; what depends on
columns alone is computed once, what derivatives share once a call.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.laws import Law
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.design import SMALLEST_SHARE, DesignMatrix, non_negative, solver_delta
from scalevec.analysis.solver.formula_law import (
    Derivatives,
    FormulaLaw,
    computed,
    derivatives,
    is_zero,
    of_theta,
    theta_of,
)
from scalevec.analysis.solver.newton import objective
from scalevec.analysis.solver.objective import Problem, State

SAMPLES = 1_024
"""Values of the parameters that are not linear, of which the best begin a fit."""
STARTS = 12
WIDEST, NEAR = 50.0, 5.0
"""A parameter without a start is sought from 1/WIDEST to WIDEST, one with a start within a factor of NEAR."""


def points_of(
    law: Law, variables: Mapping[str, FloatArray], weights: FloatArray | None = None
) -> DesignMatrix:
    """Return the points of one fit of ``law``, a sum of power terms or a formula; ``weights`` [points].

    Raises :class:`DataError` where a formula divides by zero at a point, or leaves what a function allows.
    """
    if not isinstance(law, FormulaLaw):
        return DesignMatrix(law, variables, weights=weights)
    steps, known = law.written.steps, dict[int, Any]()
    for index in steps.needed(law.written.root):
        below = steps.needed(index)
        if any(steps.is_a(i, "name") and steps.steps[i][1] in law.parameters for i in below):
            continue
        computed(steps, below, known, {**variables, **law.constants})
        bad = ~np.isfinite(np.atleast_1d(known[index]))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            at = ", ".join(f"{name} = {values[row]:g}" for name, values in variables.items())
            position = law.written.marks.get(index, 0)
            raise law.written.refuse(position, f"no finite number at the data (point {row + 1}: {at})")
    return FormulaDesign(law, variables, weights=weights)


@dataclass(frozen=True)
class FormulaProblem(Problem):
    """The solver's problem whose ln f is that of a formula; ``known`` are its steps of columns alone."""

    law: FormulaLaw = field(kw_only=True)
    by_theta: Derivatives = field(kw_only=True)
    known: Mapping[int, Any] = field(kw_only=True)

    def _values(self, places: Sequence[int], theta: FloatArray) -> dict[int, Any]:
        known = dict(self.known)
        columns = dict(zip(self.law.parameters, theta.T[:, :, None], strict=True))
        computed(self.by_theta.steps, places, known, columns)
        return known

    def _full(self, values: Any, n_rows: int) -> FloatArray:
        return np.broadcast_to(values, (n_rows, self.size[0]))

    def prediction(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """No shares [0, rows, points], and ln f [rows, points]; nan where f is not above zero."""
        value = self._values(self.by_theta.of_value, theta)[self.by_theta.value]
        with np.errstate(all="ignore"):
            log_f = np.log(self._full(value, len(theta)))
        return np.empty((0, *log_f.shape)), log_f

    def _slopes(self, state: State, known: dict[int, Any]) -> FloatArray:
        """d ln f [rows, k, points]."""
        slopes = np.empty((len(state.theta), self.size[1], self.size[0]))
        value = known[self.by_theta.value]
        for column, index in enumerate(self.by_theta.first):
            np.divide(known[index], value, out=slopes[:, column])
        return slopes

    def gradient(self, state: State, weight: FloatArray) -> FloatArray:
        """sum of ``weight`` x d ln f over the points [rows, k]."""
        known = self._values(self._places_of_first, state.theta)
        with np.errstate(all="ignore"):
            return np.asarray((self._slopes(state, known) @ weight[..., None])[..., 0])

    @cached_property
    def _places_of_first(self) -> list[int]:
        return self.by_theta.steps.needed(self.by_theta.value, *self.by_theta.first)

    def second(self, state: State, outer: FloatArray, second: FloatArray) -> FloatArray:
        """sum over the points of ``outer`` x (d ln f)(d ln f)^T + ``second`` x d2 ln f [rows, k, k]."""
        known = self._values(self.by_theta.of_all, state.theta)
        with np.errstate(all="ignore"):
            return self._second(state, known, outer, second)

    def _second(
        self, state: State, known: dict[int, Any], outer: FloatArray, second: FloatArray
    ) -> FloatArray:
        slopes = self._slopes(state, known)
        # d2 ln f = d2 f / f - (d ln f)(d ln f)^T.
        matrix = (slopes * (outer - second)[:, None]) @ slopes.swapaxes(1, 2)
        if second.any():
            linear = second / known[self.by_theta.value]
            for (i, j), index in self.by_theta.second.items():
                part = np.einsum("bn,bn->b", linear, self._full(known[index], len(linear)))
                matrix[:, i, j] += part
                if i != j:
                    matrix[:, j, i] += part
        # A row that overflows has a gradient that is no number, and so no step: any matrix will do.
        matrix[~np.isfinite(matrix).all(axis=(1, 2))] = np.eye(self.size[1])
        return np.asarray(matrix)


@dataclass(frozen=True)
class FormulaDesign(DesignMatrix):
    """The points of a fit of a formula.

    ``start_values`` [starts, parameters] of its parameters begin the fit; the best give ``scale``, the units
    of theta.
    """

    law: FormulaLaw
    start_values: FloatArray | None = None
    scale: Mapping[str, float] = field(default_factory=dict)

    @property
    def _scales(self) -> dict[str, float]:
        return {name: self.scale.get(name, 1.0) for name in self.law.parameters}

    @cached_property
    def _by_theta(self) -> Derivatives:
        return derivatives(self.law, self._scales)

    @cached_property
    def _known(self) -> dict[int, Any]:
        """The steps of theta's formula that no parameter changes."""
        steps, moving, known = self._by_theta.steps, set[int](), dict[int, Any]()
        for index in self._by_theta.of_all:
            operation, first, second = steps.steps[index]
            of = {first, second} if operation not in ("number", "name") else set()
            if of & moving or (operation == "name" and first in self.law.parameters):
                moving.add(index)
            else:
                computed(steps, [index], known, self.variables)
        return known

    def problem(self, y: FloatArray, weights: FloatArray | None, options: AnalysisOptions) -> FormulaProblem:
        """The solver's problem for ``y`` [points] or [rows, points]; weights default to one."""
        size = (0, self.n_points, len(self.law.parameters))
        return FormulaProblem(
            *(np.empty(size), np.empty(size[:2]), np.atleast_2d(y), self.weighed(weights)),
            solver_delta(options),
            options.residual == "log",
            law=self.law,
            by_theta=self._by_theta,
            known=self._known,
        )

    def parameters(self, theta: FloatArray, arm: int = 0) -> dict[str, FloatArray]:  # noqa: ARG002
        """Name -> values [rows] of the parameters, from theta [rows, parameters]."""
        columns = zip(self.law.parameters, np.atleast_2d(theta).T, strict=True)
        ranges, scales = self.law.ranges, self._scales
        return {name: of_theta(values, scales[name], ranges.get(name)) for name, values in columns}

    def theta(self, values: FloatArray) -> FloatArray:
        """theta [rows, parameters] of the parameters' ``values`` [rows, parameters]."""
        with np.errstate(all="ignore"):
            columns = [
                theta_of(of_name, self._scales[name], self.law.ranges.get(name))
                for name, of_name in zip(self.law.parameters, values.T, strict=True)
            ]
        return np.stack(columns, axis=1)

    def scaled(self, y: FloatArray, options: AnalysisOptions) -> "FormulaDesign":
        """The same points with starts for ``y`` [points] and theta in units of the best of them."""
        values = np.concatenate([_searched(self, y), self._of_base(y, options)])
        at = objective(self.problem(y, None, options), self.theta(values))
        best = values[np.argsort(at, kind="stable")[:STARTS]]
        if not np.isfinite(at).any():
            raise self.law.written.refuse(
                0, "it is above zero and finite at all points for no parameters that were tried; give 'start'"
            )
        sizes = np.abs(best[0])
        scale = {n: float(s) if s > 0 else 1.0 for n, s in zip(self.law.parameters, sizes, strict=True)}
        return replace(self, start_values=best, scale=scale)

    def _of_base(self, y: FloatArray, options: AnalysisOptions) -> FloatArray:
        """Where the law of ours begins of which this is a form [starts, parameters]."""
        if self.law.base is None or not self.law.base.terms:
            return np.empty((0, len(self.law.parameters)))
        points = DesignMatrix(self.law.base, self.variables, weights=self.weights)
        parameters = points.parameters(points.starts(points.problem(y, None, options)))
        return np.stack([parameters[name] for name in self.law.parameters], axis=1)

    def starts(self, problem: Problem) -> FloatArray:
        """The best few starts [starts, parameters]."""
        if self.start_values is None:
            raise DataError("points of a formula are scaled before they are fitted")
        theta = self.theta(self.start_values)
        return theta[np.isfinite(objective(problem, theta))]


def _linear(law: FormulaLaw) -> list[str]:
    """Parameters in which the formula is linear, all of them together."""
    steps, root, names = law.written.steps, law.written.root, list[str]()
    for name in law.parameters:
        slope = steps.derivative(root, name)
        if all(is_zero(steps, steps.derivative(slope, other)) for other in (*names, name)):
            names.append(name)
    return names


def _searched(points: FormulaDesign, y: FloatArray) -> FloatArray:
    """Values of the parameters [samples, parameters]: those that are linear are the best for the others."""
    law = points.law
    linear = [name for name in _linear(law) if name not in law.written.start]
    sought = [name for name in law.parameters if name not in linear]
    values = dict(zip(sought, _spread(law, sought), strict=True))
    rows = SAMPLES if sought else 1
    columns = {name: np.zeros((rows, 1)) for name in linear} | {n: v[:, None] for n, v in values.items()}
    steps, root, known = law.written.steps, law.written.root, dict[int, Any]()
    slopes = [steps.derivative(root, name) for name in linear]
    computed(steps, steps.needed(root, *slopes), known, {**law.constants, **columns, **points.variables})
    full = (rows, points.n_points)
    with np.errstate(all="ignore"):
        rest = 1.0 - np.broadcast_to(known[root], full) / y
        parts = [np.broadcast_to(known[index], full) / y for index in slopes]
        values |= dict(zip(linear, _projected(parts, rest, law, linear), strict=True)) if linear else {}
    return np.stack([np.broadcast_to(values[name], rows) for name in law.parameters], axis=1)


def _spread(law: FormulaLaw, names: Sequence[str]) -> list[FloatArray]:
    """Values [samples] of each parameter, evenly spread by the additive recurrence of Roberts (2018)."""
    ratio, result = 2.0, list[Any]()
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (len(names) + 1))
    for number, name in enumerate(names, 1):
        share: Any = (0.5 + np.arange(SAMPLES) * ratio**-number) % 1.0
        start = law.written.start.get(name, 0.0)
        low, high = law.ranges.get(name, (-np.inf, np.inf))
        if start:
            # The first sample lies in the middle: the start itself.
            result.append(start * np.float64(NEAR) ** (2 * share - 1))
        elif high - low < np.inf:
            result.append(low * (high / low) ** share if low > 0 else low + (high - low) * share)
        elif name in law.written.bounds:
            end, side = (low, 1.0) if high == np.inf else (high, -1.0)
            result.append(end + side * (abs(end) or 1.0) * WIDEST ** (2 * share - 1))
        elif name in law.positive:
            result.append(WIDEST ** (2 * share - 1))
        else:
            both = 4 * share - 2
            result.append(np.sign(both) * WIDEST ** (2 * (np.abs(both) % 1) - 1))
    return [np.asarray(values) for values in result]


def _projected(
    parts: Sequence[FloatArray], rest: FloatArray, law: FormulaLaw, names: Sequence[str]
) -> FloatArray:
    """The coefficients [names, samples] with which ``parts`` [samples, points] are nearest to ``rest``."""
    sizes = np.stack([np.sqrt(np.mean(part**2, axis=1)) for part in parts], axis=1)
    usable = np.all(np.isfinite(sizes) & (sizes > 0), axis=1) & np.all(np.isfinite(rest), axis=1)
    columns = np.stack(parts, axis=1)[usable] / sizes[usable, :, None]
    gram = columns @ columns.swapaxes(1, 2)
    right = (columns @ rest[usable, :, None])[..., 0]
    if all(name in law.positive for name in names):
        solved = non_negative(gram, right)
    else:
        ridge = 1e-12 * np.trace(gram, axis1=1, axis2=2)[:, None, None] * np.eye(len(names))
        solved = np.linalg.solve(gram + ridge, right[..., None])[..., 0]
    low = np.array([SMALLEST_SHARE if name in law.positive else -np.inf for name in names])
    result = np.full(sizes.shape, np.nan)
    result[usable] = np.maximum(solved, low) / sizes[usable]
    return result.T
