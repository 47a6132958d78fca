"""The sublayers of a block: attention, and the gated feed-forward unit, which is also a shared expert."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from scalevec.model.config import ModelConfig
from scalevec.model.ops import GATED, rotate
from scalevec.model.scale_vectors import (
    LinearMap,
    ScaleVector,
    effective,
    joint_map,
    joint_weight,
    late_vectors,
    scaled,
    scaled_map,
    shared_vector,
)
from scalevec.model.strategies import ATTENTION_INPUT_MAPS, FEED_FORWARD_INPUT_MAPS

PADDED_TO = {"cuda": 64}
"""By device, a multiple of which hidden channels are made in products: a GPU takes half as long again and
more for others (4,778 = 8/3 x 1,792 of the paper)."""


class AttentionWeights(NamedTuple):
    """The weights of an attention with all vectors that fold into them, and those that stand behind norms.

    joint: of queries, keys and values. turning: behind the norms of queries and keys.
    """

    joint: Tensor
    output: Tensor
    turning: Tensor | None
    behind_output: Tensor | None

    def narrowed(self, dtype: torch.dtype) -> "AttentionWeights":
        """With the weights of products in ``dtype``."""
        return self._replace(joint=self.joint.to(dtype), output=self.output.to(dtype))


class Attention(nn.Module):
    """Causal self-attention with grouped queries; reads the normalized residual stream."""

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
        turning = late_vectors(maps[:2])
        output = joint_weight((self.output,), (self._late_vector_of_values(),))
        return AttentionWeights(joint, output, turning, self.output.late_vector())

    def forward(self, x: Tensor, table: Tensor, weights: AttentionWeights | None = None) -> Tensor:
        """Normalized input [batch, length, width] to the sublayer's output, the same shape.

        ``table`` is that of the rotary embedding.
        """
        shape, epsilon = self.config.shape, self.config.norm_epsilon
        weights = self.weights() if weights is None else weights
        joint = joint_map((self.query, self.key, self.value), x, epsilon, weights.joint)
        turning = shape.heads + shape.kv_heads
        heads = joint.view(*x.shape[:-1], turning + shape.kv_heads, shape.head_width)
        query_key, value = torch.split(heads, [turning, shape.kv_heads], -2)
        if weights.turning is not None:
            query_key = query_key * weights.turning.view(turning, shape.head_width)
        query_key = rotate(query_key, table)
        query, key = torch.split(query_key, [shape.heads, shape.kv_heads], -2)
        mixed = scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
            is_causal=True, enable_gqa=shape.kv_heads != shape.heads,
        )  # fmt: skip
        output = joint_map((self.output,), mixed.transpose(1, 2).flatten(-2), epsilon, weights.output)
        return scaled(output, weights.behind_output)

    def maps(self) -> Iterator[tuple[str, LinearMap, Tensor | None]]:
        """Each linear map by its name, with the vector that it shares with others."""
        for name, shared in zip(ATTENTION_INPUT_MAPS, self._shared_vectors(), strict=True):
            yield name, getattr(self, name), shared
        yield "output", self.output, None

    def _shared_vectors(self) -> list[Tensor | None]:
        """For queries, keys and values the vector that they share, None for one that has its own."""
        shared, has_own = effective(self.shared_vector), self.config.scale_vectors.has_own_input_vector
        return [None if has_own(name) else shared for name in ATTENTION_INPUT_MAPS]

    def _late_vector_of_values(self) -> Tensor | None:
        """The values' late vector as the output map sees it, [width]: mixing values commutes with it."""
        vector = self.value.late_vector()
        if vector is None:
            return None
        shape = self.config.shape
        by_head = vector.view(shape.kv_heads, shape.head_width)
        return by_head.repeat_interleave(shape.heads // shape.kv_heads, dim=0).flatten()


class UnitWeights(NamedTuple):
    """The weights of a gated unit with all vectors that fold into them, and those that stand behind norms."""

    gate: Tensor
    up: Tensor
    down: Tensor
    behind_gate: Tensor | None
    behind_down: Tensor | None

    def padded(self) -> "UnitWeights":
        """With further hidden channels that are zero throughout, where the device wants a round number."""
        more = -self.gate.shape[-2] % PADDED_TO.get(self.gate.device.type, 1)
        if not more:
            return self
        gate, up = (pad(weight, (0, 0, 0, more)) for weight in (self.gate, self.up))
        behind = None if self.behind_gate is None else pad(self.behind_gate, (0, more))
        return UnitWeights(gate, up, pad(self.down, (0, more)), behind, self.behind_down)

    def narrowed(self, dtype: torch.dtype) -> "UnitWeights":
        """With the weights of products in ``dtype``."""
        return self._replace(gate=self.gate.to(dtype), up=self.up.to(dtype), down=self.down.to(dtype))


class GatedUnit(nn.Module):
    """``down(f(gate(x)) * up(x))`` with ``hidden`` channels inside, f as the model's ``activation`` says.

    ``vector`` is one that gate and up share.
    """

    def __init__(self, config: ModelConfig, hidden: int, vector: ScaleVector | None) -> None:
        super().__init__()
        self.epsilon, self.gated = config.norm_epsilon, GATED[config.activation]
        width = config.shape.width
        self.shared_vector = vector
        self.gate = scaled_map("gate", config, width, hidden)
        self.up = scaled_map("up", config, width, hidden)
        self.down = scaled_map("down", config, hidden, width)

    def weights(self, before: Tensor | None = None) -> UnitWeights:
        """What a pass needs of the parameters.

        ``before`` [width] is a vector on the input that others own; only a unit without one may be given it.
        """
        shared_gain = effective(self.shared_vector)
        before = before if shared_gain is None else shared_gain
        gate, up = (joint_weight((map_,), (before,)) for map_ in (self.gate, self.up))
        # The product with the gate commutes with a vector on ``up``, so ``down`` can take it in.
        down = joint_weight((self.down,), (self.up.late_vector(),))
        return UnitWeights(gate, up, down, self.gate.late_vector(), self.down.late_vector()).padded()

    def forward(self, x: Tensor, weights: UnitWeights | None = None) -> Tensor:
        """Normalized input [batch, length, width] to the unit's output, the same shape."""
        weights = self.weights() if weights is None else weights
        # Not one product: the halves of a joint result are not contiguous, which costs more than it saves.
        gate = scaled(joint_map((self.gate,), x, self.epsilon, weights.gate), weights.behind_gate)
        up = joint_map((self.up,), x, self.epsilon, weights.up)
        down = joint_map((self.down,), self.gated(gate, up), self.epsilon, weights.down)
        return scaled(down, weights.behind_down)

    def maps(self) -> Iterator[tuple[str, LinearMap, Tensor | None]]:
        """Each linear map by its name, with the vector that it shares with others."""
        shared = effective(self.shared_vector)
        yield from (("gate", self.gate, shared), ("up", self.up, shared), ("down", self.down, None))


class FeedForward(GatedUnit):
    """The feed-forward sublayer of a dense layer; reads the normalized residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        vector = shared_vector(config, FEED_FORWARD_INPUT_MAPS)
        super().__init__(config, config.shape.feed_forward, vector)
