"""The effective matrices of a model: V = diag(u) W diag(v), a linear map with the scale vectors beside it.

Maps that share their input vector are stacked, as the analysis of arXiv 2605.26895 takes them. A vector
behind a norm (dual-normalized placement, queries and keys) is no part of V, because the norm stands between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scalevec.model.decoder import Transformer
from scalevec.model.scale_vectors import LinearMap, ScaleVector, effective
from scalevec.model.strategies import NORMED_MAPS


@dataclass(frozen=True)
class Values:
    """W [m, n], u [m] and v [n] at one moment; u and v are ones where there is no vector."""

    weight: Tensor
    output: Tensor
    input: Tensor

    def effective(self) -> Tensor:
        """V [m, n] in float64: its changes are small beside it."""
        return self.output.double()[:, None] * self.weight.double() * self.input.double()


@dataclass(frozen=True)
class EffectiveMatrix:
    """The parameters that make up one effective matrix, or several stacked ones that share their input.

    kind: the map (``query``, ``head``), or ``attention_shared`` and ``feed_forward_shared`` for stacked ones.
    layer: which block, from 0; the head counts as layer 0.
    weights: W of each map [m_i, n]. output_vectors: u of each map [m_i] or None. input_vector: v [n] or None.
    """

    kind: str
    layer: int
    weights: tuple[nn.Parameter, ...]
    output_vectors: tuple[ScaleVector | None, ...]
    input_vector: ScaleVector | None

    @torch.no_grad()
    def values(self) -> Values:
        """W, u and v as they are now, as copies."""
        weight = torch.cat([weight.detach() for weight in self.weights])
        pairs = zip(self.output_vectors, self.split(weight.new_ones(len(weight))), strict=True)
        output = torch.cat([ones if vector is None else vector() for vector, ones in pairs])
        columns = effective(self.input_vector)
        return Values(
            weight, output, weight.new_ones(weight.shape[1]) if columns is None else columns.clone()
        )

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """``rows`` [m] by map."""
        return torch.split(rows, [len(weight) for weight in self.weights])

    @property
    def has_output_vector(self) -> bool:
        """Whether any of the maps has a vector on its output that folds into it."""
        return any(vector is not None for vector in self.output_vectors)


def effective_matrices(model: Transformer) -> list[EffectiveMatrix]:
    """The effective matrices that read a normalized input or own a vector, layer by layer, the head last.

    The head is left out where it is the embedding: then more than V's gradient moves it. So are the experts
    of a mixture, and with them every map that shares its input vector with them.
    """
    matrices: list[EffectiveMatrix] = []
    for layer, block in enumerate(model.blocks):
        for name, sublayer in block.named_children():
            matrices += _of_sublayer(name, layer, sublayer)
    if model.head is not None:
        behind = None if model.normalizes_head else model.head_vector
        matrices.append(EffectiveMatrix("head", 0, (model.head,), (behind,), model.final_vector))
    return matrices


def _of_sublayer(sublayer_name: str, layer: int, sublayer: nn.Module) -> Iterator[EffectiveMatrix]:
    maps = {name: child for name, child in sublayer.named_children() if isinstance(child, LinearMap)}
    shared = getattr(sublayer, "shared_vector", None)
    sharing = [name for name in maps if name in NORMED_MAPS and maps[name].input_vector is None]
    if shared is not None and sharing:
        yield _stacked(f"{sublayer_name}_shared", layer, [maps.pop(name) for name in sharing], shared)
    for name, map_ in maps.items():
        if name in NORMED_MAPS or map_.input_vector is not None or map_.output_vector is not None:
            yield _stacked(name, layer, [map_], map_.input_vector)


def _stacked(
    kind: str, layer: int, maps: Sequence[LinearMap], input_vector: ScaleVector | None
) -> EffectiveMatrix:
    outputs = tuple(map_.output_vector if map_.output_is_folded else None for map_ in maps)
    return EffectiveMatrix(kind, layer, tuple(map_.weight for map_ in maps), outputs, input_vector)
