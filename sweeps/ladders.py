"""Ladders of sizes (presets, what a rung leaves to its defaults, ladders made from a rule), token budgets.

A size is a shape and, for a mixture, its experts; architecture and scale vectors are fields of a trial, so
that each size serves every one of them.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from scalevec.model.accounting import active_matrices
from scalevec.model.config import ConfigurationError, Experts, ModelConfig, Shape

_TINY_HEAD_WIDTH = 16
_HEAD_WIDTH = 64
_WIDEST_TINY = 128
_FEWEST_LAYERS = 2

ASPECT_RATIO = 80
"""Width over layers that a generated rung comes nearest to. Loss varies by a few percent over a forty-fold
range of it (Kaplan et al. 2020, arXiv 2001.08361, section 3.1), so that any value of that range would do;
80 is about that of the paper's 1B shape, 1792 / 22."""
ACCURACY = 4
"""How much a miss of the target N weighs against the same miss of the aspect ratio."""
RULE_TOKENS_PER_PARAMETER = 20
"""Where the rules of batch and learning rate, which are in compute, are read off: the tokens that Hoffmann
et al. 2022 (arXiv 2203.15556) find best for a given compute, so that a rung has one batch and one rate
whatever budgets a sweep runs it for."""


def default_heads(width: int) -> int:
    """Heads of 16 channels up to width 128, of 64 channels above.

    64 is that of GPT-2 (Radford et al. 2019) and the smaller models of GPT-3 (arXiv 2005.14165, table 2.1).
    Raises ``ConfigurationError`` for a width that such heads do not divide.
    """
    head_width = _head_width(width)
    if width % head_width:
        raise ConfigurationError("width", width, f"a multiple of {head_width}, unless heads is given too")
    return width // head_width


def _head_width(width: int) -> int:
    return _TINY_HEAD_WIDTH if width <= _WIDEST_TINY else _HEAD_WIDTH


