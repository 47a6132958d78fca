"""Batched damped Newton for the fit of a law: many starts or replicates at once.

The loss of a residual is Huber's (r^2/2 inside ``delta``, delta (|r| - delta/2) outside); least squares is
Huber with delta infinite. Few residuals lie inside a small delta, so the
Hessian is nearly singular there: it is damped with the IRLS majoriser ``sum w delta/max(|r|, delta) g g^T``,
and optimality is judged by the undamped decrement ``g^T M^-1 g`` with that majoriser M.

Huber's loss is linear beyond ``delta``: where as many points lie above the law as below it (two seeds per
rung with the law between them), the law can move without a change of the objective, and rounding alone
decides where a solver stops. Of all parameters with the least objective the choice is the one with the least
sum of squared residuals, which is one point whatever the processor, the order of rows and the starts.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.solver.objective import (
    Block,
    Problem,
    Rows,
    State,
    curvature,
    evaluate,
    majorised_system,
    newton_system,
)

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
SHARES = (1.0, 1e-2, 1e-4, 1e-6)
"""Weights of a second objective beside Huber's slope, each from the minimum before: the large ones cross a
flat stretch in few steps, and the last outweighs no slope of Huber's."""
FINER = (1e-8, 1e-10)
"""Weights that follow while the objective is above the least: a law with a floor is so little curved beside
the flat stretch that even a small weight leaves it."""
IsEqual = Callable[[FloatArray], BoolArray]
"""Whether theta [rows, k] has the least objective [rows]."""
STEPS = 8
EDGE = 1e-4
"""A residual this near to delta (as a fraction) lies at the end of a flat stretch, and says nothing of it."""
NO_CURVATURE = 1e-6
"""Least curvature, in units of the majoriser's, of an optimum that is a point."""
NARROW = 1e-7
"""A stretch of theta below which no figure that is shown differs."""


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
        parts = self.theta[which], self.objective[which], self.decrement[which], self.optimal[which]
        return Solution(*parts)

    def led_by(self, best: "Solution") -> "Solution":
        """These rows with the one of ``best`` in place of the first."""
        return Solution.joined([best, self.rows(np.arange(1, len(self.theta)))])

    @classmethod
    def joined(cls, parts: "list[Solution]") -> "Solution":
        """The rows of all ``parts``, in their order."""
        fields = ("theta", "objective", "decrement", "optimal")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))

    def best_first(self) -> "Solution":
        """The rows by objective; among equal ones a verified optimum goes first."""
        return self.rows(np.lexsort((~self.optimal, self.objective)))


