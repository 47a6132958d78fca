"""Optimizers, and the parameter groups that scale vectors need: their own decay and learning rate.

Each takes groups and options (``model.optimization``) and decays p <- p (1 - learning rate * decay), with
the group's own learning rate and decay, before its step unless it says otherwise.
"""

from collections import defaultdict

import torch

from model.config import Trial
from model.training.optimizers.adamw import adamw
from model.training.optimizers.base import Factory, Group, Kind
from model.training.optimizers.library import adafactor, ademamix, adopt, lion, soap
from model.training.optimizers.muon import muon
from model.training.optimizers.sgd import sgd
from model.transformer import Transformer, parameter_roles

__all__ = ["OPTIMIZERS", "build_optimizer", "parameter_groups", "set_learning_rate"]

OPTIMIZERS: dict[str, Factory] = {
    "adamw": adamw,
    "sgd": sgd,
    "muon": muon,
    "soap": soap,
    "lion": lion,
    "adafactor": adafactor,
    "ademamix": ademamix,
    "adopt": adopt,
}

SCALE_VECTOR_ROLES = {"scale_vector_input": "input", "scale_vector_output": "output"}
OF_MATRICES = ("muon", "soap")
"""Optimizers that take the blocks' matrices only, and leave the rest to AdamW."""
KINDS: dict[str, Kind] = {"matrix": "matrix", "experts": "stack"}
"""Roles of the parameters that they take; every other role is ``other``."""


def build_optimizer(model: Transformer, trial: Trial) -> torch.optim.Optimizer:
    """The optimizer of ``trial`` over all parameters of ``model``, grouped by what the groups differ in."""
    return OPTIMIZERS[trial.optimizer.name](parameter_groups(model, trial), trial.optimizer)


def parameter_groups(model: Transformer, trial: Trial) -> list[Group]:
    """Groups of parameters with their ``weight_decay``, ``learning_rate_factor`` and ``kind``.

    Matrices, embedding and head decay; scale vectors decay as the strategy says for their role. Kinds are
    told apart only for an optimizer of matrices.
    """
    kinds = KINDS if trial.optimizer.name in OF_MATRICES else {}
    strategy = trial.model.scale_vectors
    members: defaultdict[tuple[float, float, Kind], list[torch.nn.Parameter]] = defaultdict(list)
    roles = parameter_roles(model)
    for name, parameter in model.named_parameters():
        decay, factor = trial.optimizer.weight_decay, 1.0
        if roles[name] in SCALE_VECTOR_ROLES:
            factor = strategy.learning_rate_factor
            decay = decay if strategy.decays(SCALE_VECTOR_ROLES[roles[name]]) else 0.0
        members[decay, factor, kinds.get(roles[name], "other")].append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "learning_rate_factor": factor, "kind": kind}
        for (decay, factor, kind), parameters in members.items()
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Give every group its share of ``learning_rate`` for the next step."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["learning_rate_factor"]
