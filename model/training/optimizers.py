"""Optimizers, and the parameter groups that scale vectors need: their own decay and learning rate."""

import inspect
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from model.config import OptimizerConfig, Trial
from model.transformer import Transformer, parameter_roles

Group = dict[str, Any]
OptimizerFactory = Callable[[list[Group], OptimizerConfig], torch.optim.Optimizer]

SCALE_VECTOR_ROLES = {"scale_vector_input": "input", "scale_vector_output": "output"}


class _AdamW(torch.optim.AdamW):
    """torch's AdamW without the guards around its methods, which spend seconds on importing torch.compile."""

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def adamw(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101), with decay p <- p (1 - learning rate * decay)."""
    betas = (config.beta1, config.beta2)
    return _AdamW(groups, lr=config.learning_rate, betas=betas, eps=config.epsilon, fused=True)


OPTIMIZERS: dict[str, OptimizerFactory] = {"adamw": adamw}


def build_optimizer(model: Transformer, trial: Trial) -> torch.optim.Optimizer:
    """The optimizer of ``trial`` over all parameters of ``model``, grouped by what the groups differ in."""
    return OPTIMIZERS[trial.optimizer.name](parameter_groups(model, trial), trial.optimizer)


def parameter_groups(model: Transformer, trial: Trial) -> list[Group]:
    """Groups of parameters with their ``weight_decay`` and ``learning_rate_factor``.

    Matrices, embedding and head decay; scale vectors decay as the strategy says for their role.
    """
    strategy = trial.model.scale_vectors
    members: defaultdict[tuple[float, float], list[torch.nn.Parameter]] = defaultdict(list)
    roles = parameter_roles(model)
    for name, parameter in model.named_parameters():
        decay, factor = trial.optimizer.weight_decay, 1.0
        if roles[name] in SCALE_VECTOR_ROLES:
            factor = strategy.learning_rate_factor
            decay = decay if strategy.decays(SCALE_VECTOR_ROLES[roles[name]]) else 0.0
        members[decay, factor].append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "learning_rate_factor": factor}
        for (decay, factor), parameters in members.items()
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Give every group its share of ``learning_rate`` for the next step."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["learning_rate_factor"]
