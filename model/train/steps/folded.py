"""Scale vectors folded into their matrices, and these cast, once for all micro-batches of a step.

The passes of the micro-batches then know the folded weights alone, and their gradients are added up; the
chain rule is linear, so the sum goes back to matrices and vectors once. In exact arithmetic these are the
gradients of folding in every pass; the sums run in another order.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from scalevec.model.decoder import BlockWeights, DecoderLayer, Transformer


@contextmanager
def folded_once(model: Transformer, dtype: torch.dtype | None) -> Iterator[None]:
    """Within it training passes take weights that are folded now; behind it parameters have their gradients.

    Args:
        model: What is trained.
        dtype: Of the products, to which weights are cast; None leaves them as they are.
    """
    blocks = [block for block in model.blocks if isinstance(block, DecoderLayer)]
    sums = [_hold(block, dtype) for block in blocks]
    try:
        yield
        for block, of_block in zip(reversed(blocks), reversed(sums), strict=True):
            _pull_back(block, of_block)
    finally:
        for block in blocks:
            block.held = None


class _Sum:
    """The sum over micro-batches of a weight's gradients, in the type of the parameters."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype, self.total = dtype, cast(Tensor | None, None)

    def add(self, weight: Tensor) -> None:
        """Take the gradient of ``weight``: in bfloat16 a sum would lose what is small beside it."""
        gradient, weight.grad = weight.grad, None
        if gradient is not None:
            self.total = gradient.to(self.dtype) if self.total is None else self.total.add_(gradient)


@torch.no_grad()
def _hold(block: DecoderLayer, dtype: torch.dtype | None) -> list[_Sum]:
    """Let ``block`` take its weights as they are now; returns where their gradients are summed, in order."""
    folded = block.weights()
    sums = [_Sum(weight.dtype) for weight in _tensors(folded)]
    block.held = tree_map(_as_leaf, folded if dtype is None else folded.narrowed(dtype))
    for weight, of_weight in zip(_tensors(block.held), sums, strict=True):
        weight.register_post_accumulate_grad_hook(of_weight.add)  # type: ignore[no-untyped-call]
    return sums


def _as_leaf(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.detach().requires_grad_()


def _pull_back(block: DecoderLayer, sums: Sequence[_Sum]) -> None:
    """Differentiate the folding of ``block`` along the gradients of its weights, a block's at a time."""
    block.held = None
    with torch.enable_grad():
        folded = _tensors(block.weights())
    pairs = [(weight, of.total) for weight, of in zip(folded, sums, strict=True) if of.total is not None]
    torch.autograd.backward([weight for weight, _ in pairs], [total for _, total in pairs])
    for of_weight in sums:
        of_weight.total = None


def _tensors(weights: BlockWeights) -> list[Tensor]:
    return [weight for weight in tree_leaves(weights) if weight is not None]
