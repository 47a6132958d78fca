"""Causal self-attention with rotary positions, its vectors folded into its matrices."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from scalevec.model.config import ModelConfig
from scalevec.model.ops import added, rms_norm, rotate
from scalevec.model.scale_vectors import (
    LinearMap,
    effective,
    joint_map,
    joint_weight,
    post_norm_gains,
    scaled,
    scaled_map,
    shared_vector,
)
from scalevec.model.strategies import ATTENTION_INPUT_MAPS


class AttentionWeights(NamedTuple):
    """The weights of an attention with all vectors that fold into them, and those that stand behind norms.

    joint: of queries, keys and values. qk_gain: behind the norms of queries and keys.
    """

    joint: Tensor
    output: Tensor
    qk_gain: Tensor | None
    behind_output: Tensor | None

    def narrowed(self, dtype: torch.dtype) -> "AttentionWeights":
        """With the weights of products in ``dtype``."""
        return self._replace(joint=self.joint.to(dtype), output=self.output.to(dtype))


class Attention(nn.Module):
    """Causal self-attention with grouped queries, behind a norm and added to the residual stream.

    A variant of attention is a subclass and an entry in ``model.config.ATTENTIONS``: :meth:`mix` is what most
    of them change. Parameters, FLOPs of the maps, memory and folding follow from the module.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        shape = config.shape
        self.config = config
        width, kv = shape.width, shape.kv_heads * shape.head_width
        self.shared_vector = shared_vector(config, ATTENTION_INPUT_MAPS)
        self.query = scaled_map("query", config, width, width)
        self.key = scaled_map("key", config, width, kv)
        self.value = scaled_map("value", config, width, kv)
        self.output = scaled_map("output", config, width, width)

    def weights(self) -> AttentionWeights:
        """What a pass needs of the parameters."""
        maps = (self.query, self.key, self.value)
        joint = joint_weight(maps, self._shared_vectors())
        output = joint_weight((self.output,), (self._value_gain(),))
        return AttentionWeights(joint, output, post_norm_gains(maps[:2]), self.output.post_norm_gain())

    def forward(self, x: Tensor, table: Tensor, weights: AttentionWeights) -> Tensor:
        """The residual stream [batch, length, width] before and after attention.

        ``table`` is that of the rotary embedding, ``weights`` those of :meth:`weights`.
        """
        shape, epsilon = self.config.shape, self.config.norm_epsilon
        maps = (self.query, self.key, self.value)
        joint = joint_map(maps, rms_norm(x, epsilon), epsilon, weights.joint)
        query_heads, kv_heads = shape.heads, shape.kv_heads
        heads = joint.view(*x.shape[:-1], query_heads + 2 * kv_heads, shape.head_width)
        query_key, value = torch.split(heads, [query_heads + kv_heads, kv_heads], -2)
        if weights.qk_gain is not None:
            query_key = query_key * weights.qk_gain.view(query_heads + kv_heads, shape.head_width)
        query, key = torch.split(rotate(query_key, table), [query_heads, kv_heads], -2)
        mixed = self.mix(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
        output = joint_map((self.output,), mixed.transpose(1, 2).flatten(-2), epsilon, weights.output)
        return added(x, scaled(output, weights.behind_output))

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The values mixed by causal softmax attention, [batch, heads, length, head_width].

        ``query`` is [batch, heads, length, head_width], ``key`` and ``value`` have ``kv_heads`` of them.
        """
        grouped = self.config.shape.kv_heads != self.config.shape.heads
        return scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)

    def maps(self) -> Iterator[tuple[str, LinearMap, Tensor | None]]:
        """Each linear map by its name, with the vector that it shares with others."""
        for name, shared in zip(ATTENTION_INPUT_MAPS, self._shared_vectors(), strict=True):
            yield name, getattr(self, name), shared
        yield "output", self.output, None

    def _shared_vectors(self) -> list[Tensor | None]:
        """For queries, keys and values the vector that they share, None for one that has its own."""
        shared, has_own = effective(self.shared_vector), self.config.scale_vectors.has_own_input_vector
        return [None if has_own(name) else shared for name in ATTENTION_INPUT_MAPS]

    def _value_gain(self) -> Tensor | None:
        """The gain behind the values' norm as the output map sees it, [width]: mixing commutes with it."""
        gain = self.value.post_norm_gain()
        if gain is None:
            return None
        shape = self.config.shape
        by_head = gain.view(shape.kv_heads, shape.head_width)
        return by_head.repeat_interleave(shape.heads // shape.kv_heads, dim=0).flatten()
