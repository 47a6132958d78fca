"""The arithmetic of scale vectors: their reparameterizations and their place before and after linear maps.

Which vectors exist is data (``model.strategies``). A vector next to a linear map is folded into the weight
for the forward pass: the same function and the same gradients at a cost of O(width^2), not O(tokens x width).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from scalevec.model.config import ModelConfig
from scalevec.model.fields import require
from scalevec.model.ops import rms_norm
from scalevec.model.optimization import imported
from scalevec.model.strategies import ATTENTION_INPUT_MAPS, OUTPUT_NORMS, REPARAMETERIZATIONS

_NEAR_ONE = 1e-5


def scaled_direction(beta: Tensor, alpha: Tensor) -> Tensor:
    """OR: ``beta sqrt(d) alpha / |alpha|`` (arXiv 2605.26895, equation 8)."""
    return alpha * (beta * alpha.square().mean(-1, keepdim=True).rsqrt())


def centred_exponential(beta: Tensor, alpha: Tensor) -> Tensor:
    """ER: ``exp(beta) exp(alpha - mean(alpha))`` (arXiv 2605.26895, equation 9)."""
    return torch.exp(beta + alpha - alpha.mean(-1, keepdim=True))


def product(beta: Tensor, alpha: Tensor) -> Tensor:
    """``beta alpha``: OR without its normalization, in which magnitude and direction are not told apart."""
    return beta * alpha


def exponential_sum(beta: Tensor, alpha: Tensor) -> Tensor:
    """``exp(beta + alpha)``: ER without its centring."""
    return torch.exp(beta + alpha)


class ScaleVector(nn.Module):
    """A scale vector ``g``; calling it gives the vector in effect, all ones at the start.

    It is [width], or [repeats * width] where ``repeats`` groups of channels share its entries.

    Args:
        width: Entries of the vector that it has of its own.
        reparameterization: ``none``, or one of ``model.strategies.REPARAMETERIZATIONS``, which split the
            vector into a magnitude ``beta`` [1] and a direction ``alpha`` [width].
        role: ``input`` or ``output`` of a linear map, which says which decay policy applies.
        copies: With 1 or more, so many vectors in one: every shape has ``copies`` in front, and each vector
            has its own magnitude.
        repeats: Groups of channels that share its entries: the heads of a map.
        norm_gain: ``g``, or ``1+w``: the parameters hold the distance of what they stand for from its start
            (``model.config.ModelConfig.norm_gain``); :meth:`factor` gives what they stand for.
        joins: Whether the ``copies`` are the parts of one vector [copies * width], as those of a map's heads.
    """

    def __init__(
        self,
        width: int,
        reparameterization: str,
        role: str,
        copies: int = 0,
        *,
        repeats: int = 1,
        norm_gain: str = "g",
        joins: bool = False,
    ) -> None:
        super().__init__()
        self.role, self.repeats, self.norm_gain, self.joins = role, repeats, norm_gain, joins
        self._ready: Tensor | None = None
        self.reparameterization = reparameterization
        in_front = (copies,) if copies else ()
        if reparameterization == "none":
            self.gain = nn.Parameter(torch.empty(*in_front, width))
        else:
            allowed = "one whose plugin is loaded: only workers of its sweep do that"
            is_known = reparameterization in REPARAMETERIZATIONS
            require(is_known, "reparameterization", reparameterization, allowed)
            self._parts = REPARAMETERIZATIONS[reparameterization]
            self._combine = imported(self._parts.factory)
            self.beta = nn.Parameter(torch.empty(*in_front, 1))
            self.alpha = nn.Parameter(torch.empty(*in_front, width))
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """Set the parameters to their start, where every entry of ``g`` is exactly one."""
        for name, parameter in self.named_parameters():
            parameter.fill_(0.0 if self.norm_gain == "1+w" else self._start(name))
        if self.reparameterization != "none" and not self.alpha.is_meta:
            start = self._own_entries()
            is_one = start.shape == self.alpha.shape and bool((start - 1).abs().max() < _NEAR_ONE)
            require(is_one, "reparameterization", self.reparameterization, "one that is 1 where it starts")

    def _start(self, name: str) -> float:
        """What the factor ``name`` is at the start."""
        return 1.0 if name == "gain" else float(getattr(self._parts, name))

    def factor(self, name: str) -> Tensor:
        """What the parameter ``name`` stands for: ``gain``, ``beta`` or ``alpha`` of the formulas."""
        stored: Tensor = getattr(self, name)
        return stored + self._start(name) if self.norm_gain == "1+w" else stored

    def forward(self) -> Tensor:
        """The vector in effect, shape [repeats * width], or [copies, width]."""
        entries = self._own_entries()
        if self.joins:
            return entries.flatten()
        return entries if self.repeats == 1 else entries.repeat(self.repeats)

    def _own_entries(self) -> Tensor:
        if self._ready is not None:
            return self._ready
        if self.reparameterization == "none":
            return self.factor("gain")
        entries: Tensor = self._combine(self.factor("beta"), self.factor("alpha"))
        return entries


@contextmanager
def in_one_go(vectors: Iterable[ScaleVector]) -> Iterator[None]:
    """Within it those of ``vectors`` that are made alike are made together: the same entries, fewer kernels.

    A step of a small model is mostly launches of kernels, and ten vectors a layer have many. Compiled code
    has them fused.
    """
    alike: defaultdict[Any, list[ScaleVector]] = defaultdict(list)
    for vector in vectors if not torch.compiler.is_compiling() else ():
        if vector.reparameterization != "none":
            alike[vector.reparameterization, vector.norm_gain, vector.alpha.shape].append(vector)
    several = [members for members in alike.values() if len(members) > 1]
    try:
        for members in several:
            beta, alpha = (torch.stack([v.factor(name) for v in members]) for name in ("beta", "alpha"))
            for vector, entries in zip(members, members[0]._combine(beta, alpha).unbind(), strict=True):
                vector._ready = entries
        yield
    finally:
        for vector in chain.from_iterable(several):
            vector._ready = None


def effective(vector: ScaleVector | None) -> Tensor | None:
    """The vector in effect, None where there is none."""
    return None if vector is None else vector.forward()


class LinearMap(nn.Module):
    """A linear map with its own scale vectors: ``y = u * (W (v * x))``, or ``y = u * Norm(W (v * x))``.

    ``weight`` is W [out_width, in_width]; ``input_vector`` is v, ``output_vector`` is u, either may be
    absent. ``norm_width`` is the number of neighbouring outputs that are normalized together, 0 for none.
    A norm that the architecture brings may have a vector g of its own, ``norm_vector`` (its norms share the
    entries): ``y = g * Norm(u * (W (v * x)))``; there ``output_vector`` is next to W.

    With ``n_experts`` the map is a stack of so many, ``weight`` is [n_experts, out_width, in_width], and a
    vector is one for all of them or has a row for each; ``model.experts`` applies it.
    """

    def __init__(
        self,
        in_width: int,
        out_width: int,
        input_vector: ScaleVector | None = None,
        output_vector: ScaleVector | None = None,
        norm_width: int = 0,
        *,
        norm_vector: ScaleVector | None = None,
        output_before_norm: bool = False,
        n_experts: int = 0,
    ) -> None:
        super().__init__()
        in_front = (n_experts,) if n_experts else ()
        self.weight = nn.Parameter(torch.empty(*in_front, out_width, in_width))
        self.input_vector = input_vector
        self.output_vector = output_vector
        self.norm_width = norm_width
        self.norm_vector = norm_vector
        # u moves into W only where no norm stands between them.
        self.output_is_folded = output_vector is not None and (output_before_norm or not norm_width)

    def folded_weight(self, before: Tensor | None = None) -> Tensor:
        """W with the vectors that touch it: diag(u) W diag(v), without u where a norm stands between.

        ``before`` [in_width] is a further vector on the input, one that this map does not own. Of a stack of
        maps either vector may have a row for each.
        """
        weight: Tensor = self.weight
        if self.input_vector is not None:
            gain = self.input_vector()
            before = gain if before is None else before * gain
        if before is not None:
            # Scaling W takes out_width x in_width products, scaling x would take tokens x in_width.
            weight = weight * before.unsqueeze(-2)
        if self.output_vector is not None and self.output_is_folded:
            weight = self.output_vector().unsqueeze(-1) * weight
        return weight

    def post_norm_gain(self) -> Tensor | None:
        """What a norm keeps from being folded into W, [out_width]: u, or the norm's own vector; else None."""
        if self.norm_vector is not None:
            return effective(self.norm_vector)
        return None if self.output_is_folded else effective(self.output_vector)


