"""The loss over a split, and over fixed blocks of it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, pairwise

import torch

from scalevec.model.data.corpus import Batch, TokenArray, evaluation_batches
from scalevec.model.decoder import Transformer
from scalevec.model.train.ddp import ALONE, World
from scalevec.model.train.devices import is_out_of_memory, release_unused

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


@torch.inference_mode()
def evaluate(
    model: Transformer,
    tokens: TokenArray,
    sequence_length: int,
    batch_sequences: int,
    say: Callable[[str], None] = print,
    world: World = ALONE,
) -> Evaluation:
    """The loss of ``model`` over every target of ``tokens``, each counted once.

    Windows do not overlap, so a token sees at most the ``sequence_length`` tokens before it. The ranks of
    ``world`` take the batches in turn; as each is one rank's alone, the losses have the bits that one process
    gives to batches of that size. At most ``batch_sequences`` are taken at a time; where they do not fit into
    memory half as many are, and ``say`` is told. Raises what the device does where one sequence does not fit,
    and where ranks have to go forward as often as each other (``world.in_step``), of which one alone may lack
    memory.
    """
    sums: list[float] = []
    counts: list[int] = []
    at_once = batch_sequences
    batches = evaluation_batches(tokens, sequence_length, batch_sequences)
    while turn := list(islice(batches, world.size)):
        # For whom there is none goes along with the last one: where shards are gathered all ranks have to.
        inputs, targets = turn[min(world.rank, len(turn) - 1)]
        of_rank_here: list[float] = []
        while (done := len(of_rank_here)) < len(inputs):
            part = inputs[done : done + at_once], targets[done : done + at_once]
            of_part = _sums(model, part, least=at_once if world.in_step else 1)
            if of_part is None:
                at_once = len(part[0]) // 2
                release_unused(model.embedding.device)
                say(f"the evaluation does not fit into memory; it goes on with {at_once} sequences at a time")
                continue
            of_rank_here += of_part
        for rank, (_, of_rank) in enumerate(turn):
            sums += of_rank_here if rank == world.rank else [0.0] * len(of_rank)
            counts += [of_rank.shape[1]] * len(of_rank)
    # Each number is one rank's and zero elsewhere, so that their sum is exact.
    return _evaluation(world.sum(torch.tensor(sums, dtype=torch.float64)).tolist(), counts)


def _sums(model: Transformer, batch: Batch, least: int) -> list[float] | None:
    """The summed losses of each sequence; None where the batch does not fit into memory but half might.

    Batches of ``least`` sequences or fewer are not taken in halves.
    """
    inputs, targets = (part.to(model.embedding.device) for part in batch)
    try:
        sums: list[float] = model.token_losses(inputs, targets).double().sum(1).tolist()
        return sums
    except (RuntimeError, MemoryError) as problem:
        if not is_out_of_memory(problem) or len(inputs) <= least:
            raise
        return None


def _evaluation(sums: list[float], counts: list[int]) -> Evaluation:
    """From the summed loss and the targets of each sequence."""
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
