"""The preconditioner that scale vectors put on the gradient of their effective matrix (arXiv 2605.26895).

Under gradient flow on W and the vectors, V = diag(u) W diag(v) moves by ``-P(grad_V)``, P symmetric and
positive. With an input vector alone P acts on each column: ``P_j = g_j^2 I + w_j w_j^T``. A learning-rate
factor f of the vectors multiplies all but the first term.

Maps that share their input vector are stacked, as the analysis of the paper takes them. A vector behind a
norm (dual-normalized placement, queries and keys) is no part of V, because the norm stands between.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scalevec.model.config import Trial
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.identity import stream_of
from scalevec.model.scale_vectors import LinearMap, ScaleVector, effective
from scalevec.model.strategies import NORMED_MAPS
from scalevec.model.theory.sharpness import largest_eigenvalue


@dataclass(frozen=True)
class Values:
    """W [m, n], u [m] and v [n] at one moment; u and v are ones where there is no vector."""

    weight: Tensor
    output: Tensor
    input: Tensor

    def effective(self) -> Tensor:
        """V [m, n] in float64: its changes are small beside it."""
        return self.output.double()[:, None] * self.weight.double() * self.input.double()


@dataclass(frozen=True)
class EffectiveMatrix:
    """The parameters that make up one effective matrix, or several stacked ones that share their input.

    kind: the map (``query``, ``head``), or ``attention_shared`` and ``feed_forward_shared`` for stacked ones.
    layer: which block, from 0; the head counts as layer 0.
    weights: W of each map [m_i, n]. output_vectors: u of each map [m_i] or None. input_vector: v [n] or None.
    """

    kind: str
    layer: int
    weights: tuple[nn.Parameter, ...]
    output_vectors: tuple[ScaleVector | None, ...]
    input_vector: ScaleVector | None

    @torch.no_grad()
    def values(self) -> Values:
        """W, u and v as they are now, as copies."""
        weight = torch.cat([weight.detach() for weight in self.weights])
        pairs = zip(self.output_vectors, self.split(weight.new_ones(len(weight))), strict=True)
        output = torch.cat([ones if vector is None else vector() for vector, ones in pairs])
        columns = effective(self.input_vector)
        columns = weight.new_ones(weight.shape[1]) if columns is None else columns.clone()
        return Values(weight, output, columns)

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """``rows`` [m] by map."""
        return torch.split(rows, [len(weight) for weight in self.weights])

    @property
    def has_output_vector(self) -> bool:
        """Whether any of the maps has a vector on its output that folds into it."""
        return any(vector is not None for vector in self.output_vectors)


def effective_matrices(model: Transformer) -> list[EffectiveMatrix]:
    """The effective matrices that read a normalized input or own a vector, layer by layer, the head last.

    The head is left out where it is the embedding: then more than V's gradient moves it. So are the experts
    of a mixture, and with them every map that shares its input vector with them.
    """
    matrices: list[EffectiveMatrix] = []
    for layer, block in enumerate(model.blocks):
        for name, sublayer in block.named_children():
            matrices += _of_sublayer(name, layer, sublayer)
    if model.head is not None:
        behind = None if model.normalizes_head else model.head_vector
        matrices.append(EffectiveMatrix("head", 0, (model.head,), (behind,), model.final_vector))
    return matrices


def _of_sublayer(sublayer_name: str, layer: int, sublayer: nn.Module) -> Iterator[EffectiveMatrix]:
    maps = {name: child for name, child in sublayer.named_children() if isinstance(child, LinearMap)}
    shared = getattr(sublayer, "shared_vector", None)
    sharing = [name for name in maps if name in NORMED_MAPS and maps[name].input_vector is None]
    if shared is not None and sharing:
        yield _stacked(f"{sublayer_name}_shared", layer, [maps.pop(name) for name in sharing], shared)
    for name, map_ in maps.items():
        if name in NORMED_MAPS or map_.input_vector is not None or map_.output_vector is not None:
            yield _stacked(name, layer, [map_], map_.input_vector)


def _stacked(kind: str, layer: int, maps: Sequence[LinearMap], vector: ScaleVector | None) -> EffectiveMatrix:
    outputs = tuple(map_.output_vector if map_.output_is_folded else None for map_ in maps)
    return EffectiveMatrix(kind, layer, tuple(map_.weight for map_ in maps), outputs, vector)


def jvp(vector: ScaleVector, tangents: Sequence[Tensor]) -> Tensor:
    """J t [width]: how the vector in effect moves where its parameters move by ``tangents``, first order.

    J is the Jacobian of the vector by its parameters.
    """
    with torch.enable_grad():
        # The derivative by y of <J^T y, t>, which is linear in y: plugins need no forward derivatives.
        y = torch.zeros_like(vector(), requires_grad=True)
        pulled = torch.autograd.grad(vector(), list(vector.parameters()), y, create_graph=True)
        return torch.autograd.grad(pulled, y, list(tangents))[0]


def vector_flow(vector: ScaleVector, x: Tensor) -> Tensor:
    """J J^T x [width]: what gradient flow on the parameters of a vector makes of minus its gradient ``x``.

    J J^T is I without reparameterization; ``d ghat ghat^T + rho (I - ghat ghat^T)`` for OR, where d is the
    width, ``ghat = g / |g|`` and ``rho = beta^2 d / |alpha|^2`` (arXiv 2605.26895, section 3.3);
    ``diag(g) (1 1^T + I - 1 1^T / d) diag(g)`` for ER. Differentiated here, so that plugins have theirs.
    """
    with torch.enable_grad():
        pulled = torch.autograd.grad(vector(), list(vector.parameters()), x)
    return jvp(vector, pulled)


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
    where F is :func:`vector_flow`, the identity for a plain vector.
    """
    left, right = values.output[:, None] * values.weight, values.weight * values.input
    result = (values.output.square()[:, None] * values.input.square()) * gradient
    if matrix.input_vector is not None:
        result = result + factor * left * vector_flow(matrix.input_vector, (left * gradient).sum(0))
    if matrix.has_output_vector:
        rows = matrix.split((right * gradient).sum(1))
        pairs = zip(matrix.output_vectors, rows, strict=True)
        flows = [torch.zeros_like(x) if vector is None else vector_flow(vector, x) for vector, x in pairs]
        result = result + factor * right * torch.cat(flows)[:, None]
    return result


