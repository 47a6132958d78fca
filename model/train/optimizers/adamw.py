"""AdamW, torch's own."""

import inspect

import torch

from scalevec.model.config import OptimizerConfig
from scalevec.model.train.optimizers.base import Group, WithoutCompilerGuards


class _AdamW(WithoutCompilerGuards, torch.optim.AdamW):
    # The guard that is taken off is also what turns gradients off during a step.
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def adamw(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101)."""
    betas = (config.number("beta1"), config.number("beta2"))
    return _AdamW(groups, lr=config.learning_rate, betas=betas, eps=config.number("epsilon"), fused=True)
