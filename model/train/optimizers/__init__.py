"""Optimizers, and the parameter groups that scale vectors need: their own decay and learning rate.

An optimizer is a function of parameter groups and options, and an entry in ``model.optimization.OPTIMIZERS``.
It decays p <- p (1 - learning rate * decay), with the group's own learning rate and decay, before its step
unless it says otherwise.
"""

from collections import defaultdict
from collections.abc import Callable

import torch

from scalevec.model.config import OptimizerConfig, Trial
from scalevec.model.decoder import Transformer, parameter_roles
from scalevec.model.optimization import imported
from scalevec.model.train.optimizers.base import Factory, Group, Kind

__all__ = ["build_optimizer", "optimizer_over", "parameter_groups", "set_learning_rate"]

SCALE_VECTOR_ROLES = {"scale_vector_input": "input", "scale_vector_output": "output"}
KINDS: dict[str, Kind] = {"matrix": "matrix", "experts": "stack"}
"""Roles of the parameters that an optimizer of matrices takes; every other role is ``other``."""


def build_optimizer(
    model: Transformer, trial: Trial, laid_out: Callable[[list[Group]], list[Group]] = lambda groups: groups
) -> torch.optim.Optimizer:
    """The optimizer of ``trial`` over all parameters of ``model``, grouped by what the groups differ in.

    ``laid_out`` makes of these groups those that this process has.
    """
    return optimizer_over(laid_out(parameter_groups(model, trial)), trial.optimizer)


def optimizer_over(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer that ``config`` names, over ``groups``; its module is imported now."""
    registered = config.registered
    factory: Factory = imported(registered.factory)
    return factory(groups, config, **config.keywords(registered.options))


def parameter_groups(model: Transformer, trial: Trial) -> list[Group]:
    """Groups of parameters with their ``weight_decay``, ``learning_rate_factor`` and ``kind``.

    Matrices, embedding and head decay; scale vectors decay as the strategy says for their role. Kinds are
    told apart only for an optimizer of matrices.
    """
    kinds = KINDS if trial.optimizer.registered.matrices_only else {}
    strategy = trial.model.scale_vectors
    members: defaultdict[tuple[float, float, Kind], list[torch.nn.Parameter]] = defaultdict(list)
    roles = parameter_roles(model)
    for name, parameter in model.named_parameters():
        decay, factor = trial.optimizer.weight_decay, 1.0
        if roles[name] in SCALE_VECTOR_ROLES:
            factor = strategy.learning_rate_factor
            decay = strategy.decay_of(SCALE_VECTOR_ROLES[roles[name]], name.rpartition(".")[2], decay)
        members[decay, factor, kinds.get(roles[name], "other")].append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "learning_rate_factor": factor, "kind": kind}
        for (decay, factor, kind), parameters in members.items()
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Give every group its share of ``learning_rate`` for the next step."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["learning_rate_factor"]
