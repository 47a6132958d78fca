"""Muon for the matrices of the blocks, torch's own, and AdamW for everything else."""

from collections.abc import Callable

import torch

from scalevec.model.config import OptimizerConfig
from scalevec.model.training.optimizers.adamw import adamw
from scalevec.model.training.optimizers.base import Group, Stack, Together, WithoutCompilerGuards, matrices_of

_SCALES = {"match-rms-adamw": "match_rms_adamw", "original": "original"}


class _Muon(WithoutCompilerGuards, torch.optim.Muon):
    """Two-dimensional parameters only."""


def muon(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """Muon (https://kellerjordan.github.io/posts/muon): momentum, made orthogonal in bfloat16.

    It takes the matrices of the blocks, and of stacked experts each expert's matrix by itself. Embedding,
    head and scale vectors are AdamW's, at ``adamw_rate_factor`` times the learning rate.
    ``update_scale``: ``match-rms-adamw`` multiplies the learning rate of a matrix [rows, columns] by
    0.2 sqrt(max(rows, columns)), so that AdamW's learning rate and decay serve here too (arXiv 2502.16982);
    ``original`` by sqrt(max(1, rows / columns)). Decay is by the learning rate before this factor.
    """
    scale = _SCALES[config.option("update_scale")]
    return beside_adamw(
        groups,
        config,
        lambda matrices: _Muon(
            matrices,
            lr=config.learning_rate,
            momentum=config.number("momentum"),
            nesterov=config.option("nesterov"),
            ns_steps=int(config.number("newton_schulz_steps")),
            adjust_lr_fn=scale,
        ),
    )


def beside_adamw(
    groups: list[Group], config: OptimizerConfig, build: Callable[[list[Group]], torch.optim.Optimizer]
) -> torch.optim.Optimizer:
    """What ``build`` makes for the matrices of ``groups``, and AdamW for their other parameters."""
    matrices, others = [], []
    stacks: list[Stack] = []
    for group in groups:
        if group["kind"] == "stack":
            group, views = matrices_of(group)
            stacks += views
        if group["kind"] == "other":
            factor = group["learning_rate_factor"] * config.number("adamw_rate_factor")
            others.append({**group, "learning_rate_factor": factor})
        else:
            matrices.append(group)
    return Together([build(matrices), adamw(others, config)], stacks)
