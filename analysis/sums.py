"""Objective, gradient and curvature of a fit, for many parameter vectors at once, as matrix products.

With ``z_t = X_t theta + offset_t`` for each term t and shares ``p = softmax(z)``, every sum over points that
Newton's method needs is an elementwise product [rows, points] times a fixed matrix of moments of X
[points, k], so no loop runs over resamples or points.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from analysis.data import BoolArray, FloatArray

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Pull:
    """``strength/2 (quantity(theta) - target)^2``, added to the objective to walk along a profile.

    ``quantity`` maps theta [rows, k] to values [rows] and gradients [rows, k]; target, strength [rows].
    """

    quantity: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    target: FloatArray
    strength: FloatArray


@dataclass(frozen=True)
class Problem:
    """What is fitted. design [terms, points, k], offset [terms, points], y [1 or rows, points].

    The prediction is ``ln f = logsumexp_t(design_t theta + offset_t)``, times exp(theta[power]) where
    ``power`` names a column (whose design is zero). ``log`` says whether residuals are of ln y or of y;
    weights [1 or rows, points] count copies. ``delta`` is Huber's: infinite is least squares, 0 is L1.
    """

    design: FloatArray
    offset: FloatArray
    y: FloatArray
    weights: FloatArray
    delta: float
    log: bool = True
    power: int | None = None
    pull: Pull | None = None

    @cached_property
    def terms(self) -> list["_Term"]:
        """The terms, each with the columns of theta that it uses."""
        return [_Term.of(x, o) for x, o in zip(self.design, self.offset, strict=True) if o.max() > -np.inf]

    @cached_property
    def moments(self) -> list["_Moment"]:
        """For each pair of terms the products of their columns."""
        pairs = combinations_with_replacement(range(len(self.terms)), 2)
        return [_Moment.of(s, t, self.terms[s], self.terms[t]) for s, t in pairs]

    @property
    def size(self) -> tuple[int, int]:
        """Points and parameters."""
        return self.design.shape[1], self.design.shape[2]


@dataclass(frozen=True)
class _Term:
    columns: Rows
    x: FloatArray
    offset: FloatArray

    @classmethod
    def of(cls, design: FloatArray, offset: FloatArray) -> "_Term":
        columns = np.flatnonzero(np.any(design != 0, axis=0))
        return cls(columns, np.ascontiguousarray(design[:, columns]), offset)


@dataclass(frozen=True)
class _Moment:
    """Products of the columns of two terms: moments [points, k_s k_t], for the block (rows, columns)."""

    first: int
    second: int
    rows: Rows
    columns: Rows
    products: FloatArray

    @classmethod
    def of(cls, first: int, second: int, s: _Term, t: _Term) -> "_Moment":
        products = (s.x[:, :, None] * t.x[:, None, :]).reshape(len(s.x), -1)
        return cls(first, second, s.columns[:, None], t.columns[None, :], np.ascontiguousarray(products))


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
        pull = problem.pull
        if pull is not None:
            pull = Pull(pull.quantity, pull.target[rows], pull.strength[rows])
        return cls(problem, np.log(y) if problem.log else y, weights, pull)

    def keep(self, rows: BoolArray) -> None:
        """Drop the other rows."""
        self.y = self.y if len(self.y) == 1 else self.y[rows]
        self.weights = self.weights if len(self.weights) == 1 else self.weights[rows]
        if self.pull is not None:
            self.pull = Pull(self.pull.quantity, self.pull.target[rows], self.pull.strength[rows])


@dataclass
class State:
    """The prediction at theta [rows, k]: shares of the terms, ln f, residual [rows, points], objective."""

    theta: FloatArray
    shares: list[FloatArray]
    log_f: FloatArray
    residual: FloatArray
    objective: FloatArray

    def replaced(self, other: "State", rows: BoolArray) -> "State":
        """This state with ``rows`` from ``other``."""
        for own, new in zip(self._arrays(), other._arrays(), strict=True):
            own[rows] = new[rows]
        return self

    def kept(self, rows: BoolArray) -> "State":
        """The rows ``rows`` alone."""
        shares = [share[rows] for share in self.shares]
        return State(self.theta[rows], shares, self.log_f[rows], self.residual[rows], self.objective[rows])

    def _arrays(self) -> list[FloatArray]:
        return [self.theta, *self.shares, self.log_f, self.residual, self.objective]


def huber(residual: FloatArray, delta: float) -> FloatArray:
    """Huber's loss of each residual; least squares at infinite ``delta``."""
    if np.isinf(delta):
        return 0.5 * residual**2
    size = np.abs(residual)
    inside = np.minimum(size, delta)
    return inside * (size - 0.5 * inside)


