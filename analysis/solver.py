"""Batched damped Newton for laws that are sums of power terms: many starts or resamples at once.

With ``z_t = design_t @ theta + offset_t`` the prediction is ``ln f = logsumexp_t z_t``. The loss of a
residual is Huber's (r^2/2 inside ``delta``, delta (|r| - delta/2) outside); least squares is Huber with
delta infinite, L1 its limit at small delta. Few residuals lie inside a small delta, so the Hessian is
nearly singular there: it is damped with the IRLS majoriser ``sum w delta/max(|r|, delta) g g^T``, and
convergence is judged by the undamped decrement ``g^T M^-1 g`` with that majoriser M.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.data import BoolArray, FloatArray

DECREMENT_TOLERANCE = 1e-9
"""A solution is optimal when its decrement is below this fraction of its objective."""
LARGEST_DAMPING = 1e14
L1_DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
_ROUNDING = 1e-17
"""Objective a point below which residuals are rounding errors (data that lie on the law exactly)."""


def rounding(n_points: int) -> float:
    """The objective that rounding errors alone can leave; added where a decrement is judged against one."""
    return _ROUNDING * n_points


@dataclass(frozen=True)
class Problem:
    """What is fitted. design [terms, points, parameters], offset [terms, points], y [1 or rows, points].

    ``log`` says whether residuals are of ln loss or of the loss; weights [1 or rows, points] count copies.
    """

    design: FloatArray
    offset: FloatArray
    y: FloatArray
    weights: FloatArray
    delta: float
    log: bool = True

    def rows(self, keep: npt.NDArray[np.intp]) -> "Problem":
        """The problem of the rows ``keep`` alone."""
        y = self.y if len(self.y) == 1 else self.y[keep]
        weights = self.weights if len(self.weights) == 1 else self.weights[keep]
        return Problem(self.design, self.offset, y, weights, self.delta, self.log)


@dataclass(frozen=True)
class Solution:
    """theta [rows, parameters]; objective and decrement [rows]; ``optimal`` [rows] is verified at theta."""

    theta: FloatArray
    objective: FloatArray
    decrement: FloatArray
    optimal: BoolArray


@dataclass(frozen=True)
class _Local:
    """Objective [rows], gradient [rows, k], Hessian and majoriser [rows, k, k] at one theta."""

    objective: FloatArray
    gradient: FloatArray
    hessian: FloatArray
    majoriser: FloatArray


def _prediction(problem: Problem, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """ln f [rows, points] and the share of each term in it [rows, terms, points]."""
    z = np.einsum("tnk,bk->btn", problem.design, theta) + problem.offset
    top = z.max(axis=1, keepdims=True)
    shares = np.exp(z - top)
    total = shares.sum(axis=1, keepdims=True)
    return (top + np.log(total))[:, 0], shares / total


def _residual(problem: Problem, log_f: FloatArray) -> FloatArray:
    return log_f - np.log(problem.y) if problem.log else np.exp(log_f) - problem.y


def _huber(residual: FloatArray, delta: float) -> FloatArray:
    size = np.abs(residual)
    if np.isinf(delta):
        return 0.5 * size**2
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))


def objective(problem: Problem, theta: FloatArray) -> FloatArray:
    """The weighted sum over points of the loss of the residuals [rows]; infinite where it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        residual = _residual(problem, _prediction(problem, theta)[0])
        value = np.sum(problem.weights * _huber(residual, problem.delta), axis=1)
    return np.where(np.isfinite(value), value, np.inf)


def _local(problem: Problem, theta: FloatArray) -> _Local:
    log_f, shares = _prediction(problem, theta)
    residual = _residual(problem, log_f)
    delta, weights = problem.delta, problem.weights
    psi = weights * np.clip(residual, -delta, delta)
    inside = weights * (np.abs(residual) <= delta)
    majorised = weights * (1.0 if np.isinf(delta) else delta / np.maximum(np.abs(residual), delta))
    scale = np.ones_like(log_f) if problem.log else np.exp(log_f)
    g = np.einsum("btn,tnk->bnk", shares, problem.design)
    curvature = np.einsum(
        "btn,tnj,tnk->bjk", (psi * scale)[:, None] * shares, problem.design, problem.design, optimize=True
    )
    if problem.log:
        curvature = curvature - _outer(psi, g)
    jacobian = scale[..., None] * g
    return _Local(
        np.sum(weights * _huber(residual, delta), axis=1),
        np.einsum("bn,bnk->bk", psi, jacobian),
        _outer(inside, jacobian) + curvature,
        _outer(majorised, jacobian),
    )


