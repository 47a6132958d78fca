"""The gated feed-forward unit, which is a sublayer by itself and the shared expert of a mixture."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from scalevec.model.config import ModelConfig
from scalevec.model.ops import GATED, added, rms_norm
from scalevec.model.scale_vectors import (
    LinearMap,
    ScaleVector,
    effective,
    joint_map,
    joint_weight,
    scaled,
    scaled_map,
    shared_vector,
)
from scalevec.model.strategies import FEED_FORWARD_INPUT_MAPS

PADDED_TO = {"cuda": 64}
"""By device, a multiple of which hidden channels are made in products: a GPU takes half as long again and
more for others (4,778 = 8/3 x 1,792 of the paper)."""


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
        down = joint_weight((self.down,), (self.up.post_norm_gain(),))
        return UnitWeights(gate, up, down, self.gate.post_norm_gain(), self.down.post_norm_gain()).padded()

    def forward(self, x: Tensor, weights: UnitWeights) -> Tensor:
        """Normalized input [batch, length, width] to the unit's output, the same shape."""
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
    """The feed-forward sublayer of a dense layer, behind a norm and added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        vector = shared_vector(config, FEED_FORWARD_INPUT_MAPS)
        super().__init__(config, config.shape.feed_forward, vector)

    def forward(self, x: Tensor, weights: UnitWeights) -> Tensor:
        """The residual stream [batch, length, width] before and after the sublayer."""
        return added(x, super().forward(rms_norm(x, self.epsilon), weights))
