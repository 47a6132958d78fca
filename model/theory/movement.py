"""How the effective matrices move in one step, against what the preconditioner predicts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from scalevec.model.config import Trial
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.identity import stream_of
from scalevec.model.theory.effective import EffectiveMatrix, Values, effective_matrices
from scalevec.model.theory.measure import MeasuredRun, Row
from scalevec.model.theory.preconditioner import (
    conserved,
    decay_direction,
    eigenvalues,
    gradient_of_effective,
    precondition,
)
from scalevec.model.vector_statistics import shortened


@dataclass(frozen=True)
class _Before:
    """An effective matrix before a step: its parts, and what its gradient and its decay would do."""

    values: Values
    gradient: Tensor
    predicted: Tensor
    decayed: Tensor


class Preconditioner:
    """Predicted against actual movement of every effective matrix, eigenvalues, the conserved quantity."""

    def __init__(self, subject: MeasuredRun) -> None:
        self._optimizer = subject.optimizer
        self._matrices = effective_matrices(subject.model)
        self._factor = subject.trial.model.scale_vectors.learning_rate_factor
        self._start = _columns_at_start(subject.trial, self._factor)
        self._before: list[_Before] = []

    def before_step(self) -> None:
        """Keep what the step will be held against: three arrays of the size of the matrices, and these."""
        rates, decays = _rates(self._optimizer)
        self._before = [self._look(matrix, rates, decays) for matrix in self._matrices]

    def _look(self, matrix: EffectiveMatrix, rates: dict[int, float], decays: dict[int, float]) -> _Before:
        values = matrix.values()
        gradient = gradient_of_effective(matrix, values)
        movement = precondition(matrix, values, gradient, self._factor) * -rates[id(matrix.weights[0])]
        return _Before(values, gradient, movement, decay_direction(matrix, values, decays))

    def after_step(self) -> Row:
        """``theory/KIND/QUANTITY``: one value for each layer that has the kind, in their order."""
        row: Row = {}
        for matrix, before, start in zip(self._matrices, self._before, self._start, strict=True):
            results = _movement(matrix, before)
            extremes = eigenvalues(matrix, matrix.values(), self._factor)
            results |= {f"eigenvalue_{name}": value for name, value in extremes.items()}
            if start is not None:
                results |= _drift(matrix, start, self._factor)
            for name, value in results.items():
                short = None if value is None else shortened(value)
                row.setdefault(f"theory/{matrix.kind}/{name}", []).append(short)
        self._before = []
        return row


def _movement(matrix: EffectiveMatrix, before: _Before) -> dict[str, float | None]:
    """How V moved apart from its weight decay, against the prediction and the gradient."""
    moved = matrix.values().effective() - before.values.effective() + before.decayed.double()
    predicted, gradient = before.predicted.double(), before.gradient.double()
    size = predicted.norm().item()
    return {
        "relative_error": (moved - predicted).norm().item() / size if size else None,
        "cosine_predicted": _cosine(moved, predicted),
        "cosine_gradient": _cosine(moved, -gradient),
        "cosine_predicted_gradient": _cosine(predicted, -gradient),
        "norm": moved.norm().item(),
        "norm_predicted": size,
        "norm_decay": before.decayed.norm().item(),
    }


def _cosine(first: Tensor, second: Tensor) -> float | None:
    product = (first.norm() * second.norm()).item()
    return (first * second).sum().item() / product if product else None


def _columns_at_start(trial: Trial, factor: float) -> list[tuple[Tensor, float] | None]:
    """Of each effective matrix before training: the conserved quantity by column, and its scale.

    The scale is the mean of ``g_j^2 + f |w_j|^2``, in the form that the parameterization conserves. The
    model is drawn again from the trial's stream, so that a resumed run has the same.
    """
    model = Transformer(trial.model)
    initialise(model, stream_of(trial))
    results: list[tuple[Tensor, float] | None] = []
    for matrix in effective_matrices(model):
        columns = conserved(matrix, factor)
        if columns is None:
            results.append(None)
            continue
        squares = factor * matrix.values().weight.double().square().sum(0)
        results.append((columns, (columns + 2 * squares).mean().item()))
    return results


def _drift(matrix: EffectiveMatrix, start: tuple[Tensor, float], factor: float) -> dict[str, float | None]:
    """The conserved quantity: its mean, and its mean change by column since the start over its scale."""
    columns = conserved(matrix, factor)
    assert columns is not None
    change = (columns - start[0].to(columns.device)).abs().mean().item()
    return {"conserved": columns.mean().item(), "conserved_drift": change / start[1] if start[1] else None}


def _rates(optimizer: torch.optim.Optimizer) -> tuple[dict[int, float], dict[int, float]]:
    """Learning rate, and learning rate times weight decay, of every parameter by its ``id``."""
    rates: dict[int, float] = {}
    decays: dict[int, float] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            rates[id(parameter)] = float(group["lr"])
            decays[id(parameter)] = float(group["lr"]) * float(group.get("weight_decay", 0.0))
    return rates, decays
