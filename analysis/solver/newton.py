"""Batched damped Newton for the fit of a law: many starts or replicates at once.

What is fitted is a formula whose logarithm is compared with that of y. Its value and derivatives are arrays
[rows, points], so no loop runs over replicates or points.

The loss of a residual is Huber's (r^2/2 inside ``delta``, delta (|r| - delta/2) outside); least squares is
Huber with delta infinite. Few residuals lie inside a small delta, so the
Hessian is nearly singular there: it is damped with the IRLS majoriser ``sum w delta/max(|r|, delta) g g^T``,
and optimality is judged by the undamped decrement ``g^T M^-1 g`` with that majoriser M.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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

    def system(self, state: "State", damping: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Gradient [rows, k], and Hessian plus ``damping`` [rows] times the IRLS majoriser [rows, k, k].

        Without ``damping`` the majoriser alone. They are sums over the points, with d for derivatives of
        ln f by theta.
        """
        n, k = self.size
        first, outer, major = _weights(self, state)
        slopes = np.empty((len(state.theta), k, n))
        with np.errstate(all="ignore"):
            inverse = 1.0 / state.f.value
            for number, (name, points) in enumerate(self.columns):
                slope = state.f.first.get(name, 0.0)
                np.multiply(slope if points is None else slope * points, inverse, out=slopes[:, number])
            gradient = (slopes @ first[..., None])[..., 0]
            # d2 ln f = d2 f / f - (d ln f)(d ln f)^T.
            weight = major if damping is None else outer + damping[:, None] * major - first
            matrix = (slopes * weight[:, None]) @ slopes.swapaxes(1, 2)
            if damping is not None:
                self._add_bends(state.f, first * inverse, matrix)
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


DECREMENT_TOLERANCE = 1e-9
"""A solution is optimal when its decrement is below this fraction of its objective."""
TARGET = 1e-12
"""The fraction at which a row leaves the batch: steps are quadratic by then, and cost little."""
FIRST_DAMPING, LESS_DAMPING, MORE_DAMPING, LARGEST_DAMPING = 1.0, 0.1, 8.0, 1e14
FLAT = 1e-10
"""Smallest over largest eigenvalue of the scaled curvature below which a direction is flat."""
_ROUNDING = 1e-17
"""Objective a point below which residuals are rounding errors (data that lie on the law exactly)."""
_BLOCK_ELEMENTS = 10_000
"""Rows x points of one block, so that its arrays stay in the cache."""


def rounding(n_points: int) -> float:
    """The objective that rounding errors alone can leave; added where a decrement is judged against one."""
    return _ROUNDING * n_points


class Solution(NamedTuple):
    """theta [rows, k]; objective and decrement [rows]; ``optimal`` [rows] is verified at theta."""

    theta: FloatArray
    objective: FloatArray
    decrement: FloatArray
    optimal: BoolArray

    def rows(self, which: npt.NDArray[Any]) -> "Solution":
        """The rows ``which``, by position or mask."""
        return Solution(*(part[which] for part in self))