def decay_direction(matrix: EffectiveMatrix, values: Values, decay_of: dict[int, float]) -> Tensor:
    """How V [m, n] shrinks in one step of weight decay, first order: V loses this.

    ``decay_of`` gives learning rate times weight decay of each parameter, by its ``id``: every parameter p
    becomes ``p (1 - decay)``.
    """

    def loss_of(vector: ScaleVector) -> Tensor:
        return jvp(vector, [decay_of[id(p)] * p.detach() for p in vector.parameters()])

    rows = []
    parts = zip(matrix.weights, matrix.output_vectors, matrix.split(values.output), strict=True)
    for weight, vector, u in parts:
        of_weight = decay_of[id(weight)] * u
        rows.append(of_weight if vector is None else of_weight + loss_of(vector))
    lost = torch.cat(rows)[:, None] * values.weight * values.input
    if matrix.input_vector is not None:
        lost = lost + values.output[:, None] * values.weight * loss_of(matrix.input_vector)
    return lost


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
        return precondition(matrix, values, flat.view_as(bulk), factor).flatten()

    largest = largest_eigenvalue(product, bulk.numel(), bulk)
    return {"min": bulk.min().item(), "median": bulk.median().item(), "max": largest.value}


def conserved(matrix: EffectiveMatrix, factor: float = 1.0) -> Tensor | None:
    """What gradient flow without decay conserves of an input vector and the columns w_j behind it.

    For each column, [n]: ``g_j^2 - f |w_j|^2`` for a plain vector (arXiv 2605.26895), with
    ``2 alpha_j + 2 beta / d`` (ER), ``alpha_j^2`` (product) or ``2 alpha_j`` (exponential-sum) in the place
    of ``g_j^2``. For OR only ``beta^2 - f |W|^2``, [1]: its flow turns all columns together. These follow
    from ``w_j . dw_j = g_j dL/dg_j``. None without an input vector, and for one of a plugin.
    """
    vector = matrix.input_vector
    if vector is None or vector.reparameterization not in _CONSERVED:
        return None
    own_part = _CONSERVED[vector.reparameterization](
        {name: vector.factor(name).detach().double() for name, _ in vector.named_parameters()}
    )
    return own_part - factor * _squares_of_columns(matrix, len(own_part))


_CONSERVED: dict[str, Callable[[dict[str, Tensor]], Tensor]] = {
    "none": lambda of: of["gain"].square(),
    "or": lambda of: of["beta"].square(),
    "er": lambda of: 2 * of["alpha"] + 2 * of["beta"] / len(of["alpha"]),
    "product": lambda of: of["alpha"].square(),
    "exponential-sum": lambda of: 2 * of["alpha"],
}
"""By reparameterization, the vector's part of what is conserved."""


