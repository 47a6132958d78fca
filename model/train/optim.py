"""Optimizers, and the parameter groups that scale vectors need: their own decay and learning rate.

An optimizer is a function of parameter groups and options, and an entry in ``model.optimization.OPTIMIZERS``.
It decays p <- p (1 - learning rate * decay), with the group's own learning rate and decay, before its step
unless it says otherwise. Muon is torch's own; those of the library pytorch-optimizer are last, which is
imported when one of them is asked for.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim._muon import _adjust_lr

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
    return {"betas": _betas(config), "eps": config.number("epsilon")}


def _betas(config: OptimizerConfig) -> tuple[float, float]:
    return config.number("beta1"), config.number("beta2")


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
        for stack, matrices in self.stacks:
            for index, matrix in enumerate(matrices):
                # A view of the stack's gradient: nothing is copied.
                matrix.grad = None if stack.grad is None else stack.grad[index]
        for optimizer in self.optimizers:
            optimizer.step()


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


MOST_TOGETHER = 2**26
"""Entries of the matrices that are made orthogonal together; larger ones fill a GPU by themselves."""


class _Muon(torch.optim.Muon):
    """Two-dimensional parameters only. On a CPU the step is torch's own, on whose bits results depend."""

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no caller has a closure
        """One step over the gradients that are there."""
        if not any(matrix.is_cuda for group in self.param_groups for matrix in group["params"]):
            super().step()  # type: ignore[no-untyped-call]
            return
        for group in self.param_groups:
            self.step_together(group)

    def step_together(self, group: Group) -> None:
        """One step of a group in which matrices of one shape are made orthogonal together."""
        gradients: list[Tensor] = []
        buffers: list[Tensor] = []
        parameters: list[Tensor] = []
        self._init_group(group, parameters, gradients, buffers)
        for members in _of_one_shape(parameters):
            matrices, slopes, moments = (
                [each[at] for at in members] for each in (parameters, gradients, buffers)
            )
            torch._foreach_lerp_(moments, slopes, 1 - group["momentum"])
            ahead = torch._foreach_lerp(slopes, moments, group["momentum"]) if group["nesterov"] else moments
            turned = orthogonal(
                torch.stack(list(ahead)), group["ns_coefficients"], group["ns_steps"], group["eps"]
            )
            rate = _adjust_lr(group["lr"], group["adjust_lr_fn"], matrices[0].shape)
            torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(matrices, list(turned.to(matrices[0].dtype).unbind()), alpha=-rate)


