"""AdamW, torch's own."""

import inspect

import torch

from model.config import OptimizerConfig
from model.training.optimizers.base import Group, Unguarded


class _AdamW(Unguarded, torch.optim.AdamW):
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def adamw(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101)."""
    betas = (config.number("beta1"), config.number("beta2"))
    return _AdamW(groups, lr=config.learning_rate, betas=betas, eps=config.number("epsilon"), fused=True)
