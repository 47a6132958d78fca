"""Objective, gradient and curvature of a fit, for many parameter vectors at once.

What is fitted is a formula whose logarithm is compared with that of y. Its value and derivatives are arrays
[rows, points], so no loop runs over replicates or points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.formula.jets import Jet

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Pull:
    """``strength/2 (quantity(theta) - target)^2``, added to the objective to walk along a profile.

    ``quantity`` maps theta [rows, k] to values [rows] and gradients [rows, k]; target, strength [rows].
    """

    quantity: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    target: FloatArray
    strength: FloatArray

    def rows(self, which: Rows | BoolArray) -> "Pull":
        """The rows ``which`` alone."""
        return Pull(self.quantity, self.target[which], self.strength[which])


@dataclass(frozen=True)
class Problem:
    """What is fitted: ``law`` gives f [rows, points] at theta [rows, k].

    ``columns`` of theta have a parameter, and which points it is of: all (None), or those of one arm
    [points]. y [1 or rows, points]; weights [1 or rows, points] count copies. ``log`` says whether residuals
    are of ln y or of y. ``delta`` is Huber's: infinite is least squares; ``ridge/2 r^2`` is added to the loss
    of each residual.
    """

    law: Callable[[FloatArray], Jet]
    columns: Sequence[tuple[str, FloatArray | None]]
    y: FloatArray
    weights: FloatArray
    delta: float
    log: bool = True
    ridge: float = 0.0
    pull: Pull | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Points and parameters."""
        return self.y.shape[1], len(self.columns)

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
                spread = np.broadcast_to(values if points is None else values * points, weight.shape)
                part = np.einsum("bn,bn->b", weight, spread)
                matrix[:, i, j] += part
                if i != j:
                    matrix[:, j, i] += part


@dataclass
class Block:
    """A few rows of a problem with their data; y is on the scale of the residual (its logarithm if log)."""

    problem: Problem
    y: FloatArray
    weights: FloatArray
    pull: Pull | None

    @classmethod
    def of(cls, problem: Problem, rows: Rows) -> "Block":
        """The rows ``rows`` of ``problem``."""
        block = cls(problem, problem.y, problem.weights, problem.pull)
        block.keep(rows)
        block.y = np.log(block.y) if problem.log else block.y
        return block

    def keep(self, rows: Rows | BoolArray) -> None:
        """Drop the other rows."""
        self.y = self.y if len(self.y) == 1 else self.y[rows]
        self.weights = self.weights if len(self.weights) == 1 else self.weights[rows]
        self.pull = self.pull and self.pull.rows(rows)


@dataclass
class State:
    """What is known at theta [rows, k]: f, ln f and residual [rows, points], and the objective [rows]."""

    theta: FloatArray
    f: Jet
    log_f: FloatArray
    residual: FloatArray
    objective: FloatArray

    def replaced(self, other: "State", rows: BoolArray, problem: Problem) -> "State":
        """This state with ``rows`` from ``other``."""
        for name in ("theta", "log_f", "residual", "objective"):
            getattr(self, name)[rows] = getattr(other, name)[rows]
        self.f = problem.law(self.theta)
        return self

    def kept(self, rows: BoolArray, problem: Problem) -> "State":
        """The rows ``rows`` alone."""
        theta = self.theta[rows]
        return State(theta, problem.law(theta), self.log_f[rows], self.residual[rows], self.objective[rows])


def huber(residual: FloatArray, delta: float) -> FloatArray:
    """Huber's loss of each residual; least squares at infinite ``delta``."""
    if np.isinf(delta):
        return 0.5 * residual**2
    size = np.abs(residual)
    inside = np.minimum(size, delta)
    # Both branches at once: r^2/2 up to delta, delta (|r| - delta/2) beyond.
    return inside * (size - 0.5 * inside)


def evaluate(block: Block, theta: FloatArray) -> State:
    """The state at ``theta`` [rows, k]; an objective that overflows is infinite."""
    problem = block.problem
    with np.errstate(all="ignore"):
        f = problem.law(theta)
        log_f = np.array(np.broadcast_to(np.log(f.value), (len(theta), problem.size[0])))
        residual = (log_f if problem.log else np.exp(log_f)) - block.y
        loss = huber(residual, problem.delta)
        if problem.ridge:
            loss = loss + 0.5 * problem.ridge * residual**2
        value = np.einsum("bn,bn->b", np.broadcast_to(block.weights, loss.shape), loss)
        if block.pull is not None:
            distance = block.pull.quantity(theta)[0] - block.pull.target
            value = value + 0.5 * block.pull.strength * distance**2
    return State(theta.copy(), f, log_f, residual, np.where(np.isfinite(value), value, np.inf))


@dataclass(frozen=True)
class _Weights:
    """What weighs each point [rows, points] in the sums over d ln f and d2 ln f."""

    first: FloatArray
    """Gradient, and d2 ln f."""
    outer: FloatArray
    """The product of d ln f with itself, in the Hessian."""
    major: FloatArray
    """The same in the IRLS majoriser."""


def _weights(block: Block, state: State, edge: float = 0.0) -> _Weights:
    """``edge``: residuals within this fraction of delta count as beyond it in the Hessian."""
    residual, delta, ridge = state.residual, block.problem.delta, block.problem.ridge
    if np.isinf(delta):
        first = block.weights * residual
        outer = major = np.broadcast_to(block.weights, residual.shape)
    else:
        size = np.abs(residual)
        first = block.weights * np.clip(residual, -delta, delta)
        outer = block.weights * (size <= delta * (1 - edge))
        major = block.weights * (delta / np.maximum(size, delta))
        if ridge:
            first = first + block.weights * ridge * residual
            outer, major = outer + block.weights * ridge, major + block.weights * ridge
    if not block.problem.log:
        f = np.exp(state.log_f)
        first = first * f
        # d2 f = f (d2 ln f + d ln f d ln f^T): the residual weighs the outer product too.
        outer, major = outer * f * f + first, major * f * f
    return _Weights(first, outer, major)


def newton_system(block: Block, state: State, damping: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradient [rows, k], and Hessian plus ``damping`` [rows] times the majoriser [rows, k, k]."""
    weights = _weights(block, state)
    damped = weights.outer + damping[:, None] * weights.major
    return _pulled(block, state, *block.problem.system(state, weights.first, damped, weights.first))


def curvature(block: Block, state: State, edge: float) -> FloatArray:
    """Hessian [rows, k, k] in which residuals within ``edge`` of delta (a fraction) count as beyond it."""
    weights = _weights(block, state, edge)
    return block.problem.system(state, weights.first, weights.outer, weights.first)[1]


def majorised_system(block: Block, state: State) -> tuple[FloatArray, FloatArray]:
    """Gradient [rows, k] and the undamped IRLS majoriser [rows, k, k]."""
    weights = _weights(block, state)
    return _pulled(block, state, *block.problem.system(state, weights.first, weights.major, None))


def _pulled(
    block: Block, state: State, gradient: FloatArray, matrix: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """With the derivatives of the pull added (its quantity taken as linear)."""
    if block.pull is None:
        return gradient, matrix
    value, slope = block.pull.quantity(state.theta)
    strength = block.pull.strength
    matrix = matrix + strength[:, None, None] * slope[:, :, None] * slope[:, None, :]
    return gradient + (strength * (value - block.pull.target))[:, None] * slope, matrix