def joint_weight(maps: Sequence[LinearMap], before: Sequence[Tensor | None]) -> Tensor:
    """The folded weights of ``maps``, which read the same input, on top of each other: [all out_widths, in].

    ``before`` has for each map a further vector on its input [in_width], which others may share.
    """
    # What all share is folded once, and its gradient summed in one go.
    if all(vector is before[0] for vector in before):
        common, before = before[0], [None] * len(maps)
    else:
        common = None
    weights = [map_.folded_weight(vector) for map_, vector in zip(maps, before, strict=True)]
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    return weight if common is None else weight * common


def joint_map(maps: Sequence[LinearMap], x: Tensor, epsilon: float, weight: Tensor) -> Tensor:
    """What ``maps`` make of the same x [..., in_width], side by side [..., all out_widths]: one product.

    ``weight`` is their :func:`joint_weight`, ``epsilon`` that of norms. Gains behind norms are left out.
    """
    product = linear(x, weight)
    norm_widths = [map_.norm_width for map_ in maps]
    # Alike for all maps (or none): one norm over the whole product, without a copy of its parts.
    if len(set(norm_widths)) == 1:
        return normalized(product, norm_widths[0], epsilon)
    parts = torch.split(product, [len(map_.weight) for map_ in maps], -1)
    pairs = zip(parts, norm_widths, strict=True)
    return torch.cat([normalized(part, width, epsilon) for part, width in pairs], -1)