def _outer(weights: FloatArray, g: FloatArray) -> FloatArray:
    """sum over points of weight g g^T [rows, k, k]."""
    return np.asarray(np.matmul(np.swapaxes(g * weights[..., None], 1, 2), g))


def _ridge(majoriser: FloatArray) -> FloatArray:
    """A hair of the identity, so that flat directions stay solvable [rows, k, k]."""
    k = majoriser.shape[-1]
    size = np.trace(majoriser, axis1=1, axis2=2) / k
    return np.asarray((1e-13 * size + 1e-300)[:, None, None] * np.eye(k))


def _solve(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Solve each row's system; one that is singular to rounding gets its least-norm solution."""
    try:
        solved = np.linalg.solve(matrix, vector[..., None])
    except np.linalg.LinAlgError:
        solved = np.linalg.pinv(matrix, hermitian=True) @ vector[..., None]
    return np.asarray(solved[..., 0], dtype=np.float64)


def _decrement(local: _Local) -> FloatArray:
    step = _solve(local.majoriser + _ridge(local.majoriser), local.gradient)
    return np.asarray(np.abs(np.sum(local.gradient * step, axis=1)))


def _is_optimal(problem: Problem, local: _Local, decrement: FloatArray) -> BoolArray:
    return decrement <= DECREMENT_TOLERANCE * (local.objective + rounding(problem.design.shape[1]))


def newton(problem: Problem, starts: FloatArray, iterations: int = 400) -> Solution:
    """Minimise the objective from each row of ``starts`` [rows, parameters].

    Rows that reach the tolerance leave the batch. ``optimal`` of the result is checked from the gradient,
    never taken from the loop's own stopping.
    """
    theta = starts.astype(float).copy()
    damping = np.ones(len(theta))
    active = np.arange(len(theta))
    for _ in range(iterations):
        part = problem.rows(active)
        local = _local(part, theta[active])
        done = _is_optimal(part, local, _decrement(local)) | (damping[active] > LARGEST_DAMPING)
        theta[active], damping[active] = _step(part, theta[active], damping[active], local, done)
        active = active[~done]
        if not len(active):
            break
    local = _local(problem, theta)
    decrement = _decrement(local)
    return Solution(theta, local.objective, decrement, _is_optimal(problem, local, decrement))


def _step(
    problem: Problem, theta: FloatArray, damping: FloatArray, local: _Local, done: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """One damped step of each row that is not done; damping grows where the objective would rise."""
    damped = local.hessian + damping[:, None, None] * local.majoriser + _ridge(local.majoriser)
    step = -_solve(damped, local.gradient)
    slope = np.sum(step * local.gradient, axis=1)
    candidate = theta + np.clip(step, -5.0, 5.0)
    lower = objective(problem, candidate) <= local.objective + 1e-4 * np.minimum(slope, 0.0)
    accept = lower & (slope < 0) & ~done
    theta = np.where(accept[:, None], candidate, theta)
    return theta, np.where(accept, np.maximum(damping * 0.2, 1e-12), np.where(done, damping, damping * 8.0))


def least_absolute(problem: Problem, starts: FloatArray) -> Solution:
    """The L1 fit: Huber at ever smaller delta, each warm from the last; the objective is sum w |r|."""
    theta = starts
    for delta in L1_DELTAS:
        stage = Problem(problem.design, problem.offset, problem.y, problem.weights, delta, problem.log)
        solution = newton(stage, theta)
        theta = solution.theta
    residual = _residual(problem, _prediction(problem, theta)[0])
    total = np.sum(problem.weights * np.abs(residual), axis=1)
    return Solution(theta, total, solution.decrement / L1_DELTAS[-1], solution.optimal)


def solve(problem: Problem, starts: FloatArray) -> Solution:
    """:func:`newton`, or :func:`least_absolute` where ``problem.delta`` is zero."""
    return least_absolute(problem, starts) if problem.delta == 0 else newton(problem, starts)
