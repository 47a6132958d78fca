"""The optimizers' formulas written out, one parameter at a time, to hold the trained ones against."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scalevec.model.config import OptimizerConfig


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


def soap(course: Course) -> Tensor:
    beta1, beta2, epsilon = (course.config.number(name) for name in ("beta1", "beta2", "epsilon"))
    every = int(course.config.number("preconditioner_steps"))
    p = course.start
    m = v = torch.zeros_like(p)
    rows, columns = (torch.zeros(n, n, dtype=p.dtype) for n in p.shape)
    for t, g, rate in course.steps():
        if t == 1:  # only the basis is set up
            rows, columns = (1 - beta2) * g @ g.T, (1 - beta2) * g.T @ g
            left, right = (torch.linalg.eigh(factor)[1].flip(1) for factor in (rows, columns))
            continue
        step = t - 1
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * (left.T @ g @ right) ** 2
        corrected = rate * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        turned = (left.T @ m @ right) / (v.sqrt() + epsilon)
        p = (p - corrected * left @ turned @ right.T) * (1 - rate * course.decay)
        rows = beta2 * rows + (1 - beta2) * g @ g.T
        columns = beta2 * columns + (1 - beta2) * g.T @ g
        if step % every == 0:
            left, by_row = refreshed(rows, left)
            right, by_column = refreshed(columns, right)
            v = v[by_row][:, by_column]
    return p


def refreshed(factor: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """One power iteration towards the eigenbasis, in float32 as the library has it, and its order."""
    order = torch.diag(basis.T @ factor @ basis).argsort(descending=True)
    return torch.linalg.qr((factor @ basis[:, order]).float())[0].to(basis.dtype), order


def lion(course: Course) -> Tensor:
    beta1, beta2 = (course.config.number(name) for name in ("beta1", "beta2"))
    p, m = course.start, torch.zeros_like(course.start)
    for _, g, rate in course.steps():
        p = p * (1 - rate * course.decay) - rate * torch.sign(beta1 * m + (1 - beta1) * g)
        m = beta2 * m + (1 - beta2) * g
    return p


def adafactor(course: Course) -> Tensor:
    beta1, cap = (course.config.number(name) for name in ("beta1", "beta2"))
    exponent, clip = (course.config.number(name) for name in ("decay_exponent", "update_clip"))
    p, m, squares = course.start, torch.zeros_like(course.start), torch.zeros_like(course.start)
    for t, g, rate in course.steps():
        beta2 = min(cap, 1 - t**-exponent)
        squares = beta2 * squares + (1 - beta2) * (g**2 + 1e-30)
        v = squares
        if g.dim() > 1:  # the best product of a row and a column in the mean
            row, column = squares.mean(-1, keepdim=True), squares.mean(-2, keepdim=True)
            v = row * column / row.mean(-2, keepdim=True)
        update = g / v.sqrt()
        update = update / max(1.0, float((update**2).mean().sqrt()) / clip)
        m = beta1 * m + (1 - beta1) * rate * update
        p = p * (1 - rate * course.decay) - m
    return p


def ademamix(course: Course) -> Tensor:
    beta1, beta2, beta3 = (course.config.number(name) for name in ("beta1", "beta2", "beta3"))
    alpha, epsilon = (course.config.number(name) for name in ("alpha", "epsilon"))
    warmup = course.config.number("slow_warmup_steps")
    p = course.start
    fast = slow = v = torch.zeros_like(p)
    for t, g, rate in course.steps():
        share = min(t / warmup, 1.0) if warmup else 1.0
        # The logarithm of 1/beta goes linearly in its inverse from beta1's to beta3's.
        inverse = (1 - share) / math.log(beta1) + share / math.log(beta3)
        late = math.exp(1 / inverse)
        fast = beta1 * fast + (1 - beta1) * g
        slow = late * slow + (1 - late) * g
        v = beta2 * v + (1 - beta2) * g**2
        update = (fast / (1 - beta1**t) + share * alpha * slow) / ((v / (1 - beta2**t)).sqrt() + epsilon)
        p = p * (1 - rate * course.decay) - rate * update
    return p


def adopt(course: Course) -> Tensor:
    beta1, beta2, epsilon = (course.config.number(name) for name in ("beta1", "beta2", "epsilon"))
    p, m, v = course.start, torch.zeros_like(course.start), torch.zeros_like(course.start)
    for t, g, rate in course.steps():
        p = p * (1 - rate * course.decay)
        if t > 1:
            m = beta1 * m + (1 - beta1) * (g / v.sqrt().clamp(min=epsilon)).clamp(-(t**0.25), t**0.25)
            p = p - rate * m
        v = g**2 if t == 1 else beta2 * v + (1 - beta2) * g**2
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