def _squares_of_columns(matrix: EffectiveMatrix, parts: int) -> Tensor:
    """``|w_j|^2`` [n], or ``|W|^2`` [1] where it is asked for in one part."""
    squares = torch.stack([weight.detach().double().square().sum(0) for weight in matrix.weights]).sum(0)
    return squares if parts == len(squares) else squares.sum(0, keepdim=True)


@dataclass(frozen=True)
class _Before:
    """An effective matrix before a step: its parts, and what its gradient and its decay would do."""

    values: Values
    gradient: Tensor
    predicted: Tensor
    decayed: Tensor


class Preconditioner:
    """Measures, of every effective matrix, predicted and actual movement, eigenvalues, what is conserved."""

    def __init__(self, trial: Trial, model: Transformer, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._matrices = effective_matrices(model)
        self._factor = trial.model.scale_vectors.learning_rate_factor
        # Drawn again from the trial's stream, so that a resumed run has the same start.
        untrained = Transformer(trial.model)
        initialise(untrained, stream_of(trial))
        self._start = [self._conserved(matrix) for matrix in effective_matrices(untrained)]
        self._before: list[_Before] = []

    def before_step(self) -> None:
        """Keep what the step will be held against: three arrays of the size of the matrices, and these."""
        groups = [(group, p) for group in self._optimizer.param_groups for p in group["params"]]
        rates = {id(p): float(group["lr"]) for group, p in groups}
        decays = {id(p): rates[id(p)] * float(group.get("weight_decay", 0.0)) for group, p in groups}
        self._before = []
        for matrix in self._matrices:
            values = matrix.values()
            gradient = gradient_of_effective(matrix, values)
            rate = rates[id(matrix.weights[0])]
            predicted = precondition(matrix, values, gradient, self._factor) * -rate
            decayed = decay_direction(matrix, values, decays)
            self._before.append(_Before(values, gradient, predicted, decayed))

    def after_step(self) -> dict[str, Any]:
        """``theory/KIND/QUANTITY``: one value for each layer that has the kind, in their order."""
        row: dict[str, Any] = {}
        for matrix, before, start in zip(self._matrices, self._before, self._start, strict=True):
            values = matrix.values()
            results = _movement(values, before)
            extremes = eigenvalues(matrix, values, self._factor)
            results |= {f"eigenvalue_{name}": value for name, value in extremes.items()}
            results |= self._drift(matrix, start)
            for name, value in results.items():
                short = None if value is None else shortened(value)
                row.setdefault(f"theory/{matrix.kind}/{name}", []).append(short)
        self._before = []
        return row

    def _conserved(self, matrix: EffectiveMatrix) -> tuple[Tensor, float] | None:
        """What is conserved, and its scale: the mean of ``g_j^2 + f |w_j|^2``, or what stands for it."""
        columns = conserved(matrix, self._factor)
        if columns is None:
            return None
        squares = _squares_of_columns(matrix, len(columns))
        return columns, (columns + 2 * self._factor * squares).mean().item()

    def _drift(self, matrix: EffectiveMatrix, start: tuple[Tensor, float] | None) -> dict[str, float | None]:
        """The conserved quantity: its mean, and its mean change by column since the start over its scale."""
        columns = conserved(matrix, self._factor)
        if columns is None or start is None:
            return {}
        change = (columns - start[0].to(columns.device)).abs().mean().item()
        return {"conserved": columns.mean().item(), "conserved_drift": _ratio(change, start[1])}


def _movement(values: Values, before: _Before) -> dict[str, float | None]:
    """How V moved apart from its weight decay, against the prediction and the gradient."""
    moved = values.effective() - before.values.effective() + before.decayed.double()
    predicted, gradient = before.predicted.double(), before.gradient.double()
    return {
        "relative_error": _ratio((moved - predicted).norm().item(), predicted.norm().item()),
        "cosine_predicted": _cosine(moved, predicted),
        "cosine_gradient": _cosine(moved, -gradient),
        "cosine_predicted_gradient": _cosine(predicted, -gradient),
        "norm": moved.norm().item(),
        "norm_predicted": predicted.norm().item(),
        "norm_decay": before.decayed.norm().item(),
    }


def _cosine(first: Tensor, second: Tensor) -> float | None:
    return _ratio((first * second).sum().item(), (first.norm() * second.norm()).item())


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def shortened(value: float) -> float:
    """Five significant digits: there is one for every layer in a row."""
    return float(f"{value:.5g}")
