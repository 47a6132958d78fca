"""A decoder with norms and vectors that cannot be folded into its matrices, for the transformers library.

This file goes with an exported model and stands alone: it needs torch and transformers. Everything that can
be folded into a matrix has been; what is left behind a map is a norm over ``norm_width`` neighbouring
outputs, a vector, or both.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_outputs import CausalLMOutput


class ScalevecConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """Shape of the decoder under its usual names, and what stands behind which map.

    Maps are named ``query`` ... ``down``, those of a mixture ``experts.gate`` and ``shared_expert.gate``.

    norm_widths: by map, neighbouring outputs that are normalized together (0: no norm).
    vectors: by map with a vector behind it, how many rows that has: one, or one for each expert.
    experts: n_experts, top_k, feed_forward, shared_feed_forward, dense_layers, bias, norm, norm_vector; None.
    hidden_act: of the gates, by its name in transformers.
    """

    model_type = "scalevec"

    def __init__(
        self,
        norm_widths: Mapping[str, int] | None = None,
        vectors: Mapping[str, int] | None = None,
        experts: dict[str, Any] | None = None,
        **further: Any,
    ) -> None:
        self.norm_widths, self.vectors = dict(norm_widths or {}), dict(vectors or {})
        self.experts = experts
        further.setdefault("use_cache", False)
        super().__init__(**further)


def rms_norm(x: Tensor, epsilon: float) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) over the last axis, in float32 or wider."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype)


def normalized(x: Tensor, width: int, epsilon: float) -> Tensor:
    """``x`` with each ``width`` neighbours normalized together; as it is for 0."""
    return rms_norm(x.reshape(*x.shape[:-1], -1, width), epsilon).flatten(-2) if width else x


class ScaledMap(nn.Module):
    """``vector * Norm(W x)``; norm and vector may be absent. With ``count`` a stack of maps, of experts."""

    def __init__(
        self, config: ScalevecConfig, name: str, in_width: int, out_width: int, count: int = 0
    ) -> None:
        super().__init__()
        stack, rows = (count,) if count else (), config.vectors.get(name, 0)
        self.weight = nn.Parameter(torch.empty(*stack, out_width, in_width))
        of_vector = (rows, out_width) if rows > 1 else (out_width,)
        self.vector = nn.Parameter(torch.empty(of_vector)) if rows else None
        self.norm_width, self.epsilon = config.norm_widths.get(name, 0), config.rms_norm_eps

    def forward(self, x: Tensor, expert: int | None = None) -> Tensor:
        """x [..., in_width] to y [..., out_width], of one expert of a stack."""
        weight: Tensor = self.weight
        vector: Tensor | None = self.vector
        if expert is not None:
            weight = weight[expert]
            vector = vector if vector is None or vector.ndim == 1 else vector[expert]
        y = normalized(functional.linear(x, weight), self.norm_width, self.epsilon)
        return y if vector is None else y * vector


def rotate(x: Tensor, base: float) -> Tensor:
    """Rotary embedding of x [batch, length, heads, width]; neighbouring channels form a pair."""
    width, length = x.shape[-1], x.shape[1]
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    pairs = torch.arange(width // 2, dtype=torch.float64, device=x.device)
    angles = torch.outer(
        torch.arange(length, dtype=torch.float64, device=x.device), base ** (-2 * pairs / width)
    )
    cosine, sine = (turn(angles).to(wide.dtype)[:, None] for turn in (torch.cos, torch.sin))
    even, odd = wide[..., 0::2], wide[..., 1::2]
    turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1)
    return turned.flatten(-2).to(x.dtype)


class ExportedAttention(nn.Module):
    """Causal attention with grouped queries and rotary embedding."""

    def __init__(self, config: ScalevecConfig) -> None:
        super().__init__()
        width, self.base = config.hidden_size, config.rope_theta
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        kv = width // self.heads * self.kv_heads
        self.query = ScaledMap(config, "query", width, width)
        self.key = ScaledMap(config, "key", width, kv)
        self.value = ScaledMap(config, "value", width, kv)
        self.output = ScaledMap(config, "output", width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Normalized x [batch, length, width] to the sublayer's output, the same shape."""
        query = rotate(self.query(x).unflatten(-1, (self.heads, -1)), self.base)
        key = rotate(self.key(x).unflatten(-1, (self.kv_heads, -1)), self.base)
        value = self.value(x).unflatten(-1, (self.kv_heads, -1))
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=self.kv_heads != self.heads,
        )
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(-2))
        return result


