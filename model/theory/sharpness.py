"""Sharpness: the largest eigenvalue of the Hessian of the training loss."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from scalevec.model.data.order import TrainingBatches
from scalevec.model.decoder import Transformer
from scalevec.model.theory.lanczos import LargestEigenvalue, largest_eigenvalue
from scalevec.model.theory.measure import MeasuredRun, Row

TOLERANCE = 1e-3
"""Largest residual over the eigenvalue."""
MOST_PRODUCTS = 100
"""Products with the Hessian after which an eigenvalue that has not settled is said not to have converged."""
SEED = 0
"""Of the vector that Lanczos starts from."""
BATCH_TOKENS = 2048
"""Targets in the batch of a run's sharpness, or one sequence where that is longer."""
BATCH_STREAM = "sharpness"
"""Draws that batch from the training split: one batch for all trials of a corpus and sequence length."""


def sharpness(
    model: Transformer,
    inputs: Tensor,
    targets: Tensor,
    *,
    tolerance: float = TOLERANCE,
    most_products: int = MOST_PRODUCTS,
) -> LargestEigenvalue:
    """The largest eigenvalue of the Hessian of the mean cross-entropy on one batch, by all parameters.

    ``inputs`` and ``targets`` are [sequences, length]. Reckoned in the parameters' own precision, with the
    attention that torch can differentiate twice. Changes neither the parameters nor their ``.grad``, and
    holds the graph of one backward pass over the batch and up to ``most_products`` vectors of the
    parameters' size.
    """
    parameters = list(model.parameters())
    with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
        product = hessian_product(lambda: batch_loss(model, inputs, targets), parameters)
        size = sum(parameter.numel() for parameter in parameters)
        start = torch.randn(size, generator=torch.Generator().manual_seed(SEED), dtype=parameters[0].dtype)
        return largest_eigenvalue(
            product, start.to(parameters[0].device), tolerance=tolerance, most_products=most_products
        )


def batch_loss(model: Transformer, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats/token as torch reckons it, which can be differentiated twice."""
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


class Sharpness:
    """The largest Hessian eigenvalue of the training loss, after the step, on one fixed batch."""

    def __init__(self, subject: MeasuredRun) -> None:
        trial = subject.trial
        sequences = max(1, BATCH_TOKENS // trial.sequence_length)
        batches = TrainingBatches(subject.tokens, trial.sequence_length, sequences, BATCH_STREAM)
        device = next(subject.model.parameters()).device
        self._inputs, self._targets = (part.to(device) for part in batches.batch(0))
        self._model = subject.model

    def before_step(self) -> None:
        """Nothing is needed of the step."""

    def after_step(self) -> Row:
        """``theory/sharpness``, None where Lanczos did not converge, and how far it came."""
        result = sharpness(self._model, self._inputs, self._targets)
        return {
            "theory/sharpness": result.value,
            "theory/sharpness_lower_bound": result.lower_bound,
            "theory/sharpness_residual": result.residual,
            "theory/sharpness_products": result.products,
        }
