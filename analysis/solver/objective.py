"""Objective, gradient and curvature of a fit, for many parameter vectors at once.

What is fitted is a formula whose logarithm is compared with that of y. Its value and derivatives are arrays
[rows, points], so no loop runs over replicates or points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.formula.jets import Jet

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Problem:
    """What is fitted: ``law`` gives f [rows, points] at theta [rows, k].

    ``columns`` of theta have a parameter, and which points it is of: all (None), or those of one arm
    [points]. y [1 or rows, points]; weights [1 or rows, points] count copies. ``log`` says whether residuals
    are of ln y or of y, and y is its logarithm then. ``delta`` is Huber's: infinite is least squares.
    """

    law: Callable[[FloatArray], Jet]
    columns: Sequence[tuple[str, FloatArray | None]]
    y: FloatArray
    weights: FloatArray
    delta: float
    log: bool = True
    apart: FloatArray = field(default_factory=lambda: np.zeros(1))
    """What no theta changes of the objective [1 or rows]."""

    @property
    def size(self) -> tuple[int, int]:
        """Points and parameters."""
        return self.y.shape[1], len(self.columns)

    def rows(self, which: Rows | BoolArray) -> "Problem":
        """The rows ``which`` alone."""
        parts = (self.y, self.weights, self.apart)
        y, weights, apart = (part if len(part) == 1 else part[which] for part in parts)
        return replace(self, y=y, weights=weights, apart=apart)

    def merged(self, law: Callable[[FloatArray], Jet], first: Rows, kinds: Rows) -> "Problem":
        """The same least squares by the mean of each kind of point, for a ``law`` of the ``first`` of each.

        ``kinds`` is the kind of each point. Squares around a law are those around the means, and what lies
        between points of a kind.
        """
        order = np.argsort(kinds, kind="stable")
        starts = np.searchsorted(kinds[order], np.arange(len(first)))
        weights, sums = (
            np.add.reduceat(values[:, order], starts, axis=1)
            for values in (self.weights, self.weights * self.y)
        )
        means = np.divide(sums, weights, out=np.zeros_like(sums), where=weights > 0)
        apart = 0.5 * (self.weights * (self.y - means[:, kinds]) ** 2).sum(axis=1)
        columns = [(name, None if points is None else points[first]) for name, points in self.columns]
        return replace(self, law=law, columns=columns, y=means, weights=weights, apart=apart)

    def system(
        self, state: "State", first: FloatArray, outer: FloatArray, second: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Sums over the points, with d for derivatives of ln f by theta.

        ``first`` x d [rows, k]; ``outer`` x d d^T + ``second`` x d2 [rows, k, k], where None is none.
        """
        n, k = self.size
        slopes = np.empty((len(state.theta), k, n))
        with np.errstate(all="ignore"):
            inverse = 1.0 / state.f.value
            for number, (name, points) in enumerate(self.columns):
                slope = state.f.first.get(name, 0.0)
                np.multiply(slope if points is None else slope * points, inverse, out=slopes[:, number])
            gradient = (slopes @ first[..., None])[..., 0]
            # d2 ln f = d2 f / f - (d ln f)(d ln f)^T.
            weight = outer if second is None else outer - second
            matrix = (slopes * weight[:, None]) @ slopes.swapaxes(1, 2)
            if second is not None:
                self._add_bends(state.f, second * inverse, matrix)
        # A row that overflows has a gradient that is no number, and so no step: any matrix will do.
        matrix[~np.isfinite(matrix).all(axis=(1, 2))] = np.eye(k)
        return gradient, matrix

    def _add_bends(self, f: Jet, weight: FloatArray, matrix: FloatArray) -> None:
        for i, (name_i, of_i) in enumerate(self.columns):
            for j, (name_j, of_j) in enumerate(self.columns[: i + 1]):
                values = f.second.get((min(name_i, name_j), max(name_i, name_j)))
                # A point belongs to one arm: what two arms have of their own never meets.
                if values is None or (of_i is not None and of_j is not None and not np.any(of_i * of_j)):
                    continue
                points = of_j if of_i is None else of_i
                part = (weight * (values if points is None else values * points)).sum(axis=1)
                matrix[:, i, j] += part
                if i != j:
                    matrix[:, j, i] += part


@dataclass(frozen=True)
class State:
    """What is known at theta [rows, k]: f and residual [rows, points], and the objective [rows]."""

    theta: FloatArray
    f: Jet
    residual: FloatArray
    objective: FloatArray


def evaluate(problem: Problem, theta: FloatArray) -> State:
    """The state at ``theta`` [rows, k]; an objective that overflows is infinite."""
    with np.errstate(all="ignore"):
        f = problem.law(theta)
        # Of what is not above zero there is no logarithm.
        log_f = np.broadcast_to(np.log(f.value), (len(theta), problem.size[0]))
        residual = (log_f if problem.log else np.exp(log_f)) - problem.y
        size = np.abs(residual)
        inside = np.minimum(size, problem.delta)
        # Huber's loss at once: r^2/2 up to delta, delta (|r| - delta/2) beyond.
        loss = inside * (size - 0.5 * inside)
        value = (problem.weights * loss).sum(axis=1) + problem.apart
    return State(theta, f, residual, np.where(np.isfinite(value), value, np.inf))


def _weights(problem: Problem, state: State) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What weighs each point [rows, points] in the sums over d ln f and d2 ln f.

    The first is of the gradient and of d2 ln f, the others of d ln f times itself, in the Hessian and in the
    IRLS majoriser.
    """
    residual, delta = state.residual, problem.delta
    if np.isinf(delta):
        first = problem.weights * residual
        outer = major = np.broadcast_to(problem.weights, residual.shape)
    else:
        size = np.abs(residual)
        first = problem.weights * np.clip(residual, -delta, delta)
        outer = problem.weights * (size <= delta)
        major = problem.weights * (delta / np.maximum(size, delta))
    if not problem.log:
        f = state.f.value
        first = first * f
        # d2 f = f (d2 ln f + d ln f d ln f^T): the residual weighs the outer product too.
        outer, major = outer * f * f + first, major * f * f
    return first, outer, major


def newton_system(problem: Problem, state: State, damping: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradient [rows, k], and Hessian plus ``damping`` [rows] times the majoriser [rows, k, k]."""
    first, outer, major = _weights(problem, state)
    return problem.system(state, first, outer + damping[:, None] * major, first)


def majorised_system(problem: Problem, state: State) -> tuple[FloatArray, FloatArray]:
    """Gradient [rows, k] and the undamped IRLS majoriser [rows, k, k]."""
    first, _, major = _weights(problem, state)
    return problem.system(state, first, major, None)
