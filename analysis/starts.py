"""Starts of a fit by variable projection: a grid of exponents, each with its exact best coefficients."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.data import FloatArray

EXPONENTS = np.geomspace(0.01, 2.0, 14)
POWERS = np.geomspace(0.02, 1.0, 8)
"""Outer powers that are tried, for a law that has one."""
LARGEST_NUMBER_OF_STARTS = 12
_SMALLEST_SHARE = 1e-6
"""A start gives every term at least this share of the loss, since theta holds its logarithm."""


@dataclass(frozen=True)
class Slope:
    """One term of the sum, coefficient x exp(exponent x slope): slope [points] is None for a constant.

    ``exponent`` numbers the exponents that are searched; None with a slope is a fixed exponent of one.
    """

    slope: FloatArray | None
    exponent: int | None


@dataclass(frozen=True)
class Grid:
    """exponents [grid, exponents], power [grid], ln coefficients [grid, terms] and the grid's shape."""

    exponents: FloatArray
    power: FloatArray
    log_coefficients: FloatArray
    shape: tuple[int, ...]


def projected(
    slopes: Sequence[Slope], y: FloatArray, floor: float, has_power: bool, both_signs: bool
) -> Grid:
    """Best non-negative coefficients of the relative residuals of y [points] at each grid point.

    ``floor`` is a constant that is held; ``both_signs`` searches negative exponents too.
    """
    tried = np.concatenate([EXPONENTS, -EXPONENTS]) if both_signs else EXPONENTS
    n_exponents = 1 + max((s.exponent for s in slopes if s.exponent is not None), default=-1)
    index = np.array(list(itertools.product(range(len(tried)), repeat=n_exponents)), int)
    powers = POWERS if has_power else np.ones(1)
    parts = [_coefficients(slopes, y ** (1 / power), floor, tried, index) for power in powers]
    shape = (len(powers), *(len(tried),) * n_exponents)
    exponents = np.tile(tried[index], (len(powers), 1))
    return Grid(exponents, np.repeat(powers, len(index)), np.concatenate(parts), shape)


def _coefficients(
    slopes: Sequence[Slope], y: FloatArray, floor: float, tried: FloatArray, index: FloatArray
) -> FloatArray:
    """ln coefficients [grid, terms]."""
    columns = [_columns(slope, y, tried) for slope in slopes]
    target = 1.0 - floor / y
    which = [np.zeros(len(index), int) if s.exponent is None else index[:, s.exponent] for s in slopes]
    gram = np.empty((len(index), len(slopes), len(slopes)))
    right = np.empty((len(index), len(slopes)))
    for i, a in enumerate(columns):
        right[:, i] = (a @ target)[which[i]]
        for j, b in enumerate(columns):
            gram[:, i, j] = (a @ b.T)[which[i], which[j]]
    means = np.stack([c.mean(axis=1)[w] for c, w in zip(columns, which, strict=True)], axis=1)
    return np.asarray(np.log(np.maximum(_non_negative(gram, right), _SMALLEST_SHARE / means)))


def _columns(slope: Slope, y: FloatArray, tried: FloatArray) -> FloatArray:
    """The term with coefficient one, over y, for each exponent that is tried [exponents, points]."""
    if slope.slope is None:
        return (1.0 / y)[None]
    exponents = np.ones(1) if slope.exponent is None else tried
    return np.asarray(np.exp(np.clip(exponents[:, None] * slope.slope, -300, 300)) / y)


def _non_negative(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Exact non-negative least squares of each system [grid, terms]: the best of all feasible subsets."""
    n_grid, n_terms = right.shape
    best, lowest = np.zeros((n_grid, n_terms)), np.zeros(n_grid)
    ridge = 1e-14 * np.trace(gram, axis1=1, axis2=2)
    for size in range(1, n_terms + 1):
        for subset in itertools.combinations(range(n_terms), size):
            part = gram[:, subset][:, :, subset] + ridge[:, None, None] * np.eye(size)
            solved = np.linalg.solve(part, right[:, subset, None])[..., 0]
            # Squares at a least-squares solution, but for the constant target^2.
            squares = -np.sum(solved * right[:, subset], axis=1)
            better = np.all(solved >= 0, axis=1) & (squares < lowest)
            lowest = np.where(better, squares, lowest)
            full = np.zeros((n_grid, n_terms))
            full[:, subset] = solved
            best = np.where(better[:, None], full, best)
    return best


def chosen(objectives: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Which grid points to start from: the local minima by objective, then the lowest of the others."""
    grid = np.where(np.isfinite(objectives), objectives, np.inf).reshape(shape)
    padded = np.pad(grid, 1, constant_values=np.inf)
    around = [
        padded[tuple(slice(1 + o, 1 + o + n) for o, n in zip(offset, shape, strict=True))]
        for offset in itertools.product((-1, 0, 1), repeat=len(shape))
        if any(offset)
    ]
    local = (grid <= np.minimum.reduce(around)).ravel() if around else np.ones(1, bool)
    order = np.lexsort((grid.ravel(), ~local))
    return np.asarray(order[:LARGEST_NUMBER_OF_STARTS])
