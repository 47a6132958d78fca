"""Optimizers, and the parameter groups that scale vectors need: their own decay and learning rate.

An optimizer is a function of parameter groups and options, and an entry in ``model.optimization.OPTIMIZERS``.
It decays p <- p (1 - learning rate * decay), with the group's own learning rate and decay, before its step
unless it says otherwise. AdamW and SGD are here, with what all share.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from scalevec.model.config import OptimizerConfig, Trial
from scalevec.model.decoder import Transformer, parameter_roles
from scalevec.model.optimization import imported

Kind = Literal["matrix", "stack", "other"]
"""A matrix of a block, a stack [experts, rows, columns] of such matrices, or anything else."""
Group = dict[str, Any]
"""``params``, those of :func:`parameter_groups`, and options of the optimizer."""
Stack = tuple[torch.nn.Parameter, list[torch.nn.Parameter]]
"""A parameter [experts, rows, columns], and views of its matrices that are parameters themselves."""

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
    factory: Callable[..., torch.optim.Optimizer] = imported(config.registered.factory)
    return factory(groups, config, **config.keywords())


def parameter_groups(model: Transformer, trial: Trial) -> list[Group]:
    """Groups of parameters with their ``weight_decay``, ``learning_rate_factor``, ``kind`` and ``vectors``.

    Matrices, embedding and head decay; scale vectors, whose groups have ``vectors`` true, decay as the
    strategy says for their role. Kinds are told apart only for an optimizer of matrices.
    """
    kinds = KINDS if trial.optimizer.registered.matrices_only else {}
    strategy = trial.model.scale_vectors
    members: defaultdict[tuple[float, float, Kind, bool], list[torch.nn.Parameter]] = defaultdict(list)
    roles = parameter_roles(model)
    for name, parameter in model.named_parameters():
        decay, factor = trial.optimizer.weight_decay, 1.0
        if is_vector := roles[name] in SCALE_VECTOR_ROLES:
            factor = strategy.learning_rate_factor
            decay = strategy.decay_of(SCALE_VECTOR_ROLES[roles[name]], name.rpartition(".")[2], decay)
        members[decay, factor, kinds.get(roles[name], "other"), is_vector].append(parameter)
    names = ("weight_decay", "learning_rate_factor", "kind", "vectors")
    return [
        {"params": parameters, **dict(zip(names, of_group, strict=True))}
        for of_group, parameters in members.items()
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Give every group its share of ``learning_rate`` for the next step."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["learning_rate_factor"]


def moments(config: OptimizerConfig) -> dict[str, Any]:
    """The options that Adam and its kin share, as torch and pytorch-optimizer call them."""
    return {"betas": (config.number("beta1"), config.number("beta2")), "eps": config.number("epsilon")}


def adamw(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101), torch's own."""
    return torch.optim.AdamW(groups, lr=config.learning_rate, **moments(config), fused=True)


class _SGD(torch.optim.Optimizer):
    """Not torch's, whose decay goes through the momentum: p <- p (1 - learning rate * decay) does not."""

    def __init__(self, groups: list[Group], momentum: float, nesterov: bool) -> None:
        super().__init__(groups, {"lr": 0.0, "weight_decay": 0.0})
        self.momentum, self.nesterov = momentum, nesterov

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no caller has a closure
        """One step of every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if (update := parameter.grad) is None:
                    continue
                if self.momentum:
                    state = self.state[parameter]
                    past = state.get("momentum_buffer", torch.zeros((), device=update.device))
                    average = state["momentum_buffer"] = self.momentum * past + update
                    update = update + self.momentum * average if self.nesterov else average
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(update, alpha=group["lr"])


def sgd(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """p <- p - learning rate * m, m <- momentum * m + gradient; with ``nesterov`` gradient + momentum * m.

    With a momentum of zero, the default, m is the gradient: plain descent, as theory has it.
    """
    return _SGD(groups, config.number("momentum"), config.option("nesterov"))


class Together(torch.optim.Optimizer):
    """Optimizers with parameters of their own, that of the matrices first, behind the interface of one.

    The matrices of ``stacks`` are given their part of the stack's gradient before each step.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], stacks: Sequence[Stack] = ()) -> None:
        self.optimizers, self.stacks = tuple(optimizers), tuple(stacks)
        super().__init__([group for optimizer in optimizers for group in optimizer.param_groups], {})
        # The groups and the state are those of the members: what is set or loaded here is what they see.
        self.param_groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        for optimizer in self.optimizers:
            optimizer.state = self.state

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, those of the stacks too."""
        super().zero_grad(set_to_none)
        for stack, matrices in self.stacks:
            for parameter in (stack, *matrices):
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no caller has a closure
        """One step of each member."""
        self.spread_gradients()
        self.step_members()

    def spread_gradients(self) -> None:
        """Give the matrices of stacks their part of the stack's gradient."""
        for stack, matrices in self.stacks:
            for index, matrix in enumerate(matrices):
                # A view of the stack's gradient: nothing is copied.
                matrix.grad = None if stack.grad is None else stack.grad[index]

    def step_members(self) -> None:
        """One step of each member over the gradients that are there."""
        for optimizer in self.optimizers:
            optimizer.step()

    @property
    def of_matrices(self) -> torch.optim.Optimizer:
        """The member that takes the matrices, each by itself."""
        return self.optimizers[0]


def beside_adamw(
    groups: list[Group], config: OptimizerConfig, build: Callable[[list[Group]], torch.optim.Optimizer]
) -> torch.optim.Optimizer:
    """What ``build`` makes for the matrices of ``groups``, and AdamW for their other parameters.

    A stack is taken apart into its matrices.
    """
    matrices, others, stacks = list[Group](), list[Group](), list[Stack]()
    for group in groups:
        if group["kind"] == "other":
            factor = group["learning_rate_factor"] * config.number("adamw_rate_factor")
            others.append({**group, "learning_rate_factor": factor})
        elif group["kind"] == "stack":
            # Views again: a step of a matrix writes into the stack itself.
            views = [[torch.nn.Parameter(matrix) for matrix in stack.detach()] for stack in group["params"]]
            stacks += zip(group["params"], views, strict=True)
            matrices.append({**group, "params": [matrix for of_stack in views for matrix in of_stack]})
        else:
            matrices.append(group)
    return Together([build(matrices), adamw(others, config)], stacks)
