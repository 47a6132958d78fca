"""The mixture-of-experts sublayer: a router, stacked experts, perhaps a shared one, and their balancing.

Dropless: every choice of the router is computed. For each token the router's probabilities are the softmax
of its logits over all experts, in float32 or wider. The ``top_k`` largest are chosen (with ``balancing:
bias``, the largest after the bias is added) and weigh their experts' outputs: renormalized to sum to one
where ``top_k`` is 2 or more (as in Mixtral, arXiv 2401.04088), as they are for 1 (Switch, arXiv 2101.03961),
where a renormalized weight would be one and teach the router nothing. Shared experts see every token with
weight one (DeepSeekMoE, arXiv 2401.06066).

Scale vectors, unless the strategy says otherwise (``experts``, ``router`` in ``model.strategies``): a vector
belongs to a map of the layer and all routed experts share it; the router is one more reader of the normalized
input. Where the architecture has a norm behind the feed-forward sublayer, it is behind the sum over experts.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from scalevec.model.config import Experts, ModelConfig
from scalevec.model.feed_forward import GatedUnit, UnitWeights
from scalevec.model.ops import GATED, added, as_autocast, rms_norm
from scalevec.model.scale_vectors import (
    LinearMap,
    effective,
    normalized,
    scale_vector,
    scaled,
    scaled_map,
    shared_vector,
)
from scalevec.model.strategies import FEED_FORWARD_INPUT_MAPS, FEED_FORWARD_MAPS, OUTPUT_NORMS, PRESETS

_grouped_mm = getattr(torch.nn.functional, "grouped_mm", None)
ALIGNED = 8
"""Grouped products take rows of a multiple of 16 bytes: so many entries in bfloat16."""


class Routing(NamedTuple):
    """How one forward pass spread its tokens over the experts of one mixture.

    load: choices that fell on each expert, [n_experts] integers. penalty: what balancing adds to the
    training loss, None where it adds nothing.
    """

    load: Tensor
    penalty: Tensor | None


class MixtureWeights(NamedTuple):
    """What a pass needs of the parameters of a mixture; ``shared`` of its shared experts."""

    router: Tensor
    routed: UnitWeights
    shared: UnitWeights | None
    gain: Tensor | None

    def narrowed(self, dtype: torch.dtype) -> "MixtureWeights":
        """With the weights of products in ``dtype``, but for the router's."""
        shared = None if self.shared is None else self.shared.narrowed(dtype)
        return self._replace(routed=self.routed.narrowed(dtype), shared=shared)


class RoutedExperts(nn.Module):
    """The experts among which the router chooses: three stacks of matrices, [n_experts, out, in] each."""

    def __init__(self, config: ModelConfig, experts: Experts) -> None:
        super().__init__()
        self.epsilon, self.gated = config.norm_epsilon, GATED[config.activation]
        width, hidden, count = config.shape.width, experts.feed_forward, experts.n_experts
        strategy = config.scale_vectors
        has_own = strategy.experts == "own"
        self.shared_vector = shared_vector(config, FEED_FORWARD_INPUT_MAPS, count) if has_own else None
        self.gate = scaled_map("gate", config, width, hidden, count)
        self.up = scaled_map("up", config, width, hidden, count)
        self.down = scaled_map("down", config, hidden, width, count)

    def weights(self, before: Tensor | None) -> UnitWeights:
        """What a pass needs of the parameters.

        ``before`` [width] is the vector that the layer's readers share.
        """
        before = before if self.shared_vector is None else self.shared_vector()
        gate, up = (map_.folded_weight(before) for map_ in (self.gate, self.up))
        # As in a dense unit, ``down`` takes in what stands behind the norm of ``up``.
        down = self.down.folded_weight(self.up.post_norm_gain())
        return UnitWeights(gate, up, down, self.gate.post_norm_gain(), self.down.post_norm_gain()).padded()

    def forward(self, rows: Tensor, load: Tensor, weights: UnitWeights) -> Tensor:
        """rows [n, width], those of the first expert first, to their outputs; ``load`` counts each one's."""
        gate = self._scaled(self._map(self.gate, rows, load, weights.gate), load, weights.behind_gate)
        up = self._map(self.up, rows, load, weights.up)
        product = self._map(self.down, self.gated(gate, up), load, weights.down)
        return self._scaled(product, load, weights.behind_down)

    def _map(self, map_: LinearMap, rows: Tensor, load: Tensor, weight: Tensor) -> Tensor:
        return normalized(expert_products(rows, weight, load), map_.norm_width, self.epsilon)

    def _scaled(self, rows: Tensor, load: Tensor, vector: Tensor | None) -> Tensor:
        """``rows`` times a map's gain behind its norm: one for all experts, or each expert's own."""
        if vector is None or vector.ndim == 1:
            return scaled(rows, vector)
        # Without the size it waits for the device to tell it.
        return rows * torch.repeat_interleave(vector, load, dim=0, output_size=len(rows))


