"""Optimizers of the library pytorch-optimizer, which is imported when one of them is asked for."""

from typing import Any

import torch

from scalevec.model.config import OptimizerConfig
from scalevec.model.train.optim import Group, beside_adamw, moments


def soap(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """SOAP (Vyas et al., arXiv 2409.11321): Adam in the eigenbasis of Shampoo's preconditioner.

    It takes the matrices of the blocks, and of stacked experts each expert's matrix by itself; everything
    else is AdamW's with the same moments, at ``adamw_rate_factor`` times the learning rate. The basis is
    refreshed every ``preconditioner_steps`` steps; an axis above 10,000 keeps its own. The very first step
    only sets it up: it moves and decays nothing. Decay comes after the step: (p - step) (1 - rate * decay).
    """
    options = {"precondition_frequency": int(config.number("preconditioner_steps"))}
    return beside_adamw(
        groups,
        config,
        lambda matrices: _library_optimizer("SOAP", matrices, config, **moments(config), **options),
    )


def lion(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """Lion (Chen et al., arXiv 2302.06675): the sign of an interpolated momentum."""
    betas = (config.number("beta1"), config.number("beta2"))
    return _library_optimizer("Lion", groups, config, betas=betas, weight_decouple=True)


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
        betas=(config.number("beta1"), config.number("beta2")),
        # The library takes the exponent with its sign.
        decay_rate=-config.number("decay_exponent"),
        clip_threshold=config.number("update_clip"),
        weight_decouple=True,
        scale_parameter=False,
        relative_step=False,
        # The library's default is bfloat16, which would round the momentum of float32 training.
        momentum_dtype=torch.float32 if _is_single(groups) else torch.float64,
    )


def ademamix(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdEMAMix (Pagliardini et al., arXiv 2409.03137): AdamW with a second, slow average of the gradient.

    ``alpha`` weighs the slow average, whose ``beta3`` is near one. Over ``slow_warmup_steps`` (0: none) alpha
    rises from zero and the slow average slows down from ``beta1``; the number of steps does not depend on
    the budget, so that budgets can share a trunk.
    """
    warmup = config.number("slow_warmup_steps")
    betas = (config.number("beta1"), config.number("beta2"), config.number("beta3"))
    return _library_optimizer(
        "AdEMAMix",
        groups,
        config,
        betas=betas,
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


def _is_single(groups: list[Group]) -> bool:
    return all(parameter.dtype != torch.float64 for group in groups for parameter in group["params"])


def _library_optimizer(
    name: str, groups: list[Group], config: OptimizerConfig, **options: Any
) -> torch.optim.Optimizer:
    """The library's optimizer ``name`` over ``groups``."""
    import pytorch_optimizer

    optimizer: torch.optim.Optimizer
    optimizer = getattr(pytorch_optimizer, name)(groups, lr=config.learning_rate, **options)
    return optimizer