def normalized(x: Tensor, norm_width: int, epsilon: float) -> Tensor:
    """``x`` [..., n] with each ``norm_width`` neighbours normalized together, as it is for 0.

    Zeros that pad x to less than two groups are no part of a mean.
    """
    if not norm_width:
        return x
    if x.shape[-1] % norm_width:
        return rms_norm(x, epsilon, norm_width)
    return rms_norm(x.reshape(*x.shape[:-1], -1, norm_width), epsilon).flatten(-2)


def scaled(x: Tensor, vector: Tensor | None) -> Tensor:
    """``x`` times a vector, if there is one."""
    return x if vector is None else x * vector


def post_norm_gains(maps: Sequence[LinearMap]) -> Tensor | None:
    """The gains behind the norms of ``maps`` side by side, ones where there is none; None if none has one."""
    gains = [map_.post_norm_gain() for map_ in maps]
    if all(gain is None for gain in gains):
        return None
    pairs = zip(maps, gains, strict=True)
    return torch.cat([m.weight.new_ones(len(m.weight)) if v is None else v for m, v in pairs])


def scale_vector(
    config: ModelConfig, width: int, role: str, copies: int = 0, *, repeats: int = 1, joins: bool = False
) -> ScaleVector:
    """A scale vector as the model of ``config`` stores its vectors."""
    of, gain = config.scale_vectors.reparameterization, config.norm_gain
    return ScaleVector(width, of, role, copies, repeats=repeats, norm_gain=gain, joins=joins)


def scaled_map(
    name: str, config: ModelConfig, in_width: int, out_width: int, n_experts: int = 0
) -> LinearMap:
    """The linear map ``name`` with the norm and the vectors of its own that a model of ``config`` has there.

    ``n_experts`` makes it the stack of so many experts' maps.
    """
    strategy, architecture = config.scale_vectors, config.architecture
    copies = n_experts if strategy.experts == "own" else 0
    input_vector = output_vector = norm_vector = None
    if strategy.has_own_input_vector(name):
        input_vector = scale_vector(config, in_width, "input", copies)
    if strategy.has_output_vector(name):
        output_vector = _output_vector(name, config, out_width, copies)
    norm_width = _norm_width(name, config, out_width)
    if strategy.has_norm_vector(name, architecture):
        norm_vector = scale_vector(config, norm_width, "output", repeats=out_width // norm_width)
    return LinearMap(
        in_width, out_width, input_vector, output_vector, norm_width,
        norm_vector=norm_vector, output_before_norm=not strategy.normalizes_output(name), n_experts=n_experts,
    )  # fmt: skip


def _output_vector(name: str, config: ModelConfig, out_width: int, copies: int) -> ScaleVector:
    """The output vector of the map ``name``, shared by its heads or with a magnitude for each of them."""
    strategy, role = config.scale_vectors, config.scale_vectors.output_role(name)
    head_width = config.shape.head_width
    if strategy.shares_heads(name):
        return scale_vector(config, head_width, role, repeats=out_width // head_width)
    if strategy.splits_heads(name):
        return scale_vector(config, head_width, role, out_width // head_width, joins=True)
    return scale_vector(config, out_width, role, copies)


def head_vector(config: ModelConfig) -> ScaleVector | None:
    """The output vector of the head, an entry for each token of the vocabulary; None if there is none."""
    if not config.scale_vectors.has_output_vector("head"):
        return None
    return scale_vector(config, config.vocabulary_size, config.scale_vectors.output_role("head"))


def _norm_width(name: str, config: ModelConfig, out_width: int) -> int:
    """Neighbouring outputs of the map ``name`` that are normalized together, 0 for none."""
    strategy = config.scale_vectors
    of_architecture = name in OUTPUT_NORMS[config.architecture]
    if not of_architecture and not strategy.normalizes_output(name):
        return 0
    per_head = name in ATTENTION_INPUT_MAPS and (of_architecture or strategy.normalize_per_head)
    return config.shape.head_width if per_head else out_width


def shared_vector(config: ModelConfig, readers: tuple[str, ...], copies: int = 0) -> ScaleVector | None:
    """The vector of a norm that ``readers``, the maps behind it, share as far as they have none of their own.

    None if there is none; ``copies`` are those of :class:`ScaleVector`.
    """
    exists = config.scale_vectors.has_shared_vector(readers)
    return scale_vector(config, config.shape.width, "input", copies) if exists else None
