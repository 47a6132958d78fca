"""Optima that are not unique, and the one that is chosen of them.

Huber's loss is linear beyond ``delta``: where as many points lie above the law as below it (two seeds per
rung with the law between them), the law can move without a change of the objective, and rounding alone
decides where a solver stops. Of all parameters with the least objective the choice is the one with the least
sum of squared residuals, which is one point whatever the processor, the order of rows and the starts.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.solver.newton import (
    DECREMENT_TOLERANCE,
    FLAT,
    L1_DELTAS,
    Solution,
    decrement,
    measured,
    newton,
    rounding,
    solved,
)
from scalevec.analysis.solver.objective import (
    Block,
    Problem,
    Pull,
    curvature,
    evaluate,
    majorised_system,
    newton_system,
)

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


def equal_optima(problem: Problem, best: Solution) -> Solution:
    """The optima that equal the first row of ``best``: the one to choose, then those reached and farthest.

    No rows where the optimum is a point, or where the parameters differ by less than what is shown; of
    least squares it is never asked.
    """
    none = best.rows(np.arange(0))
    # L1 is Huber at its smallest delta.
    smooth = replace(problem, delta=problem.delta or L1_DELTAS[-1])
    limit = best.objective[0] * (1 + DECREMENT_TOLERANCE) + rounding(problem.size[0])

    def is_equal(theta: FloatArray) -> BoolArray:
        return np.asarray(measured(problem, theta).objective <= limit)

    reached = best.theta[best.objective <= limit]
    # A start may stop a hair beyond the flat stretch, where there is curvature: then another lies on it.
    flat = [theta for theta in reached if _is_flat(smooth, theta)]
    if not flat:
        return none
    chosen = _least_squares(smooth, np.stack(flat), is_equal)
    ends = [_ends(smooth, chosen, column, is_equal) for column in range(chosen.shape[1])]
    candidates = np.concatenate([chosen, reached, *ends])
    equal = is_equal(candidates)
    candidates = candidates[equal]
    different = equal[0] and np.ptp(candidates, axis=0).max() > NARROW
    return measured(problem, candidates) if different else none


def _is_flat(problem: Problem, theta: FloatArray) -> bool:
    """Whether the objective has no curvature along a direction that changes predictions."""
    block = Block.of(problem, np.arange(1))
    state = evaluate(block, theta[None])
    majoriser = majorised_system(block, state)[1][0]
    scale = np.sqrt(np.maximum(np.diag(majoriser), 1e-300))
    values, vectors = np.linalg.eigh(majoriser / np.outer(scale, scale))
    # A direction that changes no prediction (the logarithm of a floor of zero) is flat for another reason.
    seen = values > FLAT * values[-1]
    directions = vectors[:, seen] / np.sqrt(values[seen]) / scale[:, None]
    second = curvature(block, state, EDGE)[0]
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


def _ends(problem: Problem, theta: FloatArray, column: int, is_equal: IsEqual) -> FloatArray:
    """The optima [2, k] with the least and the most of one column of theta, from the optimum [1, k]."""
    gradient = np.eye(theta.shape[1])[column]
    target = theta[0, column] + np.array([-1.0, 1.0])
    unit = np.full(2, problem.delta * float(problem.weights.sum()))
    ends = np.repeat(theta, 2, axis=0)

    def quantity(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        return rows[:, column], np.broadcast_to(gradient, rows.shape)

    for share in (*SHARES[1:], *FINER):
        if share in FINER and is_equal(ends).all():
            break
        ends = _minimum(replace(problem, pull=Pull(quantity, target, share * unit)), ends)
    return ends


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
