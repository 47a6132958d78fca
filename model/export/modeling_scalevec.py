"""A Llama with norms behind some of its linear maps, or with experts, for the transformers library.

This file goes with an exported model and stands alone: it needs torch and transformers. Every scale vector
that folds into a matrix has been folded; config.json says behind which maps a norm is left.
"""

import copy
import re
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm


class ScalevecConfig(LlamaConfig):  # type: ignore[no-untyped-call]
    """A Llama's configuration, and what it has besides.

    norm_widths: by the name of a linear map (``model.layers.*.self_attn.q_proj``, ``lm_head``), how many
        neighbouring outputs are normalized together; a map that is not named has no norm behind it.
    experts: n_experts, top_k, feed_forward, shared_feed_forward (0: no shared expert), dense_layers (so many
        first layers have no experts), norm (whether one stands behind their sum); None without experts.
    """

    model_type = "scalevec"
    # Empty, not a Llama's: a norm over all outputs of a map does not fit maps that are cut by columns.
    base_model_tp_plan: ClassVar[dict[str, Any]] = {}
    norm_widths: dict[str, int] | None = None
    experts: dict[str, Any] | None = None


class NormedLinear(nn.Linear):
    """``vector * Norm(W x)``: each ``norm_width`` neighbouring outputs are normalized together."""

    def __init__(self, in_width: int, out_width: int, norm_width: int, epsilon: float) -> None:
        super().__init__(in_width, out_width, bias=False)
        self.vector = nn.Parameter(torch.ones(out_width))
        self.norm_width, self.epsilon = norm_width, epsilon

    def forward(self, input: Tensor) -> Tensor:
        """[..., in_width] to [..., out_width]."""
        y = super().forward(input)
        # Not -1: an expert that no token chose has no rows.
        wide = y.float().reshape(*y.shape[:-1], y.shape[-1] // self.norm_width, self.norm_width)
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        result: Tensor = self.vector * normed.flatten(-2).to(y.dtype)
        return result


class ExportedMixture(nn.Module):
    """Each token passes the ``top_k`` experts that the router prefers, and the shared expert."""

    def __init__(self, config: ScalevecConfig) -> None:
        super().__init__()
        experts = config.experts or {}
        width, count, shared = config.hidden_size, experts["n_experts"], experts["shared_feed_forward"]
        self.top_k = experts["top_k"]
        self.router = nn.Linear(width, count, bias=False)
        self.bias = nn.Parameter(torch.zeros(count), requires_grad=False)
        self.experts = nn.ModuleList(gated_unit(config, experts["feed_forward"]) for _ in range(count))
        self.shared_expert = gated_unit(config, shared) if shared else None
        self.norm = LlamaRMSNorm(width, eps=config.rms_norm_eps) if experts["norm"] else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Normalized x [batch, length, width] to the sublayer's output, the same shape."""
        rows = x.flatten(0, -2)
        probabilities = self.router(rows).float().softmax(-1)
        # The bias balances the load: it decides who is chosen, never with what weight.
        chosen = (probabilities + self.bias).topk(self.top_k).indices
        weights = probabilities.gather(-1, chosen)
        weights = (weights / weights.sum(-1, keepdim=True) if self.top_k > 1 else weights).to(x.dtype)
        result = torch.zeros_like(rows) if self.shared_expert is None else self.shared_expert(rows)
        for number, expert in enumerate(self.experts):
            row, choice = (chosen == number).nonzero(as_tuple=True)
            result = result.index_add(0, row, expert(rows[row]) * weights[row, choice, None])
        normed: Tensor = self.norm(result)
        return normed.view_as(x)


def gated_unit(config: ScalevecConfig, hidden: int) -> LlamaMLP:
    """A feed-forward unit of ``hidden`` channels."""
    config = copy.copy(config)
    config.intermediate_size = hidden
    return LlamaMLP(config)  # type: ignore[no-untyped-call]


class ScalevecForCausalLM(LlamaForCausalLM):  # type: ignore[no-untyped-call]
    """The whole decoder."""

    config_class = ScalevecConfig

    def __init__(self, config: ScalevecConfig) -> None:
        super().__init__(config)
        if config.experts is not None:
            for layer in self.model.layers[config.experts["dense_layers"] :]:
                layer.mlp = ExportedMixture(config)
        for name, map_ in list(self.named_modules()):
            width = (config.norm_widths or {}).get(re.sub(r"\.\d+\.", ".*.", name))
            if width is not None:
                shape = map_.in_features, map_.out_features
                self.set_submodule(name, NormedLinear(*shape, width, config.rms_norm_eps))
        self.post_init()  # type: ignore[no-untyped-call]