def _blocks(problem: Problem, n_rows: int) -> list[Rows]:
    rows = int(np.clip(_BLOCK_ELEMENTS // problem.size[0], 1, 128))
    return [np.arange(first, min(first + rows, n_rows)) for first in range(0, n_rows, rows)]


def objective(problem: Problem, theta: FloatArray) -> FloatArray:
    """The weighted sum over points of the loss of the residuals [rows]; infinite where it overflows."""
    # Only the objective is kept: the states of a whole grid of starts would be rows x points again.
    blocks = _blocks(problem, len(theta))
    return np.concatenate([evaluate(Block.of(problem, rows), theta[rows]).objective for rows in blocks])


def _ridge(majoriser: FloatArray) -> FloatArray:
    """A hair of the identity, so that flat directions stay solvable [rows, k, k]."""
    k = majoriser.shape[-1]
    size = np.trace(majoriser, axis1=1, axis2=2) / k
    return np.asarray((1e-13 * size + 1e-300)[:, None, None] * np.eye(k))


def solved(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Solve each row's system; one that is singular to rounding gets its least-norm solution."""
    matrix = matrix + _ridge(matrix)
    try:
        solution = np.linalg.solve(matrix, vector[..., None])
    except np.linalg.LinAlgError:
        solution = np.linalg.pinv(matrix, hermitian=True) @ vector[..., None]
    return np.asarray(solution[..., 0], dtype=np.float64)


def decrement(block: Block, state: State) -> FloatArray:
    """The undamped decrement of each row."""
    gradient, majoriser = majorised_system(block, state)
    return _slope(gradient, solved(majoriser, gradient))


def _slope(gradient: FloatArray, step: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("bk,bk->b", gradient, step))


def newton(problem: Problem, starts: FloatArray, iterations: int = 400) -> Solution:
    """Minimise the objective from each row of ``starts`` [rows, k].

    Rows that reach the tolerance leave the batch. ``optimal`` of the result is checked from the gradient at
    the solution, never taken from the loop's own stopping.
    """
    theta = starts.astype(float).copy()
    for rows in _blocks(problem, len(theta)):
        theta[rows] = _minimised(Block.of(problem, rows), theta[rows], iterations)
    return measured(problem, theta)


def measured(problem: Problem, theta: FloatArray) -> Solution:
    """The objective at ``theta`` [rows, k], and whether it is an optimum."""
    total, slope = np.empty((2, len(theta)))
    for rows in _blocks(problem, len(theta)):
        block = Block.of(problem, rows)
        state = evaluate(block, theta[rows])
        total[rows], slope[rows] = state.objective, np.abs(decrement(block, state))
    optimal = slope <= DECREMENT_TOLERANCE * (total + rounding(problem.size[0]))
    return Solution(theta, total, slope, optimal)


def _minimised(block: Block, theta: FloatArray, iterations: int) -> FloatArray:
    """theta [rows, k] of a block after damped Newton steps."""
    state = evaluate(block, theta)
    result = theta.copy()
    left = np.arange(len(theta))
    damping = np.full(len(theta), FIRST_DAMPING)
    small = rounding(block.problem.size[0])
    for _ in range(iterations):
        gradient, matrix = newton_system(block, state, damping)
        # A step of 5 is a factor of 148 in a coefficient: beyond it the quadratic model says nothing.
        step = np.clip(-solved(matrix, gradient), -5.0, 5.0)
        slope = _slope(gradient, step)
        done = damping > LARGEST_DAMPING
        # The damped slope alone would stop falsely; where it is small the undamped decrement decides.
        near = np.abs(slope) <= TARGET * (state.objective + small)
        if near.any():
            done |= near & (np.abs(decrement(block, state)) <= TARGET * (state.objective + small))
        trial = evaluate(block, state.theta + step)
        # Armijo's condition with the usual 1e-4 (Nocedal & Wright, Numerical Optimization, section 3.1).
        accept = (slope < 0) & (trial.objective <= state.objective + 1e-4 * slope)
        state = trial if accept.all() else state.replaced(trial, accept, block.problem)
        damping = np.where(accept, np.maximum(damping * LESS_DAMPING, 1e-12), damping * MORE_DAMPING)
        if done.any():
            # A row that is done has taken this last step too, which costs nothing more.
            result[left[done]] = state.theta[done]
            left, damping, state = left[~done], damping[~done], state.kept(~done, block.problem)
            block.keep(~done)
            if not len(left):
                return result
    result[left] = state.theta
    return result


def eigenvectors(problem: Problem, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Eigenvalues and -vectors of the majoriser at ``theta`` [k], scaled to a unit diagonal, and the scale.

    Units do not count so.
    """
    block = Block.of(problem, np.arange(1))
    majoriser = majorised_system(block, evaluate(block, theta[None]))[1][0]
    scale = np.sqrt(np.maximum(np.diag(majoriser), 1e-300))
    return (*np.linalg.eigh(majoriser / np.outer(scale, scale)), scale)


def flat_directions(problem: Problem, theta: FloatArray) -> tuple[float, list[FloatArray]]:
    """The condition number of the majoriser at ``theta`` [k], and unit directions that it leaves flat."""
    values, vectors, _ = eigenvectors(problem, theta)
    condition = float(values[-1] / max(values[0], 1e-300))
    return condition, list(vectors[:, values < FLAT * values[-1]].T)


def equal_optima(problem: Problem, best: Solution) -> Solution:
    """The optima that equal the first row of ``best``: the one to choose, then those reached.

    No rows where the optimum is a point, or where the parameters differ by less than what is shown; of
    least squares it is never asked.
    """
    none = best.rows(np.arange(0))
    limit = best.objective[0] * (1 + DECREMENT_TOLERANCE) + rounding(problem.size[0])

    def is_equal(theta: FloatArray) -> BoolArray:
        return np.asarray(measured(problem, theta).objective <= limit)

    reached = best.theta[best.objective <= limit]
    # A start may stop a hair beyond the flat stretch, where there is curvature: then another lies on it.
    flat = [theta for theta in reached if _is_flat(problem, theta)]
    if not flat:
        return none
    chosen = _least_squares(problem, np.stack(flat), is_equal)
    candidates = np.concatenate([chosen, reached])
    equal = is_equal(candidates)
    candidates = candidates[equal]
    different = equal[0] and np.ptp(candidates, axis=0).max() > NARROW
    return measured(problem, candidates) if different else none


def _is_flat(problem: Problem, theta: FloatArray) -> bool:
    """Whether the objective has no curvature along a direction that changes predictions."""
    values, vectors, scale = eigenvectors(problem, theta)
    # A direction that changes no prediction (the logarithm of a floor of zero) is flat for another reason.
    seen = values > FLAT * values[-1]
    directions = vectors[:, seen] / np.sqrt(values[seen]) / scale[:, None]
    block = Block.of(problem, np.arange(1))
    second = curvature(block, evaluate(block, theta[None]), EDGE)[0]
    return bool(np.linalg.eigvalsh(directions.T @ second @ directions)[0] < NO_CURVATURE)


def _least_squares(problem: Problem, theta: FloatArray, is_equal: IsEqual) -> FloatArray:
    """The optimum [1, k] with the least sum of squared residuals, from the optima ``theta`` [rows, k].

    From several, since one whose floor is nearly zero cannot leave it: its slope by ln E is nearly zero too.
    """
    block = Block.of(problem, np.arange(len(theta)))
    residual = evaluate(block, theta).residual
    unit = problem.delta / float(np.max(np.abs(residual)))
    for share in (*SHARES, *FINER):
        if share in FINER and is_equal(theta).all():
            break
        theta = _minimum(replace(problem, ridge=share * unit), theta)
    squares = np.sum(block.weights * evaluate(block, theta).residual ** 2, axis=1)
    return theta[[np.argmin(np.where(is_equal(theta), squares, np.inf))]]


def _minimum(problem: Problem, theta: FloatArray) -> FloatArray:
    """The minimum [rows, k] near ``theta``, to the precision of the gradient, not of the objective."""
    theta = newton(problem, theta).theta
    block = Block.of(problem, np.arange(len(theta)))
    state = evaluate(block, theta)
    best, lowest = state.theta, decrement(block, state)
    # A small share changes the objective by less than rounding long before its minimum, so that no line
    # search can judge these steps; one that follows a curved stretch is better only after the next.
    for _ in range(STEPS):
        gradient, matrix = newton_system(block, state, np.zeros(len(theta)))
        state = evaluate(block, state.theta - solved(matrix, gradient))
        size = decrement(block, state)
        best = np.where((size < lowest)[:, None], state.theta, best)
        lowest = np.fmin(lowest, size)
    return best