def evaluate(block: Block, theta: FloatArray) -> State:
    """The state at ``theta`` [rows, k]; an objective that overflows is infinite."""
    problem = block.problem
    with np.errstate(over="ignore", invalid="ignore"):
        logs = [theta[:, term.columns] @ term.x.T + term.offset for term in problem.terms]
        top = logs[0] if len(logs) == 1 else np.maximum.reduce(logs)
        shares = [np.exp(z - top) for z in logs]
        total = shares[0] if len(shares) == 1 else np.add.reduce(shares)
        log_f = top + np.log(total)
        for share in shares:
            np.divide(share, total, out=share)
        if problem.power is not None:
            log_f = log_f * np.exp(theta[:, problem.power])[:, None]
        residual = (log_f if problem.log else np.exp(log_f)) - block.y
        loss = huber(residual, problem.delta)
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


def _weights(block: Block, state: State) -> _Weights:
    residual, delta = state.residual, block.problem.delta
    if np.isinf(delta):
        first = block.weights * residual
        outer = major = np.broadcast_to(block.weights, residual.shape)
    else:
        size = np.abs(residual)
        first = block.weights * np.clip(residual, -delta, delta)
        outer = block.weights * (size <= delta)
        major = block.weights * (delta / np.maximum(size, delta))
    if not block.problem.log:
        f = np.exp(state.log_f)
        first = first * f
        outer, major = outer * f * f + first, major * f * f
    return _Weights(first, outer, major)


def newton_system(block: Block, state: State, damping: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradient [rows, k], and Hessian plus ``damping`` [rows] times the majoriser [rows, k, k]."""
    weights = _weights(block, state)
    damped = weights.outer + damping[:, None] * weights.major
    gradient = _gradient(block.problem, state, weights.first)
    matrix = _second(block.problem, state, damped, weights.first)
    return _pulled(block, state, gradient, matrix)


def majorised_system(block: Block, state: State) -> tuple[FloatArray, FloatArray]:
    """Gradient [rows, k] and the undamped IRLS majoriser [rows, k, k]."""
    weights = _weights(block, state)
    gradient = _gradient(block.problem, state, weights.first)
    return _pulled(block, state, gradient, _second(block.problem, state, weights.major, None))


def _gradient(problem: Problem, state: State, first: FloatArray) -> FloatArray:
    if problem.power is None:
        return _sum_of_shares(problem, state, first)
    gradient = _sum_of_shares(problem, state, first * np.exp(state.theta[:, [problem.power]]))
    gradient[:, problem.power] = np.einsum("bn,bn->b", first, state.log_f)
    return gradient


def _second(problem: Problem, state: State, outer: FloatArray, second: FloatArray | None) -> FloatArray:
    """sum of ``outer`` x (d ln f)(d ln f)^T + ``second`` x d2 ln f [rows, k, k]."""
    # d2 ln f = s (sum_t p_t x_t x_t^T - g g^T) with g = sum_t p_t x_t and s the outer power.
    product, linear = outer, second
    if problem.power is not None:
        s = np.exp(state.theta[:, [problem.power]])
        product = outer * s * s
        linear = None if second is None else second * s
    if linear is not None:
        product = product - linear
    k = problem.size[1]
    matrix = np.zeros((len(state.theta), k, k))
    for moment in problem.moments:
        weight = state.shares[moment.first] * state.shares[moment.second]
        weight *= product
        if moment.first == moment.second and linear is not None:
            weight += linear * state.shares[moment.first]
        _add(matrix, moment, weight @ moment.products)
    if problem.power is not None:
        _add_power(problem, state, outer, second, matrix)
    return matrix


def _add_power(
    problem: Problem, state: State, outer: FloatArray, second: FloatArray | None, matrix: FloatArray
) -> None:
    """The row and column of theta[power], by which d ln f = ln f and d2 ln f = s g, ln f."""
    q, log_f = problem.power, state.log_f
    assert q is not None
    cross, corner = outer * log_f, outer * log_f**2
    if second is not None:
        cross, corner = cross + second, corner + second * log_f
    sums = _sum_of_shares(problem, state, cross * np.exp(state.theta[:, [q]]))
    matrix[:, q, :] += sums
    matrix[:, :, q] += sums
    matrix[:, q, q] = np.sum(corner, axis=1)


def _sum_of_shares(problem: Problem, state: State, weight: FloatArray) -> FloatArray:
    """sum over points and terms of weight x share x design [rows, k]."""
    result = np.zeros((len(state.theta), problem.size[1]))
    for term, share in zip(problem.terms, state.shares, strict=True):
        result[:, term.columns] += (weight * share) @ term.x
    return result


def _add(matrix: FloatArray, moment: _Moment, values: FloatArray) -> None:
    """Add a block of sums [rows, k_s k_t] to the symmetric ``matrix`` [rows, k, k]."""
    block = values.reshape(len(values), len(moment.rows), moment.columns.shape[1])
    every = np.arange(len(values))[:, None, None]
    matrix[every, moment.rows, moment.columns] += block
    if moment.first != moment.second:
        matrix[every, moment.columns.T, moment.rows.T] += np.swapaxes(block, 1, 2)


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
