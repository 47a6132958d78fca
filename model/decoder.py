"""A decoder whose scale vectors follow a strategy.

RMSNorm before each sublayer (Gemma: behind it and on queries and keys too), rotary embedding, grouped-query
attention, gated units, no biases.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, linear
from torch.utils.checkpoint import checkpoint

from scalevec.model.attention import Attention, AttentionWeights
from scalevec.model.config import ATTENTIONS, Experts, ModelConfig
from scalevec.model.experts import Mixture, MixtureWeights, Routing
from scalevec.model.feed_forward import FeedForward, UnitWeights
from scalevec.model.ops import head_loss, head_losses, rms_norm, table_for
from scalevec.model.optimization import imported
from scalevec.model.scale_vectors import ScaleVector, effective, head_vector, in_one_go, scaled, shared_vector

RESIDUAL_OUTPUTS = ("output", "down")
"""The maps that write to the residual stream."""


class BlockWeights(NamedTuple):
    """What a pass through a block needs of its parameters."""

    attention: AttentionWeights
    feed_forward: UnitWeights | MixtureWeights

    def narrowed(self, dtype: torch.dtype) -> "BlockWeights":
        """With the weights of products in ``dtype``."""
        return BlockWeights(self.attention.narrowed(dtype), self.feed_forward.narrowed(dtype))


class DecoderBlock(nn.Module):
    """One layer: attention, then feed-forward or, with ``experts``, a mixture.

    ``folded_weights`` stand in for :meth:`weights` while they are set (``model.train.step``).
    """

    folded_weights: BlockWeights | None = None

    def __init__(self, config: ModelConfig, experts: Experts | None = None) -> None:
        super().__init__()
        self.attention: Attention = imported(ATTENTIONS[config.attention])(config)
        self.feed_forward = FeedForward(config) if experts is None else Mixture(config, experts)
        self._vectors = [module for module in self.modules() if isinstance(module, ScaleVector)]

    def forward(
        self, x: Tensor, table: Tensor, weights: BlockWeights | None
    ) -> tuple[Tensor, Routing | None]:
        """Residual stream [batch, length, width] before and after the layer, and a mixture's routing.

        ``table`` is that of the rotary embedding, ``weights`` those of :meth:`weights` where they are folded.
        """
        of_attention, of_unit = self.weights() if weights is None else weights
        x = self.attention(x, table, of_attention)
        if isinstance(self.feed_forward, Mixture):
            x, routing = self.feed_forward(x, of_unit)
            return x, routing
        return self.feed_forward(x, of_unit), None

    def weights(self) -> BlockWeights:
        """What a pass needs of the parameters."""
        with in_one_go(self._vectors):
            return BlockWeights(self.attention.weights(), self.feed_forward.weights())


class Transformer(nn.Module):
    """The decoder that a configuration describes: RMSNorm, rotary embedding, gated units or experts.

    Calling it maps tokens [batch, length] to logits [batch, length, vocabulary] of the token after each. Its
    parameters hold nothing until :func:`initialise`.

    Args:
        config: Shape, vocabulary, architecture, experts, and where there are scale vectors.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        sides = config.vocabulary_size, config.shape.width
        self.embedding = nn.Parameter(torch.empty(sides))
        dense = config.shape.layers if config.experts is None else config.experts.dense_layers
        layers = range(config.shape.layers)
        self.blocks = nn.ModuleList(
            DecoderBlock(config, config.experts if i >= dense else None) for i in layers
        )
        self.final_vector = shared_vector(config, ("head",))
        self.head = None if config.tied_embeddings else nn.Parameter(torch.empty(sides))
        self.head_vector = head_vector(config)
        self.normalizes_head = config.scale_vectors.normalizes_output("head")
        self.residual_type: torch.dtype | None = None
        """Of the residual stream under autocast; None is the embedding's."""
        self.recomputes = False
        """Whether a backward pass goes through each block again instead of keeping what is inside it."""
        self.fuses_head = False
        """Whether the losses go through a compiled softmax (``ops.fused_softmax``)."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [batch, length, vocabulary] of the token after each of ``tokens`` [batch, length]."""
        return self._logits(self.final_states(tokens))

    def _logits(self, states: Tensor) -> Tensor:
        """Of what the head reads, [..., width]."""
        logits = linear(states, self.head_weight)
        if not self.normalizes_head:
            return logits
        return scaled(rms_norm(logits, self.config.norm_epsilon), effective(self.head_vector))

    @property
    def head_weight(self) -> Tensor:
        """The head [vocabulary, width], or the embedding where they are tied, with its vector if it folds."""
        weight = self.embedding if self.head is None else self.head
        vector = None if self.normalizes_head else effective(self.head_vector)
        return weight if vector is None else weight * vector[:, None]

    def _head_loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of ``targets`` [n] given what the head reads [n, width]."""
        if self.normalizes_head:  # A norm over the vocabulary needs a token's logits whole, and in autograd.
            return cross_entropy(self._logits(states).float(), targets)
        return head_loss(states, self.head_weight, targets, fused=self.fuses_head)

    def final_states(self, tokens: Tensor) -> Tensor:
        """What the head reads, [batch, length, width]: the residual stream behind the final norm."""
        return self._pass(tokens)[0]

    def _pass(self, tokens: Tensor, *, recomputes: bool = False) -> tuple[Tensor, list[Routing]]:
        """:meth:`final_states`, and how each mixture routed its tokens."""
        x = embedding(tokens, self.embedding)
        if self.residual_type is not None and torch.is_autocast_enabled(x.device.type):
            x = x.to(self.residual_type)
        if self.config.embedding_scale != "none":
            x = x * self.config.embedding_factor
        table = table_for(x, self.config.shape.head_width, self.config.rope_base)
        routings = []
        for block in self.blocks:
            weights = cast(DecoderBlock, block).folded_weights
            if recomputes:
                # The same operations in the same order give the same gradients (Chen et al., arXiv
                # 1604.06174); nothing in a block is random.
                x, routing = checkpoint(
                    block, x, table, weights, use_reentrant=False, preserve_rng_state=False
                )
            else:
                x, routing = block(x, table, weights)
            routings += [] if routing is None else [routing]
        x = rms_norm(x, self.config.norm_epsilon)
        # On the activations, not folded: a head has more rows than a small batch has tokens.
        return scaled(x, effective(self.final_vector)), routings

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy in nats of ``targets`` [batch, length], the tokens that follow ``tokens``.

        A scalar. Logits count in float32 or wider. Can be differentiated once; for second derivatives take
        torch's cross-entropy of the logits.
        """
        return self._head_loss(self.final_states(tokens).flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def token_losses(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy in nats of each of ``targets`` [batch, length], without a gradient."""
        states = self.final_states(tokens).flatten(0, 1)
        if self.normalizes_head:
            losses = cross_entropy(self._logits(states).float(), targets.flatten(), reduction="none")
            return losses.view_as(targets)
        losses = head_losses(states, self.head_weight, targets.flatten(), fused=self.fuses_head)
        return losses.view_as(targets)

    def training_loss(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
        """The mean loss, and what the balancing of experts adds to it in training (None: nothing).

        Unlike :meth:`loss` it counts the load of the experts, for :meth:`balance`. The addend is a mean over
        sequences, so that it too is the mean of its values over micro-batches of one size; where experts are
        balanced over a batch that is cut into several, :meth:`set_batch_load` must have been told of it.
        """
        states, routings = self._pass(tokens, recomputes=self.recomputes)
        for mixture, routing in zip(self._mixtures(), routings, strict=True):
            mixture.load += routing.load
        penalties = [routing.penalty for routing in routings if routing.penalty is not None]
        penalty = None
        if penalties and self.config.experts is not None:
            over_layers = torch.mean if self.config.experts.over == "mean" else torch.sum
            penalty = over_layers(torch.stack(penalties))
        return self._head_loss(states.flatten(0, 1), targets.flatten()), penalty

    @torch.no_grad()
    def choices(self, tokens: Tensor) -> Tensor:
        """The choices by expert over ``tokens`` [batch, length], [mixtures, n_experts] integers."""
        return torch.stack([routing.load for routing in self._pass(tokens)[1]])

    def set_batch_load(self, loads: Tensor) -> None:
        """Balance the batch whose :meth:`choices` are ``loads``, though it comes in parts, until its step."""
        for mixture, load in zip(self._mixtures(), loads, strict=True):
            mixture.batch_load = load

    def loads(self) -> list[Tensor]:
        """The choices by expert since the last :meth:`balance`, [n_experts] integers for each mixture."""
        return [mixture.load for mixture in self._mixtures()]

    def balance(self) -> None:
        """What the balancing of experts does after an optimizer step, outside of the gradient."""
        for mixture in self._mixtures():
            mixture.balance()

    def _mixtures(self) -> Iterator[Mixture]:
        units = (block.feed_forward for block in self.blocks)
        return (unit for unit in units if isinstance(unit, Mixture))


def parameter_roles(model: Transformer) -> dict[str, str]:
    """Each parameter's role by name.

    matrix: a linear map [out, in], the router among them. experts: the stack of the experts' linear maps,
    [n_experts, out, in]; to an optimizer of matrices, such as Muon, each of its matrices is one of its own.
    Besides embedding, head, scale_vector_input and scale_vector_output.
    """
    roles = {}
    for module_name, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix=module_name, recurse=False):
            if isinstance(module, ScaleVector):
                roles[name] = f"scale_vector_{module.role}"
            elif name in ("embedding", "head"):
                roles[name] = name
            else:
                roles[name] = "experts" if parameter.ndim == 3 else "matrix"
    return roles


@torch.no_grad()
def initialise(model: Transformer, seed: int | str) -> None:
    """Draw every matrix from ``seed`` and set the scale vectors to their start.

    ``seed`` is a number or the stream of a trial. Each tensor has its own generator, seeded from its name
    too, and is drawn on the CPU in float32: arms with the same seed start from the same matrices, whatever
    vectors they have. Normal with standard deviation fan_in^(-1/2), for the maps that write to the residual
    stream divided by sqrt(2 layers); the embedding width^(-1/2). The balance of experts starts at zero.
    """
    roles = parameter_roles(model)
    for name, parameter in model.named_parameters():
        if not roles[name].startswith("scale_vector"):
            parameter.copy_(_draw(name, parameter.shape, seed, model.config.shape.layers))
    for module in model.modules():
        if isinstance(module, ScaleVector | Mixture):
            module.reset()


def _draw(name: str, shape: torch.Size, seed: int | str, layers: int) -> Tensor:
    """The start of the tensor ``name``; its last axis is the fan-in, the width for the embedding."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
    deviation = shape[-1] ** -0.5
    if any(f".{output}." in name for output in RESIDUAL_OUTPUTS):
        deviation /= (2 * layers) ** 0.5
    return torch.empty(shape, dtype=torch.float32).normal_(0.0, deviation, generator=generator)
