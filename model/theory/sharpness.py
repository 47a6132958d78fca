"""Sharpness: the largest eigenvalue of the Hessian of the training loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from scalevec.model.config import Trial
from scalevec.model.data.corpus import TokenArray, TrainingBatches
from scalevec.model.decoder import Transformer

TOLERANCE = 1e-3
"""Largest residual of an eigenvalue over the eigenvalue."""
KRYLOV_VECTORS = 8
"""Vectors that Lanczos keeps, so many products before it first looks whether it has converged."""
MOST_RESTARTS = 50
"""Of four products each; after so many it is given up."""
SEED = 0
"""Of the vector that Lanczos starts from."""
BATCH_TOKENS = 2048
"""Targets in the batch of a run's sharpness, or one sequence where that is longer."""
BATCH_STREAM = "sharpness"
"""Draws that batch from the training split: one batch for all trials of a corpus and sequence length."""


@dataclass(frozen=True)
class LargestEigenvalue:
    """What Lanczos found.

    value: the eigenvalue, None where it did not converge or a product was not finite.
    residual: ``|A y - value y| / |value|`` for the unit Ritz vector y: some eigenvalue is that near.
    products: how many products with A that took.
    """

    value: float | None
    residual: float | None
    products: int


def largest_eigenvalue(product: Callable[[Tensor], Tensor], size: int, like: Tensor) -> LargestEigenvalue:
    """The largest (not: largest in magnitude) eigenvalue of a symmetric matrix A by its products alone.

    Implicitly restarted Lanczos (ARPACK, by scipy) from a fixed vector, so that a run that goes on from a
    checkpoint measures the same.

    Args:
        product: x [size] -> A x [size], of the type and on the device of ``like``.
        size: Rows of A, 2 or more.
        like: A tensor of the type and the device to reckon in.
    """
    # Here, because every worker would wait 0.3 s for it.
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    products = 0

    def multiply(x: Any) -> Any:
        nonlocal products
        products += 1
        image = product(torch.from_numpy(x).to(like.device))
        if not image.isfinite().all():
            raise FloatingPointError
        return image.cpu().numpy()

    start = torch.randn(size, generator=torch.Generator().manual_seed(SEED), dtype=like.dtype).numpy()
    try:
        values, vectors = eigsh(
            LinearOperator((size, size), matvec=multiply, dtype=start.dtype),
            k=1,
            which="LA",
            v0=start,
            ncv=min(KRYLOV_VECTORS, size),
            tol=TOLERANCE,
            maxiter=MOST_RESTARTS,
            rng=SEED,  # it draws where the vectors reached span all that A reaches
        )
        error = multiply(vectors[:, 0]) - values[0] * vectors[:, 0]
    except (ArpackError, FloatingPointError):
        return LargestEigenvalue(None, None, products)
    return LargestEigenvalue(float(values[0]), float(np.linalg.norm(error) / abs(values[0])), products)


def batch_loss(model: Transformer, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats/token as torch computes it, which can be differentiated twice."""
    return cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def hessian_product(loss: Callable[[], Tensor], parameters: list[nn.Parameter]) -> Callable[[Tensor], Tensor]:
    """The function v -> H v [all parameters, flat] of the Hessian H of ``loss`` where the parameters are now.

    The gradient is differentiated again along v (Pearlmutter 1994); parameters that the loss does not
    depend on have zeros.
    """
    with torch.enable_grad():
        gradients = torch.autograd.grad(loss(), parameters, create_graph=True, materialize_grads=True)
    sizes = [parameter.numel() for parameter in parameters]
    moving = [index for index, gradient in enumerate(gradients) if gradient.requires_grad]

    def product(flat: Tensor) -> Tensor:
        parts = torch.split(flat, sizes)
        along = [parts[index].view_as(parameters[index]) for index in moving]
        of = [gradients[index] for index in moving]
        images = torch.autograd.grad(of, parameters, along, retain_graph=True, materialize_grads=True)
        return torch.cat([image.flatten() for image in images])

    return product


def sharpness(model: Transformer, inputs: Tensor, targets: Tensor) -> LargestEigenvalue:
    """The largest eigenvalue of the Hessian of the mean cross-entropy on one batch, by all parameters.

    ``inputs`` and ``targets`` are [sequences, length].
    Computed in the parameters' own precision, with the attention that torch can differentiate twice.
    Changes neither the parameters nor their ``.grad``, and holds the graph of one backward pass over the
    batch, and on the CPU some vectors of the parameters' size.
    """
    parameters = list(model.parameters())
    size = sum(parameter.numel() for parameter in parameters)
    with sdpa_kernel(SDPBackend.MATH):
        product = hessian_product(lambda: batch_loss(model, inputs, targets), parameters)
        return largest_eigenvalue(product, size, parameters[0])


class Sharpness:
    """Measures the sharpness after a step, on one fixed batch of the training split ``tokens``."""

    def __init__(self, trial: Trial, model: Transformer, tokens: TokenArray) -> None:
        sequences = max(1, BATCH_TOKENS // trial.sequence_length)
        batches = TrainingBatches(tokens, trial.sequence_length, sequences, BATCH_STREAM)
        device = next(model.parameters()).device
        self.inputs, self.targets = (part.to(device) for part in batches.batch(0))
        self._model = model

    def before_step(self) -> None:
        """Nothing is needed of the step."""

    def after_step(self) -> dict[str, Any]:
        """``theory/sharpness`` and how well Lanczos found it; None where it did not."""
        result = sharpness(self._model, self.inputs, self.targets)
        return {
            "theory/sharpness": result.value,
            "theory/sharpness_residual": result.residual,
            "theory/sharpness_products": result.products,
        }
