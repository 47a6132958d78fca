"""Batched damped Newton for the fit of a law: many starts or replicates at once.

The loss of a residual is Huber's (r^2/2 inside ``delta``, delta (|r| - delta/2) outside); least squares is
Huber with delta infinite. Few residuals lie inside a small delta, so the
Hessian is nearly singular there: it is damped with the IRLS majoriser ``sum w delta/max(|r|, delta) g g^T``,
and optimality is judged by the undamped decrement ``g^T M^-1 g`` with that majoriser M.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.solver.objective import Problem, Rows, State, evaluate, majorised_system, newton_system

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


@dataclass(frozen=True)
class Solution:
    """theta [rows, k]; objective and decrement [rows]; ``optimal`` [rows] is verified at theta."""

    theta: FloatArray
    objective: FloatArray
    decrement: FloatArray
    optimal: BoolArray

    def rows(self, which: npt.NDArray[Any]) -> "Solution":
        """The rows ``which``, by position or mask."""
        return Solution(self.theta[which], self.objective[which], self.decrement[which], self.optimal[which])

    @classmethod
    def joined(cls, parts: "list[Solution]") -> "Solution":
        """The rows of all ``parts``, in their order."""
        fields = ("theta", "objective", "decrement", "optimal")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))

    def best_first(self) -> "Solution":
        """The rows by objective; among equal ones a verified optimum goes first."""
        return self.rows(np.lexsort((~self.optimal, self.objective)))


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
    gradient, majoriser = majorised_system(problem, state)
    return np.asarray(np.einsum("bk,bk->b", gradient, solved(majoriser, gradient)))


def newton(problem: Problem, starts: FloatArray, iterations: int = 400) -> Solution:
    """Minimise the objective from each row of ``starts`` [rows, k].

    Rows that reach the tolerance leave the batch. ``optimal`` of the result is checked from the gradient at
    the solution, never taken from the loop's own stopping.
    """
    theta = starts.astype(float).copy()
    for rows in _blocks(problem, len(theta)):
        theta[rows] = _minimised(problem.rows(rows), theta[rows], iterations)
    return measured(problem, theta)


def measured(problem: Problem, theta: FloatArray) -> Solution:
    """The objective at ``theta`` [rows, k], and whether it is an optimum."""
    total, slope = np.empty((2, len(theta)))
    for rows in _blocks(problem, len(theta)):
        here = problem.rows(rows)
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
        gradient, matrix = newton_system(problem, state, damping)
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
    majoriser = majorised_system(problem, evaluate(problem, theta[None]))[1][0]
    scale = np.sqrt(np.maximum(np.diag(majoriser), 1e-300))
    values, vectors = np.linalg.eigh(majoriser / np.outer(scale, scale))
    condition = float(values[-1] / max(values[0], 1e-300))
    return condition, list(vectors[:, values < FLAT * values[-1]].T)
