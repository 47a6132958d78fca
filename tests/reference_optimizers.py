"""The optimizers' formulas written out, one parameter at a time, to hold the trained ones against."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.config import OptimizerConfig


@dataclass
class Course:
    """What one parameter goes through: its gradients [steps], and rates and decay as its group has them."""

    start: Tensor
    gradients: Sequence[Tensor]
    rates: Sequence[float]
    decay: float
    config: OptimizerConfig

    def steps(self) -> Iterator[tuple[int, Tensor, float]]:
        """(number from 1, gradient, rate) of each step."""
        return zip(range(1, len(self.rates) + 1), self.gradients, self.rates, strict=True)


def adamw(course: Course) -> Tensor:
    beta1, beta2, epsilon = (course.config.number(name) for name in ("beta1", "beta2", "epsilon"))
    p, m, v = course.start, 0.0, 0.0
    for t, g, rate in course.steps():
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        p = p * (1 - rate * course.decay)
        p = p - rate * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + epsilon)
    return p


def sgd(course: Course) -> Tensor:
    momentum = course.config.number("momentum")
    p, m = course.start, torch.zeros_like(course.start)
    for _, g, rate in course.steps():
        m = momentum * m + g
        update = g + momentum * m if course.config.nesterov else m
        p = p * (1 - rate * course.decay) - rate * update
    return p


def muon(course: Course) -> Tensor:
    momentum, rounds = course.config.number("momentum"), int(course.config.number("newton_schulz_steps"))
    rows, columns = course.start.shape
    scale = 0.2 * math.sqrt(max(rows, columns))
    if course.config.update_scale == "original":
        scale = math.sqrt(max(1, rows / columns))
    p, m = course.start, torch.zeros_like(course.start)
    for _, g, rate in course.steps():
        m = momentum * m + (1 - momentum) * g
        update = momentum * m + (1 - momentum) * g if course.config.nesterov else m
        p = p * (1 - rate * course.decay) - rate * scale * orthogonal(update, rounds)
    return p


def orthogonal(matrix: Tensor, rounds: int) -> Tensor:
    """U V^T of the singular value decomposition, nearly: Newton-Schulz in bfloat16, wide side second."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide.bfloat16()
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(rounds):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return (x if wide is matrix else x.T).to(matrix.dtype)
