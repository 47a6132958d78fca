"""Objective, gradient and curvature of a fit, for many parameter vectors at once, as matrix products.

With ``z_t = X_t theta + offset_t`` for each term t and shares ``p = softmax(z)`` over the terms, every sum
over points that Newton's method needs is an elementwise product [rows, points] times a fixed matrix of
products of X, so no loop runs over replicates or points.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.tidy import BoolArray, FloatArray

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
    """What is fitted. design [terms, points, k], offset [terms, points], y [1 or rows, points].

    The prediction is ``ln f = logsumexp_t(design_t theta + offset_t)``, times exp(theta[power]) where
    ``power`` names a column (whose design is zero). ``log`` says whether residuals are of ln y or of y;
    weights [1 or rows, points] count copies. ``delta`` is Huber's: infinite is least squares, 0 is L1;
    ``ridge/2 r^2`` is added to the loss of each residual.
    """

    design: FloatArray
    offset: FloatArray
    y: FloatArray
    weights: FloatArray
    delta: float
    log: bool = True
    power: int | None = None
    ridge: float = 0.0
    pull: Pull | None = None

    @cached_property
    def products(self) -> dict[tuple[int, int], FloatArray]:
        """X_t X_u^T + X_u X_t^T of each pair of terms t < u, and X_t X_t^T of each term [points, k k]."""
        n, k = self.size
        pairs = combinations_with_replacement(range(len(self.design)), 2)
        outer = {(t, u): self.design[t][:, :, None] * self.design[u][:, None, :] for t, u in pairs}
        return {
            (t, u): (both if t == u else both + both.swapaxes(1, 2)).reshape(n, k * k)
            for (t, u), both in outer.items()
        }

    @property
    def size(self) -> tuple[int, int]:
        """Points and parameters."""
        return self.design.shape[1], self.design.shape[2]

    def prediction(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The shares of the terms [terms, rows, points] and ln f [rows, points] at ``theta`` [rows, k]."""
        logs = theta @ np.swapaxes(self.design, 1, 2) + self.offset[:, None]
        # Shifted by the largest term, no exponential overflows.
        top = np.max(logs, axis=0)
        shares = np.exp(logs - top)
        total = np.sum(shares, axis=0)
        shares /= total
        return shares, self._power(theta) * (top + np.log(total))

    def _power(self, theta: FloatArray) -> FloatArray | float:
        """The outer power [rows, 1]; one where the law has none."""
        return 1.0 if self.power is None else np.exp(theta[:, [self.power]])

    def gradient(self, state: "State", weight: FloatArray) -> FloatArray:
        """sum of ``weight`` x d ln f over the points [rows, k]."""
        weights = state.shares * (weight * self._power(state.theta))
        gradient: FloatArray = np.sum(weights @ self.design, axis=0)
        if self.power is not None:
            gradient[:, self.power] = np.einsum("bn,bn->b", weight, state.log_f)
        return gradient

    def second(self, state: "State", outer: FloatArray, second: FloatArray) -> FloatArray:
        """sum over the points of ``outer`` x (d ln f)(d ln f)^T + ``second`` x d2 ln f [rows, k, k]."""
        # d2 ln f = s (sum_t p_t x_t x_t^T - g g^T) with g = sum_t p_t x_t and s the outer power.
        s, shares, k = self._power(state.theta), state.shares, self.size[1]
        linear = second * s
        product = outer * s * s - linear
        total = np.zeros((len(state.theta), k * k))
        for (t, u), products in self.products.items():
            weight = shares[t] * shares[u] * product
            total += (weight + linear * shares[t] if t == u else weight) @ products
        matrix = total.reshape(-1, k, k)
        if (q := self.power) is not None:
            # By theta[q] the slope is ln f, and the second derivatives are s g and ln f.
            crossed = self.gradient(state, outer * state.log_f + second)
            matrix[:, q, :] = matrix[:, :, q] = crossed
            matrix[:, q, q] = np.einsum("bn,bn->b", outer * state.log_f + second, state.log_f)
        return matrix


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
        y = problem.y if len(problem.y) == 1 else problem.y[rows]
        weights = problem.weights if len(problem.weights) == 1 else problem.weights[rows]
        pull = problem.pull and problem.pull.rows(rows)
        return cls(problem, np.log(y) if problem.log else y, weights, pull)

    def keep(self, rows: BoolArray) -> None:
        """Drop the other rows."""
        self.y = self.y if len(self.y) == 1 else self.y[rows]
        self.weights = self.weights if len(self.weights) == 1 else self.weights[rows]
        self.pull = self.pull and self.pull.rows(rows)


@dataclass
class State:
    """The prediction at theta [rows, k]: shares [terms, rows, points], ln f, residual and objective."""

    theta: FloatArray
    shares: FloatArray
    log_f: FloatArray
    residual: FloatArray
    objective: FloatArray

    def replaced(self, other: "State", rows: BoolArray) -> "State":
        """This state with ``rows`` from ``other``."""
        self.shares[:, rows] = other.shares[:, rows]
        for name in ("theta", "log_f", "residual", "objective"):
            getattr(self, name)[rows] = getattr(other, name)[rows]
        return self

    def kept(self, rows: BoolArray) -> "State":
        """The rows ``rows`` alone."""
        shares = self.shares[:, rows]
        return State(self.theta[rows], shares, self.log_f[rows], self.residual[rows], self.objective[rows])


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
    with np.errstate(over="ignore", invalid="ignore"):
        shares, log_f = problem.prediction(theta)
        residual = (log_f if problem.log else np.exp(log_f)) - block.y
        loss = huber(residual, problem.delta)
        if problem.ridge:
            loss = loss + 0.5 * problem.ridge * residual**2
        value = np.einsum("bn,bn->b", np.broadcast_to(block.weights, loss.shape), loss)
        if block.pull is not None:
            distance = block.pull.quantity(theta)[0] - block.pull.target
            value = value + 0.5 * block.pull.strength * distance**2
    return State(theta.copy(), shares, log_f, residual, np.where(np.isfinite(value), value, np.inf))


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
    gradient = block.problem.gradient(state, weights.first)
    matrix = block.problem.second(state, damped, weights.first)
    return _pulled(block, state, gradient, matrix)


def curvature(block: Block, state: State, edge: float) -> FloatArray:
    """Hessian [rows, k, k] in which residuals within ``edge`` of delta (a fraction) count as beyond it."""
    weights = _weights(block, state, edge)
    return block.problem.second(state, weights.outer, weights.first)


def majorised_system(block: Block, state: State) -> tuple[FloatArray, FloatArray]:
    """Gradient [rows, k] and the undamped IRLS majoriser [rows, k, k]."""
    weights = _weights(block, state)
    gradient = block.problem.gradient(state, weights.first)
    matrix = block.problem.second(state, weights.major, np.zeros_like(weights.major))
    return _pulled(block, state, gradient, matrix)


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
