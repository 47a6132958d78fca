"""Muon for the matrices of the blocks, torch's own, and AdamW for everything else."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.optim._muon import _adjust_lr

from scalevec.model.config import OptimizerConfig
from scalevec.model.train.optim import Group, beside_adamw

_SCALES = {"match-rms-adamw": "match_rms_adamw", "original": "original"}
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
    precision: torch.dtype = torch.bfloat16,
) -> Tensor:
    """Newton-Schulz iterations (https://kellerjordan.github.io/posts/muon) of many matrices at once.

    Args:
        updates: [matrices, rows, columns].
        coefficients: Those of the quintic polynomial.
        steps: How often it is applied.
        eps: The least norm that a matrix is divided by.
        precision: In which all of it is computed.

    Returns:
        [matrices, rows, columns], in ``precision``: of each matrix U S' V^T with S' near 1.
    """
    a, b, c = coefficients
    is_tall = updates.shape[-2] > updates.shape[-1]
    wide = updates.to(precision).mT if is_tall else updates.to(precision)
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
