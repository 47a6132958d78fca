"""The loss over a split, and over fixed blocks of it."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from scalevec.model.training.corpora.batches import evaluation_batches
from scalevec.model.transformer import Transformer

BLOCKS = 64
"""Runs of neighbouring sequences whose losses are kept: neighbours are alike, so blocks tell how far the loss
depends on what was held out."""
FEWEST_BLOCKS = 16
"""Fewer say too little of their own spread."""
DIGITS = 8
"""Of a block's loss that are kept, more than float32 has."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation gives: mean losses in nats/token, of all targets and by block.

    ``loss_blocks`` are the means of the blocks in the order of the text, ``block_tokens`` counts their
    targets; both None where there are too few sequences.
    """

    loss: float
    n_sequences: int
    loss_blocks: list[float] | None
    block_tokens: list[int] | None


@torch.no_grad()
def evaluate(
    model: Transformer, tokens: np.ndarray, sequence_length: int, batch_sequences: int
) -> Evaluation:
    """The loss of ``model`` over every target of ``tokens``, each counted once.

    Windows do not overlap, so a token sees at most the ``sequence_length`` tokens before it.
    """
    device = next(model.parameters()).device
    sums: list[float] = []
    counts: list[int] = []
    for inputs, targets in evaluation_batches(tokens, sequence_length, batch_sequences):
        losses = model.token_losses(inputs.to(device), targets.to(device)).double()
        sums += losses.sum(1).tolist()
        counts += [targets.shape[1]] * targets.shape[0]
    loss = math.fsum(sums) / sum(counts)
    blocks = blocks_of(len(sums))
    if not blocks:
        return Evaluation(loss, len(sums), None, None)
    block_tokens = [sum(counts[block]) for block in blocks]
    means = [math.fsum(sums[block]) / n for block, n in zip(blocks, block_tokens, strict=True)]
    return Evaluation(loss, len(sums), [float(f"{mean:.{DIGITS}g}") for mean in means], block_tokens)


def blocks_of(n_sequences: int) -> list[slice]:
    """The blocks of so many sequences: 64 runs of neighbours of about one length, of fewer one each.

    None where there are fewer than 16 sequences.
    """
    n_blocks = min(BLOCKS, n_sequences)
    if n_blocks < FEWEST_BLOCKS:
        return []
    edges = [block * n_sequences // n_blocks for block in range(n_blocks + 1)]
    return [slice(start, end) for start, end in pairwise(edges)]
