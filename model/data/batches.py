"""The batches of a run: which tokens a step sees depends on the stream and the step alone."""

from collections.abc import Iterator

import numpy as np
import torch

from scalevec.model.data.order import EpochOrder
from scalevec.model.data.segments import TokenArray

Order = np.ndarray[tuple[int], np.dtype[np.int64]]
Batch = tuple[torch.Tensor, torch.Tensor]
_WHOLE = slice(None)


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

    def windows(self, step: int) -> Order:
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


def _windows(tokens: TokenArray, starts: Order, length: int) -> Batch:
    """Inputs and targets of the windows that begin at ``starts``, each [len(starts), length]."""
    rows = tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)
    windows = torch.from_numpy(np.asarray(rows))
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
