"""A model whose scale vectors are folded into its matrices, beside which the model itself is held."""

from dataclasses import replace

import torch
from torch import Tensor

from scalevec.model.attention import Attention
from scalevec.model.config import ModelConfig
from scalevec.model.decoder import Transformer
from scalevec.model.experts import Mixture
from scalevec.model.feed_forward import FeedForward
from scalevec.model.scale_vectors import effective
from scalevec.model.strategies import ALL_MAPS, PRESETS


class FoldingError(ValueError):
    """The scale vectors of a model cannot be folded into its matrices exactly."""


@torch.no_grad()
def fold(model: Transformer) -> Transformer:
    """A model without scale vectors that computes the same function: each W becomes diag(u) W diag(v).

    Tied embeddings are untied where the final norm or the head has a vector, which fold into the head only.
    Raises :class:`FoldingError` where a vector stands behind a norm (under dual-normalized placement, and
    wherever a norm behind a map has a vector of its own): it cannot be folded.
    """
    _require_foldable(model.config)
    tied = model.config.tied_embeddings and model.final_vector is None and model.head_vector is None
    config = replace(model.config, scale_vectors=PRESETS["none"], tied_embeddings=tied)
    with torch.device("meta"):
        folded = Transformer(config)
    folded.load_state_dict(_folded_state(model, tied), assign=True)
    for block in folded.blocks:
        if isinstance(block.feed_forward, Mixture):  # what is in no state is still without memory
            block.feed_forward.load = torch.zeros_like(block.feed_forward.load, device=model.embedding.device)
    return folded


def _require_foldable(config: ModelConfig) -> None:
    strategy = config.scale_vectors
    if normalized := [name for name in ALL_MAPS if strategy.normalizes_output(name)]:
        maps = ", ".join(normalized)
        raise FoldingError(f"placement is {strategy.placement!r}: the norms behind {maps} cannot be folded")
    if scaled := [name for name in ALL_MAPS if strategy.has_norm_vector(name, config.architecture)]:
        maps = ", ".join(scaled)
        style = f"architecture is {config.architecture!r}"
        raise FoldingError(f"{style}: the vectors of the norms behind {maps} cannot be folded")


def _folded_state(model: Transformer, tied: bool) -> dict[str, Tensor]:
    """The tensors of the folded model, none of them shared with ``model``."""
    state = {"embedding": model.embedding.clone()}
    if not tied:
        head, gain = model.head_weight, effective(model.final_vector)
        state["head"] = head.clone() if gain is None else head * gain
    for owner, sublayer in model.named_modules():
        if isinstance(sublayer, Attention | FeedForward | Mixture):
            for name, map_, shared in sublayer.maps():
                state[f"{owner}.{name}.weight"] = map_.folded_weight(shared).clone()
        if isinstance(sublayer, Mixture) and sublayer.bias is not None:
            state[f"{owner}.bias"] = sublayer.bias.clone()
    return state