def default_feed_forward(width: int) -> int:
    """8/3 of the width, rounded up to a multiple of 8.

    2/3 of 4 times the width keeps the parameters of a gated feed-forward equal to those of a plain one
    of 4 times the width (Shazeer 2020, arXiv 2002.05202; used by Llama, arXiv 2302.13971).
    """
    return -(-width // 3) * 8


@dataclass(frozen=True)
class Size:
    """A shape and, for a mixture, its experts."""

    shape: Shape
    experts: Experts | None = None


def size_of(
    width: int,
    layers: int,
    heads: int | None = None,
    kv_heads: int | None = None,
    feed_forward: int | None = None,
    experts: Mapping[str, Any] | None = None,
) -> Size:
    """The size with the defaults filled in; ``experts`` are the fields that are given of a mixture's.

    In a mixture ``feed_forward`` is the hidden width that a token passes, in dense layers and in mixtures: an
    expert has its share of it, ``feed_forward / (top_k + shared_experts)``, which must be a whole number;
    where ``feed_forward`` is a default, the share is rounded up to a multiple of 8 (grouped matrix products
    in 16 bits need that). Hidden widths given for the experts stand instead. Raises ``ConfigurationError``.
    """
    heads = default_heads(width) if heads is None else heads
    hidden = default_feed_forward(width) if feed_forward is None else feed_forward
    dense = Shape(width, layers, heads, heads if kv_heads is None else kv_heads, hidden)
    if experts is None:
        return Size(dense)
    filled = Experts(**{"feed_forward": hidden, **experts})
    if "feed_forward" not in experts:
        if filled.shared_feed_forward:
            raise ConfigurationError("experts", experts, "feed_forward beside shared_feed_forward")
        active = filled.top_k + filled.shared_experts
        filled = replace(filled, feed_forward=_share(hidden, active, exact=feed_forward is not None))
    if filled.dense_layers:
        return Size(dense, filled)
    passed = filled.active_hidden
    if feed_forward not in (None, passed):
        allowed = f"{passed}, what a token passes of the experts, or none, without dense layers"
        raise ConfigurationError("feed_forward", feed_forward, allowed)
    return Size(replace(dense, feed_forward=passed), filled)


def _share(hidden: int, active: int, *, exact: bool) -> int:
    """The hidden width of one of ``active`` experts."""
    if not exact:
        return -(-hidden // (8 * active)) * 8
    if hidden % active:
        allowed = f"a multiple of top_k + shared_experts, {active}, unless the experts have a feed_forward"
        raise ConfigurationError("feed_forward", hidden, allowed)
    return hidden // active


_TINY = {"tiny-25k": (32, 2), "tiny-55k": (48, 2), "tiny-83k": (48, 3), "tiny-150k": (64, 3),
         "tiny-200k": (64, 4)}  # fmt: skip
_DENSE = {"0.12b": (768, 6), "0.25b": (1024, 12), "0.5b": (1280, 18), "0.75b": (1536, 21), "1b": (1792, 22)}
# The paper's 0.5B mixture is 748 wide with 12 heads, which is no whole width of a head. Of the widths near it
# only 768 gives the parameters that its Table 5 prints: 0.48B, of which 0.18B active.
_MIXTURES = {"0.25b": (640, 6), "0.5b": (768, 9), "0.8b": (960, 10), "1b": (1024, 12), "2b": (1280, 15)}
_FEW = {"n_experts": 4, "top_k": 2, "over": "mean"}


def _of_paper(width: int, layers: int) -> Size:
    return size_of(width, layers, feed_forward=8 * width // 3)


def _mixture_of_paper(width: int, layers: int) -> Size:
    experts = {"n_experts": 32, "top_k": 4, "feed_forward": 2 * width // 3, "shared_experts": 1}
    return size_of(width, layers, experts={**experts, "shared_feed_forward": 8 * width // 3, "over": "mean"})


PRESETS: dict[str, Size] = {
    **{name: size_of(*size) for name, size in _TINY.items()},
    **{name: _of_paper(*size) for name, size in _DENSE.items()},
    **{f"moe-{name}": size_of(*size, experts=_FEW) for name, size in _TINY.items()},
    **{f"moe-{name}": _mixture_of_paper(*size) for name, size in _MIXTURES.items()},
}
"""``tiny-*``: named by their N, sizes at which a laptop shows something honest; ``moe-tiny-*``: with four
experts of which a token passes 2, each of half the hidden width, as in Mixtral (arXiv 2401.04088), so that
the active matrices are the dense size's and the router's, but for rounding. The others are the paper's
(arXiv 2605.26895, Tables 4 and 5), named by all their parameters with a vocabulary of 50,304 and untied
embeddings: heads of 64, a feed-forward of int(8d/3); of the mixtures 32 routed experts of int(2d/3), 4 for
each token, and a shared one of int(8d/3). How the paper balances experts it does not say; here by the mean
over layers."""


def generated(smallest: float, largest: float, rungs: int) -> list[Shape]:
    """The shapes of ``rungs`` sizes from ``smallest`` to ``largest`` N, equally far apart in their logarithm.

    Raises ``ConfigurationError`` where two of them are one shape.
    """
    ratio = (largest / smallest) ** (1 / (rungs - 1))
    shapes = [shape_near(smallest * ratio**step) for step in range(rungs)]
    if len(set(shapes)) < rungs:
        allowed = "fewer rungs, or a wider range: two fall on one shape"
        raise ConfigurationError("rungs", rungs, allowed)
    return shapes


def name_of(n_params: int) -> str:
    """``10.6m`` for 10,616,832."""
    scale, letter = next(
        (pair for pair in ((1e9, "b"), (1e6, "m"), (1e3, "k")) if n_params >= pair[0]), (1.0, "")
    )
    return f"{n_params / scale:.4g}{letter}"


@lru_cache
def matrices(size: Size) -> int:
    """N, which knows neither the arm's scale vectors nor the vocabulary."""
    return active_matrices(ModelConfig(size.shape, vocabulary_size=2, experts=size.experts))


def shape_near(target: float) -> Shape:
    """The shape with about ``target`` non-embedding matrix parameters.

    Widths are multiples of a head's, layers 2 or more, the rest as ``size_of`` fills it in. Of those shapes
    it is the one that misses least: ``ACCURACY |ln(N / target)| + |ln(width / layers / ASPECT_RATIO)|``.
    """

    def miss(candidate: tuple[int, int, int]) -> float:
        width, layers, n_params = candidate
        proportions = abs(math.log(width / layers / ASPECT_RATIO))
        return ACCURACY * abs(math.log(n_params / target)) + proportions

    width, layers, _ = min(_around(target), key=miss)
    return size_of(width, layers).shape


def _around(target: float) -> Iterator[tuple[int, int, int]]:
    """Of every width the two numbers of layers around ``target``, as (width, layers, N).

    It ends where the shapes are too large, or wider than any that could miss least.
    """
    width = _TINY_HEAD_WIDTH
    while True:
        of_layer = matrices(size_of(width, 1))
        layers = max(_FEWEST_LAYERS, int(target / of_layer))
        yield width, layers, layers * of_layer
        yield width, layers + 1, (layers + 1) * of_layer
        if layers * of_layer > 2 * target or width > 10 * ASPECT_RATIO * layers:
            return
        width += _head_width(width + 1)


def _rule_compute(n_params: int) -> float:
    """C = 6 N D in FLOPs at the tokens per parameter at which the rules are read off."""
    return FLOPS_PER_PARAMETER_AND_TOKEN * RULE_TOKENS_PER_PARAMETER * float(n_params) ** 2


def rule_batch_tokens(n_params: int) -> int:
    """0.2920 C^0.3271 tokens, to the nearest power of two (DeepSeek LLM, arXiv 2401.02954, section 3.1).

    Carried down to this project's tiny sizes it gives the 1024 tokens that they are trained with.
    """
    return int(2 ** round(math.log2(0.2920 * _rule_compute(n_params) ** 0.3271)))


def rule_learning_rate(n_params: int) -> float:
    """0.3118 C^-0.1250, to two digits (DeepSeek LLM, arXiv 2401.02954, section 3.1); for AdamW."""
    return float(f"{0.3118 * _rule_compute(n_params) ** -0.125:.2g}")


TOKENS_PER_PARAMETER, TOKENS = "tokens_per_parameter", "tokens"
DEFAULT_BUDGETS = (20.0,)
"""Tokens per parameter, where a sweep names no budget (arXiv 2203.15556)."""

FLOPS_PER_PARAMETER_AND_TOKEN = 6
"""C = 6 N D: two for a multiply and an add, once forward and twice backward (arXiv 2001.08361)."""

BUDGETS: dict[str, Callable[[float, int], float]] = {
    TOKENS_PER_PARAMETER: lambda amount, n_params: amount,  # noqa: ARG005 (one signature)
    TOKENS: lambda amount, n_params: amount / n_params,
    "flops": lambda amount, n_params: amount / (FLOPS_PER_PARAMETER_AND_TOKEN * n_params) / n_params,
}
"""Kind, as the sweep file calls it -> tokens over N of an amount at N. Trials take whole batches of it."""


def setting_name(kind: str) -> str:
    """What a setting calls the budget; ``flops`` of a tidy row are those of its trial, in whole batches."""
    return kind if kind == TOKENS_PER_PARAMETER else f"{kind}_budget"