class ExportedFeedForward(nn.Module):
    """``down(f(gate(x)) * up(x))``; ``prefix`` stands before the names of the maps in the configuration."""

    def __init__(self, config: ScalevecConfig, hidden: int, prefix: str = "", count: int = 0) -> None:
        super().__init__()
        width, self.activation = config.hidden_size, ACT2FN[config.hidden_act]
        self.gate = ScaledMap(config, f"{prefix}gate", width, hidden, count)
        self.up = ScaledMap(config, f"{prefix}up", width, hidden, count)
        self.down = ScaledMap(config, f"{prefix}down", hidden, width, count)

    def forward(self, x: Tensor, expert: int | None = None) -> Tensor:
        """Normalized x [batch, length, width] to the unit's output, the same shape."""
        product = self.activation(self.gate(x, expert)) * self.up(x, expert)
        result: Tensor = self.down(product, expert)
        return result


class ExportedMixture(nn.Module):
    """Each token passes the ``top_k`` experts that the router prefers, and the shared expert."""

    def __init__(self, config: ScalevecConfig) -> None:
        super().__init__()
        assert config.experts is not None
        experts, width = config.experts, config.hidden_size
        count, shared = experts["n_experts"], experts["shared_feed_forward"]
        self.top_k, self.epsilon, self.has_norm = experts["top_k"], config.rms_norm_eps, experts["norm"]
        self.router = nn.Parameter(torch.empty(count, width))
        self.bias = nn.Parameter(torch.empty(count), requires_grad=False) if experts["bias"] else None
        self.experts = ExportedFeedForward(config, experts["feed_forward"], "experts.", count)
        self.shared_expert = ExportedFeedForward(config, shared, "shared_expert.") if shared else None
        self.norm_vector = nn.Parameter(torch.empty(width)) if experts["norm_vector"] else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalized x [batch, length, width] to the sublayer's output; every expert sees every token."""
        probabilities = functional.linear(x.to(self.router.dtype), self.router).softmax(-1)
        scores = probabilities if self.bias is None else probabilities + self.bias
        chosen = scores.topk(self.top_k).indices
        weights = probabilities.gather(-1, chosen)
        weights = weights / weights.sum(-1, keepdim=True) if self.top_k > 1 else weights
        result = torch.zeros_like(x)
        for expert in range(len(self.router)):
            share = (weights * (chosen == expert)).sum(-1, keepdim=True)
            result = result + share * self.experts(x, expert)
        if self.shared_expert is not None:
            result = result + self.shared_expert(x)
        result = rms_norm(result, self.epsilon) if self.has_norm else result
        return result if self.norm_vector is None else result * self.norm_vector


class ExportedBlock(nn.Module):
    """ExportedAttention and feed-forward, each behind a norm and added to the residual stream."""

    def __init__(self, config: ScalevecConfig, layer: int) -> None:
        super().__init__()
        self.epsilon = config.rms_norm_eps
        self.attention = ExportedAttention(config)
        is_mixture = config.experts is not None and layer >= config.experts["dense_layers"]
        dense = config.intermediate_size
        self.feed_forward = ExportedMixture(config) if is_mixture else ExportedFeedForward(config, dense)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The residual stream [batch, length, width] before and after the layer."""
        x = x + self.attention(rms_norm(x, self.epsilon), mask)
        change: Tensor = self.feed_forward(rms_norm(x, self.epsilon))
        return x + change


class ScalevecForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[no-untyped-call]
    """The whole decoder. It keeps no cache: each new token reads the whole text."""

    config_class = ScalevecConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"lm_head.weight": "embedding.weight"}  # noqa: RUF012 (transformers reads it there)

    def __init__(self, config: ScalevecConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.embedding = nn.Embedding(config.vocab_size, width)
        self.blocks = nn.ModuleList(ExportedBlock(config, layer) for layer in range(config.num_hidden_layers))
        self.final_vector = nn.Parameter(torch.ones(width))
        self.lm_head = nn.Linear(width, config.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        """Weights come from the file."""

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding."""
        return self.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding."""
        assert isinstance(value, nn.Embedding)
        self.embedding = value

    def get_output_embeddings(self) -> nn.Linear:
        """The head."""
        head: nn.Linear = self.lm_head
        return head

    def prepare_inputs_for_generation(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> dict[str, Any]:
        """The whole text so far: nothing is cached."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> CausalLMOutput:
        """Logits [batch, length, vocabulary] of the token after each of ``input_ids`` [batch, length]."""
        mask = _mask(attention_mask, input_ids.shape[1])
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x, mask)
        logits = self.lm_head(rms_norm(x, self.config.rms_norm_eps) * self.final_vector)
        loss = None
        if labels is not None:
            loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)


def _mask(attention_mask: Tensor | None, length: int) -> Tensor | None:
    """Who sees whom, [batch, 1, length, length]; None where all that went before is seen."""
    if attention_mask is None or attention_mask.bool().all():
        return None
    causal = torch.ones(length, length, dtype=torch.bool, device=attention_mask.device).tril()
    # A padded position sees itself, so that no row is empty.
    itself = torch.eye(length, dtype=torch.bool, device=attention_mask.device)
    return ((causal & attention_mask.bool()[:, None, :]) | itself)[:, None]
