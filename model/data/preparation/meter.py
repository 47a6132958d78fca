"""How far long work is, said now and then."""

import time
from collections.abc import Callable

Progress = Callable[[str], None]

SECONDS_BETWEEN = 10.0
"""Between two messages."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class Meter:
    """Counts what was done (``did``, as in "read") of ``total`` bytes; 0 where nobody knows how many.

    What was ``finished`` before, in bytes, counts in none of the speeds.
    """

    def __init__(self, progress: Progress, did: str, total: int = 0, finished: int = 0) -> None:
        self._progress, self._did, self._total, self._finished = progress, did, total, finished
        self._documents = self._size = 0
        self._began = time.monotonic()
        self._next_at = self._began + SECONDS_BETWEEN
        if finished:
            progress(f"{did}: {finished / 1e6:,.0f} of {total / 1e6:,.0f} MB before it was stopped")

    def count(self, n_bytes: int, n_documents: int = 1) -> None:
        """So many documents, together of so many bytes, are done."""
        self._documents += n_documents
        self._size += n_bytes
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + SECONDS_BETWEEN
            self._progress(self._message())

    def _message(self) -> str:
        rate = self._size / max(time.monotonic() - self._began, 1e-9)
        done = self._finished + self._size
        of_all = f" of {self._total / 1e6:,.0f}" if self._total else ""
        speed = f"{rate / 1e6:,.1f} MB/s"
        left = f", {_about((self._total - done) / rate)} left" if self._total and rate else ""
        return (
            f"{self._did}: {self._documents:,} documents, {done / 1e6:,.0f}{of_all} MB so far, {speed}{left}"
        )


def _about(seconds: float) -> str:
    for unit, name in ((_DAY, "days"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"