class Mixture(nn.Module):
    """The feed-forward sublayer as a mixture of experts, behind a norm and added to the residual stream."""

    bias: Tensor | None
    load: Tensor

    def __init__(self, config: ModelConfig, experts: Experts) -> None:
        super().__init__()
        self.experts_config, self.epsilon = experts, config.norm_epsilon
        strategy, width = config.scale_vectors, config.shape.width
        # No norm of the architecture's is inside: the one behind the sublayer is behind the sum over experts.
        inside = replace(config, architecture="llama")
        routed = replace(inside, scale_vectors=PRESETS["none"]) if strategy.experts == "none" else inside
        self.router_shares = strategy.router == "branch"
        self.routed_share = strategy.experts == "shared"
        readers = [self.router_shares, self.routed_share, experts.shared_experts > 0]
        self.shared_vector = shared_vector(config, FEED_FORWARD_INPUT_MAPS) if any(readers) else None
        # Its own vector, where the other readers of the normalized input have theirs.
        has_own = self.router_shares and strategy.has_own_input_vector("gate")
        vector = scale_vector(config, width, "input") if has_own else None
        self.router = LinearMap(width, experts.n_experts, vector)
        self.experts = RoutedExperts(routed, experts)
        hidden = experts.shared_hidden
        self.shared_expert = GatedUnit(inside, hidden, None) if hidden else None
        self.normalizes = "down" in OUTPUT_NORMS[config.architecture]
        has_gain = self.normalizes and strategy.branches != "none"
        self.norm_vector = scale_vector(config, width, "output") if has_gain else None
        self.register_buffer("bias", torch.zeros(experts.n_experts) if experts.balancing == "bias" else None)
        # Not in checkpoints: balance() has set it to zero whenever one is written.
        self.register_buffer("load", torch.zeros(experts.n_experts, dtype=torch.long), persistent=False)
        self.batch_load: Tensor | None = None
        """The choices by expert of the whole batch, where a pass sees but a part of it."""

    def weights(self) -> MixtureWeights:
        """What a pass needs of the parameters."""
        shared = effective(self.shared_vector)
        router = self.router.folded_weight(shared if self.router_shares else None)
        routed = self.experts.weights(shared if self.routed_share else None)
        unit = None if self.shared_expert is None else self.shared_expert.weights(shared)
        return MixtureWeights(router, routed, unit, effective(self.norm_vector))

    def forward(self, x: Tensor, weights: MixtureWeights) -> tuple[Tensor, Routing]:
        """The residual stream [batch, length, width] behind the sublayer, and how its tokens were routed."""
        inputs = rms_norm(x, self.epsilon)
        probabilities = self._probabilities(inputs, weights.router)
        shares, chosen = self._choices(probabilities)
        result = self._routed(inputs, shares, chosen, weights.routed)
        if self.shared_expert is not None:
            result = result + self.shared_expert(inputs, weights.shared)
        if self.normalizes:
            result = rms_norm(result, self.epsilon)
        return added(x, scaled(result, weights.gain)), self._routing(probabilities, chosen)

    def _probabilities(self, x: Tensor, weight: Tensor) -> Tensor:
        """Of every expert for each token, [batch, length, n_experts], in float32 or wider."""
        # Rounded logits change choices: routers stay in float32 (Switch, arXiv 2101.03961, section 2.4).
        with torch.autocast(x.device.type, enabled=False):
            return linear(x.to(weight.dtype), weight).softmax(-1)

    def _choices(self, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """(weights, numbers) of the chosen experts, [batch, length, top_k] each."""
        # The bias decides who is chosen, never with what weight (arXiv 2408.15664).
        scores = probabilities if self.bias is None else probabilities + self.bias
        chosen = scores.topk(self.experts_config.top_k).indices
        weights = probabilities.gather(-1, chosen)
        if self.experts_config.top_k > 1:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights, chosen

    def _routed(self, x: Tensor, shares: Tensor, chosen: Tensor, weights: UnitWeights) -> Tensor:
        """The sum of the chosen experts' outputs by their ``shares``.

        Each token is repeated for each of its experts and the repeats are brought into the experts' order and
        back by permutations, so that no gradient is summed in an order that threads decide.
        """
        top_k, width = self.experts_config.top_k, x.shape[-1]
        # Stable: an expert sees its tokens in their order, so its sums are the same in every run.
        order = chosen.flatten().argsort(stable=True)
        rows = x.unsqueeze(-2).expand(*x.shape[:-1], top_k, width).reshape(-1, width)[order]
        outputs = self.experts(rows, self._count(chosen), weights)
        # The argsort of a permutation is its inverse.
        by_token = outputs[order.argsort()].view(*x.shape[:-1], top_k, width)
        result: Tensor = (by_token * shares.unsqueeze(-1)).sum(-2)
        return result

    def _count(self, chosen: Tensor) -> Tensor:
        # No bincount, which waits for a GPU; whole numbers, whose sum knows no order.
        every = chosen.flatten()
        return every.new_zeros(self.experts_config.n_experts).scatter_add_(0, every, torch.ones_like(every))

    def _routing(self, probabilities: Tensor, chosen: Tensor) -> Routing:
        load, penalty = self._count(chosen), None
        # No penalty without a gradient: losses that are evaluated are without it.
        if self.experts_config.balancing == "loss" and torch.is_grad_enabled():
            if self.experts_config.per == "batch":
                of_batch = load if self.batch_load is None else self.batch_load
                penalty = self.experts_config.loss_coefficient * batch_imbalance(probabilities, of_batch)
            else:
                penalty = self.experts_config.loss_coefficient * imbalance(probabilities, chosen)
        return Routing(load, penalty)

    @torch.no_grad()
    def reset(self) -> None:
        """Set the balance to its start."""
        self.load.zero_()
        if self.bias is not None:
            self.bias.zero_()

    @torch.no_grad()
    def balance(self) -> None:
        """Move the bias by ``bias_rate`` for each expert, up below the mean load and down above it.

        (Wang et al. 2024, arXiv 2408.15664.) To be called once after every optimizer step: the load is that
        of all its micro-batches, whole numbers whose sum knows no order. It starts again from zero.
        """
        if self.bias is not None:
            mean = self.load.double().mean()
            self.bias += self.experts_config.bias_rate * torch.sign(mean - self.load).to(self.bias.dtype)
        self.load.zero_()
        self.batch_load = None

    def maps(self) -> Iterator[tuple[str, LinearMap, Tensor | None]]:
        """Each linear map by its name within the sublayer, with the vector that it shares with others."""
        shared = effective(self.shared_vector)
        yield "router", self.router, shared if self.router_shares else None
        routed = effective(self.experts.shared_vector)
        routed = shared if routed is None and self.routed_share else routed
        units = {"experts": (self.experts, routed), "shared_expert": (self.shared_expert, shared)}
        for where, (unit, vector) in units.items():
            for name in FEED_FORWARD_MAPS if unit is not None else ():
                yield f"{where}.{name}", getattr(unit, name), vector if name != "down" else None


def imbalance(probabilities: Tensor, chosen: Tensor) -> Tensor:
    """``n_experts * sum_i f_i P_i``, the mean over sequences: 1 at perfect balance, a scalar.

    f_i is the share of a sequence's choices that fell on expert i, P_i the mean of its probability there
    (Switch, arXiv 2101.03961, equation 4). Taken sequence by sequence, as in DeepSeek-V3 (arXiv 2412.19437,
    section 2.1.2): a mean over sequences does not depend on how a batch is cut into micro-batches.
    ``probabilities`` is [batch, length, n_experts], ``chosen`` [batch, length, top_k].
    """
    n_experts = probabilities.shape[-1]
    chosen_by_sequence = nn.functional.one_hot(chosen.flatten(1), n_experts).to(probabilities.dtype)
    shares = chosen_by_sequence.mean(1)
    return n_experts * (shares * probabilities.mean(1)).sum(-1).mean()


def batch_imbalance(probabilities: Tensor, load: Tensor) -> Tensor:
    """:func:`imbalance` with the shares of a whole batch, whose choices by expert are ``load`` [n_experts].

    ``probabilities`` [batch, length, n_experts] may be those of a part of it: the mean of the values of equal
    parts is the whole batch's. For one layer it is transformers' ``load_balancing_loss_func`` over ``top_k``.
    """
    shares = load.to(probabilities.dtype) / load.sum()
    return len(load) * (shares * probabilities.flatten(0, -2).mean(0)).sum()


def expert_products(rows: Tensor, weights: Tensor, load: Tensor) -> Tensor:
    """``rows`` [n, in], those of the first expert first, each by its expert's matrix: [n, out].

    ``weights`` is [n_experts, out, in], ``load`` [n_experts] the rows of each. One grouped product where the
    device has it (bfloat16 on CUDA, widths that are multiples of 8), else one product an expert.
    """
    rows, weights = as_autocast(rows, weights)
    multiply = grouped_products if can_group(rows, weights) else looped_products
    return multiply(rows, weights, load)


def can_group(rows: Tensor, weights: Tensor) -> bool:
    """Whether :func:`grouped_products` takes these."""
    aligned = weights.shape[1] % ALIGNED == weights.shape[2] % ALIGNED == 0
    return _grouped_mm is not None and rows.is_cuda and rows.dtype == torch.bfloat16 and aligned


def grouped_products(rows: Tensor, weights: Tensor, load: Tensor) -> Tensor:
    """As :func:`expert_products`, in one grouped matrix product."""
    assert _grouped_mm is not None
    # grouped_mm wants the end of each group, in int32.
    ends = load.cumsum(0).to(torch.int32)
    result: Tensor = _grouped_mm(rows, weights.transpose(1, 2), offs=ends)
    return result


def looped_products(rows: Tensor, weights: Tensor, load: Tensor) -> Tensor:
    """As :func:`expert_products`, one expert after the other: the reference."""
    # tolist waits for the device, once per call: split needs its sizes as numbers.
    parts = torch.split(rows, load.tolist())
    return torch.cat([linear(part, weight) for part, weight in zip(parts, weights, strict=True)])