def _blocks(problem: Problem, n_rows: int) -> list[Rows]:
    rows = max(1, _BLOCK_ELEMENTS // problem.size[0])
    return [np.arange(first, min(first + rows, n_rows)) for first in range(0, n_rows, rows)]


def objective(problem: Problem, theta: FloatArray) -> FloatArray:
    """The weighted sum over points of the loss of the residuals [rows]; infinite where it overflows."""
    # Only the objective is kept: the states of a whole grid of starts would be rows x points again.
    blocks = _blocks(problem, len(theta))
    return np.concatenate([evaluate(problem.rows(rows), theta[rows]).objective for rows in blocks])


def solved(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Solve each row's system; one that is singular to rounding gets its least-norm solution."""
    # A hair of the identity, so that flat directions stay solvable.
    size = np.trace(matrix, axis1=1, axis2=2) / matrix.shape[-1]
    matrix = matrix + (1e-13 * size + 1e-300)[:, None, None] * np.eye(matrix.shape[-1])
    try:
        solution = np.linalg.solve(matrix, vector[..., None])
    except np.linalg.LinAlgError:
        solution = np.linalg.pinv(matrix, hermitian=True) @ vector[..., None]
    return np.asarray(solution[..., 0], dtype=np.float64)


def decrement(problem: Problem, state: State) -> FloatArray:
    """The undamped decrement of each row."""
    gradient, majoriser = problem.system(state)
    return np.asarray(np.einsum("bk,bk->b", gradient, solved(majoriser, gradient)))


def newton(problem: Problem, starts: FloatArray, iterations: int = 400) -> Solution:
    """Minimise the objective from each row of ``starts`` [rows, k].

    Rows that reach the tolerance leave the batch. ``optimal`` of the result is checked from the gradient at
    the solution, never taken from the loop's own stopping.
    """
    theta = starts.astype(float).copy()
    total, slope = np.empty((2, len(theta)))
    for rows in _blocks(problem, len(theta)):
        here = problem.rows(rows)
        theta[rows] = _minimised(here, theta[rows], iterations)
        state = evaluate(here, theta[rows])
        total[rows], slope[rows] = state.objective, np.abs(decrement(here, state))
    optimal = slope <= DECREMENT_TOLERANCE * (total + rounding(problem.size[0]))
    return Solution(theta, total, slope, optimal)


def _minimised(problem: Problem, theta: FloatArray, iterations: int) -> FloatArray:
    """theta [rows, k] of a few rows after damped Newton steps."""
    state = evaluate(problem, theta)
    result = theta.copy()
    left = np.arange(len(theta))
    damping = np.full(len(theta), FIRST_DAMPING)
    small = rounding(problem.size[0])
    for _ in range(iterations):
        gradient, matrix = problem.system(state, damping)
        # A step of 5 is a factor of 148 in a coefficient: beyond it the quadratic model says nothing.
        step = np.clip(-solved(matrix, gradient), -5.0, 5.0)
        slope = np.einsum("bk,bk->b", gradient, step)
        done = damping > LARGEST_DAMPING
        # The damped slope alone would stop falsely; where it is small the undamped decrement decides.
        near = np.abs(slope) <= TARGET * (state.objective + small)
        if near.any():
            done |= near & (np.abs(decrement(problem, state)) <= TARGET * (state.objective + small))
        trial = evaluate(problem, state.theta + step)
        # Armijo's condition with the usual 1e-4 (Nocedal & Wright, Numerical Optimization, section 3.1).
        accept = (slope < 0) & (trial.objective <= state.objective + 1e-4 * slope)
        if not accept.all():
            trial = evaluate(problem, np.where(accept[:, None], trial.theta, state.theta))
        state = trial
        damping = np.where(accept, np.maximum(damping * LESS_DAMPING, 1e-12), damping * MORE_DAMPING)
        if done.any():
            # A row that is done has taken this last step too, which costs nothing more.
            result[left[done]] = state.theta[done]
            left, damping, problem = left[~done], damping[~done], problem.rows(~done)
            if not len(left):
                return result
            state = evaluate(problem, state.theta[~done])
    result[left] = state.theta
    return result


def flat_directions(problem: Problem, theta: FloatArray) -> tuple[float, list[FloatArray]]:
    """The condition number of the majoriser at ``theta`` [k], and unit directions that it leaves flat.

    The curvature is scaled to a unit diagonal first, so that units do not count.
    """
    majoriser = problem.system(evaluate(problem, theta[None]))[1][0]
    scale = np.sqrt(np.maximum(np.diag(majoriser), 1e-300))
    values, vectors = np.linalg.eigh(majoriser / np.outer(scale, scale))
    condition = float(values[-1] / max(values[0], 1e-300))
    return condition, list(vectors[:, values < FLAT * values[-1]].T)