def _of_one_shape(parameters: Sequence[Tensor]) -> Iterator[list[int]]:
    """The places of parameters of one shape, as many at a time as are worth it."""
    by_shape: defaultdict[torch.Size, list[int]] = defaultdict(list)
    for at, parameter in enumerate(parameters):
        by_shape[parameter.shape].append(at)
    for shape, members in by_shape.items():
        most = max(1, MOST_TOGETHER // shape.numel())
        yield from (members[start : start + most] for start in range(0, len(members), most))


def orthogonal(
    updates: Tensor,
    coefficients: tuple[float, float, float],
    steps: int,
    eps: float,
) -> Tensor:
    """Newton-Schulz iterations (https://kellerjordan.github.io/posts/muon) of many matrices at once.

    Args:
        updates: [matrices, rows, columns].
        coefficients: Those of the quintic polynomial.
        steps: How often it is applied.
        eps: The least norm that a matrix is divided by.

    Returns:
        [matrices, rows, columns], computed in bfloat16: of each matrix U S' V^T with S' near 1.
    """
    a, b, c = coefficients
    is_tall = updates.shape[-2] > updates.shape[-1]
    narrow = updates.to(torch.bfloat16)
    wide = narrow.mT if is_tall else narrow
    wide = wide / wide.norm(dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.mT if is_tall else wide


def muon(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """Muon (https://kellerjordan.github.io/posts/muon): momentum, made orthogonal in bfloat16.

    It takes the matrices of the blocks, and of stacked experts each expert's matrix by itself. Embedding,
    head and scale vectors are AdamW's, at ``adamw_rate_factor`` times the learning rate.
    ``update_scale``: ``match-rms-adamw`` multiplies the learning rate of a matrix [rows, columns] by
    0.2 sqrt(max(rows, columns)), so that AdamW's learning rate and decay serve here too (arXiv 2502.16982);
    ``original`` by sqrt(max(1, rows / columns)). Decay is by the learning rate before this factor.
    """
    return beside_adamw(
        groups,
        config,
        lambda matrices: _Muon(
            matrices,
            lr=config.learning_rate,
            momentum=config.number("momentum"),
            nesterov=config.option("nesterov"),
            ns_steps=int(config.number("newton_schulz_steps")),
            adjust_lr_fn=config.option("update_scale").replace("-", "_"),
        ),
    )


def soap(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """SOAP (Vyas et al., arXiv 2409.11321): Adam in the eigenbasis of Shampoo's preconditioner.

    It takes the matrices of the blocks, and of stacked experts each expert's matrix by itself; everything
    else is AdamW's with the same moments, at ``adamw_rate_factor`` times the learning rate. The basis is
    refreshed every ``preconditioner_steps`` steps; an axis above 10,000 keeps its own. The very first step
    only sets it up: it moves and decays nothing. Decay comes after the step: (p - step) (1 - rate * decay).
    """
    options = {**moments(config), "precondition_frequency": int(config.number("preconditioner_steps"))}
    return beside_adamw(
        groups, config, lambda matrices: _library_optimizer("SOAP", matrices, config, **options)
    )


def lion(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """Lion (Chen et al., arXiv 2302.06675): the sign of an interpolated momentum."""
    return _library_optimizer("Lion", groups, config, betas=_betas(config), weight_decouple=True)


def adafactor(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """Adafactor (Shazeer & Stern, arXiv 1804.04235) with momentum, at the learning rate that is given.

    Neither the size of a parameter nor the number of the step scales the rate. The second moment decays by
    min(beta2, 1 - step^(-decay_exponent)) and is factored into rows and columns from two axes on; a larger
    root mean square of the update than ``update_clip`` is scaled down to it; momentum is over the updates.
    """
    return _library_optimizer(
        "AdaFactor",
        groups,
        config,
        betas=_betas(config),
        # The library takes the exponent with its sign.
        decay_rate=-config.number("decay_exponent"),
        clip_threshold=config.number("update_clip"),
        weight_decouple=True,
        scale_parameter=False,
        relative_step=False,
        # The library's default is bfloat16, which would round the momentum of float32 training.
        momentum_dtype=torch.promote_types(groups[0]["params"][0].dtype, torch.float32),
    )


def ademamix(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdEMAMix (Pagliardini et al., arXiv 2409.03137): AdamW with a second, slow average of the gradient.

    ``alpha`` weighs the slow average, whose ``beta3`` is near one. Over ``slow_warmup_steps`` (0: none) alpha
    rises from zero and the slow average slows down from ``beta1``; the number of steps does not depend on
    the budget, so that budgets can share a trunk.
    """
    warmup = config.number("slow_warmup_steps")
    return _library_optimizer(
        "AdEMAMix",
        groups,
        config,
        betas=(*_betas(config), config.number("beta3")),
        eps=config.number("epsilon"),
        alpha=config.number("alpha"),
        t_alpha_beta3=warmup if warmup > 0 else None,
        weight_decouple=True,
    )


def adopt(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """ADOPT (Taniguchi et al., arXiv 2411.02853): Adam normalized by the second moment of before the step.

    The normalized gradient is clipped at step^(1/4). The very first step sets up the second moment and
    only decays.
    """
    return _library_optimizer("ADOPT", groups, config, **moments(config), weight_decouple=True)


def _library_optimizer(
    name: str, groups: list[Group], config: OptimizerConfig, **options: Any
) -> torch.optim.Optimizer:
    """The library's optimizer ``name`` over ``groups``."""
    import pytorch_optimizer

    optimizer: torch.optim.Optimizer
    optimizer = getattr(pytorch_optimizer, name)(groups, lr=config.learning_rate, **options)
    return optimizer
