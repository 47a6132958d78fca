"""Which tokens a step sees: it depends on the stream and the step alone.

The order of the windows is a keyed permutation of their numbers, reckoned for those that are asked for: a
generalised Feistel network over numbers written in two digits, with cycle walking (Black & Rogaway, "Ciphers
with arbitrary finite domains", CT-RSA 2002). It takes no memory and no time that would grow with the corpus,
and any position is as quick as the first.
"""

import hashlib
from collections.abc import Iterator
from math import isqrt
from typing import Any

import numpy as np
import torch

from scalevec.model.data.corpus import TokenArray

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Batch = tuple[torch.Tensor, torch.Tensor]

_ROUND_KEYS = 8
_WORD_BYTES = 8
_WHOLE = slice(None)


class EpochOrder:
    """The permutation of 0 to ``n_windows - 1`` in which ``epoch`` of ``stream`` visits the windows."""

    def __init__(self, n_windows: int, stream: str, epoch: int) -> None:
        self.n_windows = n_windows
        # Bases close to the root: of all numbers of two digits, hardly any is beyond the windows.
        self._low_base = np.uint64(isqrt(max(n_windows - 1, 0)) + 1)
        self._high_base = np.uint64(-(-n_windows // int(self._low_base)))
        digest = hashlib.sha512(f"{stream}/order/{epoch}".encode()).digest()
        words = (digest[start : start + _WORD_BYTES] for start in range(0, len(digest), _WORD_BYTES))
        self._keys = [np.uint64(int.from_bytes(word)) for word in words][:_ROUND_KEYS]

    def windows(self, places: Numbers) -> Numbers:
        """Which windows stand at ``places``, shape [places]."""
        numbers = self._permuted(places.astype(np.uint64))
        beyond = numbers >= self.n_windows
        while beyond.any():
            numbers[beyond] = self._permuted(numbers[beyond])
            beyond = numbers >= self.n_windows
        return numbers.astype(np.int64)

    def _permuted(self, numbers: Words) -> Words:
        """A permutation of all numbers of two digits."""
        high, low = np.divmod(numbers, self._low_base)
        for first, second in zip(self._keys[::2], self._keys[1::2], strict=True):
            high = (high + _mixed(low, first)) % self._high_base
            low = (low + _mixed(high, second)) % self._low_base
        return high * self._low_base + low


def _mixed(words: Words, key: np.uint64) -> Words:
    """Half of the bits of ``words + key``, mixed as by SplitMix64 (Steele, Lea & Flood, OOPSLA 2014)."""
    mixed = words + key  # arrays wrap around without a warning
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    # The lower half goes: sums with a digit then stay within 64 bits.
    return (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(32)


def window_count(n_tokens: int, sequence_length: int) -> int:
    """Windows of ``sequence_length`` targets in ``n_tokens`` tokens; a shorter rest is not trained on."""
    return max(0, (n_tokens - 1) // sequence_length)


class TrainingBatches:
    """Batches of windows over ``tokens`` (shape [tokens]); each window is seen once in an epoch.

    A window holds ``sequence_length`` inputs and the targets one token further on; consecutive windows
    share one token. Epochs follow each other without a gap, so a batch may straddle two.
    """

    def __init__(self, tokens: TokenArray, sequence_length: int, batch_sequences: int, stream: str) -> None:
        self.n_windows = window_count(len(tokens), sequence_length)
        if self.n_windows == 0:
            raise ValueError(f"{len(tokens)} tokens hold no sequence of {sequence_length} and its next token")
        self._tokens = tokens
        self._sequence_length = sequence_length
        self._batch_sequences = batch_sequences
        self._stream = stream

    def batch(self, step: int, part: slice = _WHOLE) -> Batch:
        """Inputs and targets of ``step`` (from 0), int64, each [batch_sequences, sequence_length].

        With a ``part`` only those of its sequences.
        """
        starts = self.windows(step)[part] * self._sequence_length
        return _windows(self._tokens, starts, self._sequence_length)

    def windows(self, step: int) -> Numbers:
        """Which windows ``step`` sees, shape [batch_sequences]."""
        first = step * self._batch_sequences
        epochs, places = np.divmod(np.arange(first, first + self._batch_sequences), self.n_windows)
        parts = [
            EpochOrder(self.n_windows, self._stream, int(epoch)).windows(places[epochs == epoch])
            for epoch in np.unique(epochs)
        ]
        return np.concatenate(parts)


def evaluation_batches(tokens: TokenArray, sequence_length: int, batch_sequences: int) -> Iterator[Batch]:
    """All of ``tokens`` in order: every token but the first is a target exactly once.

    Yields int64 inputs and targets, [up to batch_sequences, sequence_length]; the rest that fills no
    sequence comes last, as one row [1, rest].
    """
    n_windows = window_count(len(tokens), sequence_length)
    starts = np.arange(n_windows) * sequence_length
    for first in range(0, n_windows, batch_sequences):
        yield _windows(tokens, starts[first : first + batch_sequences], sequence_length)
    covered = n_windows * sequence_length
    if rest := len(tokens) - 1 - covered:
        yield _windows(tokens, np.array([covered]), rest)


def _windows(tokens: TokenArray, starts: Numbers, length: int) -> Batch:
    """Inputs and targets of the windows that begin at ``starts``, each [len(starts), length]."""
    rows = tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)
    windows = torch.from_numpy(np.asarray(rows))
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
