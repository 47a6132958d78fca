"""How many more jobs the limits of a user leave room for, counting what the user has in the queue already."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm.limits import SubmitLimit


class QueueRoom:
    """Asks the queue at most every ``look_every_s`` seconds, and never where there is no limit."""

    def __init__(self, limits: Sequence[SubmitLimit], look_every_s: float) -> None:
        self.limits = [limit for limit in limits if limit.is_certain]
        self.look_every_s = look_every_s
        self._queued: Counter[tuple[str, str]] = Counter()
        self._sent = 0
        self._next_look = 0.0
        self._at_most: int | None = None

    @property
    def jobs(self) -> int | None:
        """Jobs that would be taken now, as far as anybody knows; None for any number."""
        room = [self._at_most] if self._at_most is not None else []
        if self.limits:
            self._look()
            room += [limit.most - self._queued[limit.field, limit.name] - self._sent for limit in self.limits]
        return max(0, min(room)) if room else None

    def _look(self) -> None:
        if time.monotonic() < self._next_look:
            return
        with suppress(slurm_queue.SlurmCommandError):  # what was known counts until the queue answers
            self._queued, self._sent = slurm_queue.jobs_of_this_user(), 0
        self._next_look = time.monotonic() + self.look_every_s

    def accepted(self, jobs: int) -> None:
        """SLURM has taken so many."""
        self._sent += jobs
        self._at_most = None

    def refused(self, jobs: int) -> None:
        """SLURM has not taken so many: half of them are tried next."""
        self._at_most = max(1, jobs // 2)
        self._next_look = 0.0
