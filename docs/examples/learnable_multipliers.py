"""Falcon's learnable multipliers (arXiv 2601.04890) as a plugin: every map is ``s diag(r) W diag(c)``.

The vectors are those of dual placement on all maps, with a scalar in each (``reparameterization: product``).
They decay by a rate of their own (``vector_weight_decay``) and stay out of the norm that gradients are
clipped to, which is what the optimizer below is for.
"""

from typing import Any

import torch

from scalevec import plugins


class ClippingMatricesAlone(torch.optim.AdamW):
    """AdamW that clips the gradients of all parameters but the scale vectors, to a norm of ``norm``."""

    def __init__(self, groups: Any, config: Any, norm: float) -> None:
        super().__init__(groups, lr=config.learning_rate, betas=(0.9, 0.95), fused=True)
        self._norm = norm

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Clip, then one step of AdamW."""
        groups = [group["params"] for group in self.param_groups if not group["vectors"]]
        torch.nn.utils.clip_grad_norm_([p for parameters in groups for p in parameters], self._norm)
        super().step()


@plugins.optimizer("adamw-clipping-matrices", allowed={"matrix_clip_norm": "(0, inf)"}, state=2)
def adamw_clipping_matrices(
    groups: Any, config: Any, *, matrix_clip_norm: float = 1.0
) -> torch.optim.Optimizer:
    """AdamW with a clip norm for the matrices; that of the sweep file, for all, is then set out of reach."""
    return ClippingMatricesAlone(groups, config, matrix_clip_norm)
