"""The largest eigenvalue of a symmetric matrix that is known only by its products with vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


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
    basis = [start / start.norm()]
    diagonal: list[float] = []
    beside: list[float] = []
    found = LargestEigenvalue(float("nan"), float("nan"), 0, converged=False)
    for step in range(most):
        image = product(basis[-1])
        diagonal.append(torch.dot(basis[-1], image).item())
        rest = _orthogonal(image, basis)
        length = rest.norm().item()
        found = _ritz(diagonal, beside, length, tolerance)
        if found.converged or found.residual != found.residual or step + 1 == most:
            break
        beside.append(length)
        basis.append(rest / length)
    return found


def _orthogonal(image: Tensor, basis: Sequence[Tensor]) -> Tensor:
    """``image`` [n] without its part in the span of ``basis``; taken away once, rounding would leave some."""
    rest = image.clone()
    for vector in (*basis, *basis):
        rest.sub_(vector * torch.dot(vector, rest))
    return rest


def _ritz(diagonal: list[float], beside: list[float], length: float, tolerance: float) -> LargestEigenvalue:
    """The largest Ritz pair; its residual is the last entry of its vector times what is left of the image."""
    size = len(diagonal)
    projected = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    for place, value in enumerate(beside):
        projected[place, place + 1] = projected[place + 1, place] = value
    if not (projected.isfinite().all() and length < float("inf")):
        return LargestEigenvalue(float("nan"), float("nan"), size, converged=False)
    values, vectors = torch.linalg.eigh(projected)
    value = values[-1].item()
    error = length * abs(vectors[-1, -1].item())
    residual = error / abs(value) if value else (0.0 if error == 0 else float("inf"))
    return LargestEigenvalue(value, residual, size, converged=residual <= tolerance)
