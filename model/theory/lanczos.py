"""The largest eigenvalue of a symmetric matrix that is known only by its products with vectors."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 16
"""Vectors of the basis that are kept, and multiplied with, together."""


@dataclass(frozen=True)
class LargestEigenvalue:
    """What Lanczos found; ``value`` is None where it did not converge."""

    lower_bound: float
    """The largest Ritz value: never above the largest eigenvalue but for rounding."""
    residual: float
    """``|A y - lower_bound y| / |lower_bound|`` for the Ritz vector y: some eigenvalue is that near."""
    products: int
    converged: bool

    @property
    def value(self) -> float | None:
        """The eigenvalue, None unless the residual is within the tolerance."""
        return self.lower_bound if self.converged else None


@torch.no_grad()
def largest_eigenvalue(
    product: Callable[[Tensor], Tensor], start: Tensor, *, tolerance: float, most_products: int
) -> LargestEigenvalue:
    """The largest (not: largest in magnitude) eigenvalue of the symmetric A that ``product`` multiplies by.

    Lanczos with full reorthogonalization (Golub & Van Loan, Matrix Computations, section 10.3), from
    ``start`` [n], until the residual is at most ``tolerance``. Keeps a vector like ``start`` for each
    product, ``most_products`` at most. A product that is not finite ends it, not converged, with a residual
    that is no number.
    """
    most = min(most_products, start.numel())
    vector = start / start.norm()
    basis = _Basis(start)
    diagonal: list[float] = []
    beside: list[float] = []
    estimate = LargestEigenvalue(float("nan"), float("nan"), 0, converged=False)
    for step in range(most):
        basis.append(vector)
        image = product(vector)
        diagonal.append(torch.dot(vector, image).item())
        rest = basis.without(image)
        length = rest.norm().item()
        estimate = _ritz(diagonal, beside, length, tolerance)
        if estimate.converged or estimate.residual != estimate.residual or step + 1 == most:
            break
        beside.append(length)
        vector = rest / length
    return estimate


class _Basis:
    """Orthonormal vectors [n], some in a block, so that a product with all of them takes few calls."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._blocks: list[Tensor] = []
        self._size = 0

    def append(self, vector: Tensor) -> None:
        """Add ``vector`` [n]."""
        row = self._size % BLOCK
        if row == 0:
            self._blocks.append(self._like.new_zeros(BLOCK, self._like.numel()))
        self._blocks[-1][row] = vector
        self._size += 1

    def without(self, image: Tensor) -> Tensor:
        """``image`` [n] without its part in the span; taken away once, rounding would leave some."""
        rest = image
        for block in (*self._blocks, *self._blocks):
            rest = rest - torch.mv(block.T, torch.mv(block, rest))
        return rest


def _ritz(diagonal: list[float], beside: list[float], length: float, tolerance: float) -> LargestEigenvalue:
    """The largest Ritz pair; its residual is the last entry of its vector times what is left of the image."""
    from scipy.linalg import eigh_tridiagonal  # loads in 0.3 s, which every worker would wait for

    size = len(diagonal)
    if not all(map(math.isfinite, (*diagonal, *beside, length))):
        return LargestEigenvalue(float("nan"), float("nan"), size, converged=False)
    values, vectors = eigh_tridiagonal(diagonal, beside, select="i", select_range=(size - 1, size - 1))
    value = float(values[0])
    error = length * abs(float(vectors[-1, 0]))
    residual = error / abs(value) if value else (0.0 if error == 0 else float("inf"))
    return LargestEigenvalue(value, residual, size, converged=residual <= tolerance)
