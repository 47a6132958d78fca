"""The order of the windows: a keyed permutation of their numbers, reckoned for those that are asked for.

A generalised Feistel network over numbers written in two digits, with cycle walking (Black & Rogaway,
"Ciphers with arbitrary finite domains", CT-RSA 2002). It takes no memory and no time that would grow with the
corpus, and any position is as quick as the first.
"""

import hashlib
from math import isqrt
from typing import Any

import numpy as np

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]

_ROUND_KEYS = 8
_WORD_BYTES = 8


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
