"""Synthetic corpora with a known entropy rate: the loss of a model has a floor that is known exactly.

A token is drawn from the row of the token before it: ``branching`` successors of its own with weights that
are the same in every row. With a ``lag`` the token that stands ``lag`` places back is added to it, modulo the
vocabulary, so that a model has to look back that far. Given all tokens before it, a token then has one of
``branching`` values with those weights, whatever came before: the entropy rate is the weights' own entropy.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

# Loaded here, not by np.random when tokens are drawn: Ctrl-C while its compiled modules load may be lost.
from numpy.random import PCG64, SeedSequence

from scalevec.model.data.specification import TokenProcess, held_out
from scalevec.model.fields import to_dict
from scalevec.model.identity import digest

SLOT_BITS = 12
WORD_BITS = 64
SLOTS = 1 << SLOT_BITS
"""Every weight is a whole number of so many equal shares, so that the floor is exact."""
FEWEST_HELD_OUT = 10_000
"""Tokens of the validation and of the test split, at least."""
BLOCK = 1 << 18
"""Tokens that are drawn at once."""
SPLIT_KEYS = {"train": 0, "validation": 1, "test": 2}
_TABLE_KEY = 3
_VERSION = 2

Ids = np.ndarray[tuple[int], np.dtype[np.unsignedinteger[Any]]]
Ranks = np.ndarray[tuple[int], np.dtype[np.int64]]


def weights(process: TokenProcess) -> list[int]:
    """How many of the ``SLOTS`` equal shares each successor has: the k-th about 1/k as many as the first."""
    total = sum(1 / rank for rank in range(1, process.branching + 1))
    shares = [max(1, int(SLOTS / (rank * total))) for rank in range(1, process.branching + 1)]
    shares[0] += SLOTS - sum(shares)
    return shares


def entropy_rate(process: TokenProcess) -> float:
    """Nats/token, in closed form: ``-sum(w ln w)`` over the weights of a row.

    The expected loss of no model is lower; a model that sees ``lag`` tokens back (one, without a lag) and
    knows the rows has exactly this loss.
    """
    return -math.fsum(share / SLOTS * math.log(share / SLOTS) for share in weights(process))


def fingerprint(process: TokenProcess) -> str:
    """SHA-256 (64 hex digits) of all that decides the tokens."""
    return digest({"synthetic_version": _VERSION, "process": to_dict(process)})


def split_tokens(process: TokenProcess, split: str) -> int:
    """Tokens of ``split``: as asked for training, else what :func:`held_out` says, 10,000 at least."""
    if split == "train":
        return process.tokens
    return max(FEWEST_HELD_OUT, int(held_out(process.tokens)))


def successors(process: TokenProcess) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The successors of each token, [vocabulary, branching], the likeliest first."""
    words = PCG64(SeedSequence(process.seed, spawn_key=(_TABLE_KEY,)))
    # Row by row: all keys of a vocabulary of 65,536 would take 34 GB.
    return np.stack(
        [_lowest(words.random_raw(process.vocabulary), process.branching) for _ in range(process.vocabulary)]
    )


def _lowest(keys: np.ndarray[tuple[int], np.dtype[np.uint64]], n: int) -> Ranks:
    """The places of the ``n`` lowest keys, the lowest first, the first of equal ones."""
    low = np.flatnonzero(keys <= np.partition(keys, n - 1)[n - 1])
    return low[np.argsort(keys[low], kind="stable")][:n]


def blocks(process: TokenProcess, split: str) -> Iterator[Ids]:
    """The tokens of ``split`` in blocks; each split is a draw of its own from the same process."""
    rows = successors(process).tolist()
    history = [0] * max(1, process.lag)
    position = token = 0
    for ranks in _ranks(process, split):
        tokens = []
        for rank in ranks.tolist():
            token = rows[token][rank]
            if process.lag:
                token = history[position] = (token + history[position]) % process.vocabulary
                position = (position + 1) % process.lag
            tokens.append(token)
        yield np.array(tokens, dtype=np.uint16)


def ideal_loss(process: TokenProcess, split: str) -> float:
    """Mean nats/token of ``split`` under the process itself, its first token left out as in evaluation.

    It differs from the entropy rate by the sampling error of the split.
    """
    counts = np.zeros(process.branching, dtype=np.int64)
    first = None
    for ranks in _ranks(process, split):
        first = int(ranks[0]) if first is None else first
        counts += np.bincount(ranks, minlength=process.branching)
    if first is not None:
        counts[first] -= 1
    nats = [-math.log(share / SLOTS) for share in weights(process)]
    total = math.fsum(count * of_one for count, of_one in zip(counts.tolist(), nats, strict=True))
    return total / (split_tokens(process, split) - 1)


def _ranks(process: TokenProcess, split: str) -> Iterator[Ranks]:
    """Which successor each token is of the one before it, in blocks.

    Uses raw PCG64 words, which NumPy promises never to change (NEP 19).
    """
    rank_of_slot = np.repeat(np.arange(process.branching), weights(process))
    words = PCG64(SeedSequence(process.seed, spawn_key=(SPLIT_KEYS[split],)))
    left = split_tokens(process, split)
    while left:
        drawn = min(BLOCK, left)
        left -= drawn
        yield rank_of_slot[words.random_raw(drawn) >> np.uint64(WORD_BITS - SLOT_BITS)]
