"""The preconditioner that scale vectors put on the gradient of their effective matrix (arXiv 2605.26895).

Under gradient flow on W and the vectors, V = diag(u) W diag(v) moves by ``-P(grad_V)``, P symmetric and
positive. With an input vector alone P acts on each column: ``P_j = g_j^2 I + w_j w_j^T``. A learning-rate
factor f of the vectors multiplies all but the first term.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from scalevec.model.scale_vectors import ScaleVector
from scalevec.model.theory.effective import EffectiveMatrix, Values
from scalevec.model.theory.lanczos import largest_eigenvalue

EIGENVALUE_TOLERANCE = 1e-3
MOST_EIGENVALUE_PRODUCTS = 200


def pull(vector: ScaleVector, x: Tensor) -> tuple[Tensor, ...]:
    """J^T x, J the Jacobian of the vector in effect [width] by its parameters: a tensor for each of them."""
    with torch.enable_grad():
        return torch.autograd.grad(vector(), list(vector.parameters()), x)


def push(vector: ScaleVector, tangents: Sequence[Tensor]) -> Tensor:
    """J t [width]: how the vector in effect moves where its parameters move by ``tangents``, first order.

    The derivative by y of <J^T y, t>, which is linear in y.
    """
    with torch.enable_grad():
        y = torch.zeros_like(vector(), requires_grad=True)
        pulled = torch.autograd.grad(vector(), list(vector.parameters()), y, create_graph=True)
        return torch.autograd.grad(pulled, y, list(tangents))[0]


def flow(vector: ScaleVector, x: Tensor) -> Tensor:
    """J J^T x: what gradient flow on the parameters of a vector makes of minus its gradient ``x`` [width].

    ``x`` itself without reparameterization; ``(beta^2 I + alpha alpha^T) x`` for OR;
    ``diag(g) (I + 1 1^T) diag(g) x`` for ER.
    """
    return push(vector, pull(vector, x))


def _by_map(matrix: EffectiveMatrix, rows: Tensor) -> Tensor:
    """:func:`flow` of each map's output vector on its part of ``rows`` [m]; zero where there is none."""
    parts = torch.split(rows, [len(weight) for weight in matrix.weights])
    pairs = zip(matrix.output_vectors, parts, strict=True)
    flows = [torch.zeros_like(part) if vector is None else flow(vector, part) for vector, part in pairs]
    return torch.cat(flows)


def gradient_of_effective(matrix: EffectiveMatrix, values: Values) -> Tensor:
    """grad_V [m, n] from the gradient of W, which is ``u_i v_j`` times it.

    Where ``u_i v_j`` is exactly zero it cannot be seen and is taken for zero.
    """
    gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in matrix.weights]
    scale = values.output[:, None] * values.input
    return torch.where(scale == 0, 0, torch.cat(gradients) / scale)


def precondition(matrix: EffectiveMatrix, values: Values, gradient: Tensor, factor: float = 1.0) -> Tensor:
    """P(gradient) [m, n]; V moves by minus the learning rate times it under small steps of gradient descent.

    ``u_i^2 v_j^2 G_ij + f u_i W_ij F_v(sum_k u_k W_kj G_kj)_j + f W_ij v_j F_u(sum_k W_ik v_k G_ik)_i``,
    where F is :func:`flow` of the vector's parameterization, the identity for a plain vector.
    """
    left, right = values.output[:, None] * values.weight, values.weight * values.input
    result = (values.output.square()[:, None] * values.input.square()) * gradient
    if matrix.input_vector is not None:
        by_columns = flow(matrix.input_vector, (left * gradient).sum(0))
        result = result + factor * left * by_columns
    if matrix.has_output_vector:
        by_rows = _by_map(matrix, (right * gradient).sum(1))
        result = result + factor * right * by_rows[:, None]
    return result


def decay_direction(matrix: EffectiveMatrix, values: Values, rate_of: dict[int, float]) -> Tensor:
    """How V [m, n] shrinks in one step of weight decay, first order: V loses this.

    ``rate_of`` gives learning rate times weight decay of each parameter, by its ``id``: every parameter p
    becomes ``p (1 - rate)``.
    """
    rates = [values.weight.new_full((len(w),), rate_of[id(w)]) for w in matrix.weights]
    by_rows = torch.cat(rates) * values.output
    outputs = zip(matrix.output_vectors, matrix.weights, strict=True)
    of_outputs = [w.new_zeros(len(w)) if u is None else _shrinkage(u, rate_of) for u, w in outputs]
    lost = (by_rows + torch.cat(of_outputs))[:, None] * values.weight * values.input
    if matrix.input_vector is not None:
        lost = lost + values.output[:, None] * values.weight * _shrinkage(matrix.input_vector, rate_of)
    return lost


def _shrinkage(vector: ScaleVector, rate_of: dict[int, float]) -> Tensor:
    return push(vector, [rate_of[id(p)] * p.detach() for p in vector.parameters()])


def eigenvalues(matrix: EffectiveMatrix, values: Values, factor: float = 1.0) -> dict[str, float | None]:
    """Smallest, median and largest eigenvalue of P.

    For a plain input vector they are ``g_j^2`` (m - 1 times each) and ``g_j^2 + f |w_j|^2`` (once). In
    general all but as many as there are vector entries lie between sorted neighbours of ``u_i^2 v_j^2``,
    and none below the least of these: so ``min`` and ``median`` are those of ``u_i^2 v_j^2``. ``max`` is
    found by Lanczos, None where that did not converge.
    """
    bulk = values.output.square()[:, None] * values.input.square()
    if matrix.input_vector is None and not matrix.has_output_vector:
        return {"min": 1.0, "median": 1.0, "max": 1.0}

    def product(flat: Tensor) -> Tensor:
        return precondition(matrix, values, flat.view_as(values.weight), factor).flatten()

    start = torch.randn(bulk.numel(), generator=torch.Generator().manual_seed(0), dtype=bulk.dtype)
    largest = largest_eigenvalue(
        product,
        start.to(bulk.device),
        tolerance=EIGENVALUE_TOLERANCE,
        most_products=MOST_EIGENVALUE_PRODUCTS,
    )
    return {"min": bulk.min().item(), "median": bulk.median().item(), "max": largest.value}


def conserved(matrix: EffectiveMatrix, factor: float = 1.0) -> Tensor | None:
    """What gradient flow without decay conserves for each column of V, [n]; None where nothing is known.

    ``g_j^2 - f |w_j|^2`` for a plain vector (arXiv 2605.26895), with ``alpha_j^2`` (OR, also with an
    exponential magnitude) or ``2 alpha_j`` (ER) in the place of ``g_j^2``: these follow from
    ``alpha_j d alpha_j = f g_j d g_j`` and ``d alpha_j = f g_j d g_j`` along the flow. None for a
    normalized direction and without an input vector.
    """
    vector = matrix.input_vector
    own_part = None if vector is None else _own_part(vector)
    if own_part is None:
        return None
    squares = [weight.detach().double().square().sum(0) for weight in matrix.weights]
    return own_part.double() - factor * torch.stack(squares).sum(0)


def _own_part(vector: ScaleVector) -> Tensor | None:
    match vector.reparameterization:
        case "none":
            return vector.factor("gain").detach().square()
        case "or" | "or-exponential":
            return vector.factor("alpha").detach().square()
        case "er":
            return 2 * vector.factor("alpha").detach()
    return None
