"""The gated feed-forward unit: a sublayer of its own, or the shared expert of a mixture."""

from collections.abc import Iterator

from torch import Tensor, nn

from scalevec.model.config import ModelConfig
from scalevec.model.functional import GATED
from scalevec.model.scale_vectors import (
    LinearMap,
    ScaleVector,
    effective,
    joint_map,
    scaled_map,
    shared_vector,
)
from scalevec.model.strategies import FEED_FORWARD_INPUT_MAPS


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

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """Normalized input [batch, length, width] to the unit's output, the same shape.

        ``before`` [width] is a vector on the input that others own; only a unit without one may be given it.
        """
        shared_gain = effective(self.shared_vector)
        before = before if shared_gain is None else shared_gain
        # Not one product: the halves of a joint result are not contiguous, which costs more than it saves.
        gate = self.gate(x, self.epsilon, before)
        up = joint_map((self.up,), x, self.epsilon, (before,))
        # The product with the gate commutes with a vector on ``up``, so ``down`` can take it in.
        result: Tensor = self.down(self.gated(gate, up), self.epsilon, self.up.late_vector())
        return result

    def maps(self) -> Iterator[tuple[str, LinearMap, Tensor | None]]:
        """Each linear map by its name, with the vector that it shares with others."""
        shared = effective(self.shared_vector)
        yield from (("gate", self.gate, shared), ("up", self.up, shared), ("down", self.down, None))


class FeedForward(GatedUnit):
    """The feed-forward sublayer of a dense layer; reads the normalized residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        vector = shared_vector(config, FEED_FORWARD_INPUT_MAPS)
        super().__init__(config, config.shape.feed_forward, vector)
