"""Whether the other processes of a trial still run, by counters that a thread of each moves.

A long step, a compilation or a large file stops no thread: only a process that is stopped, or whose machine
or network is, gives no sign. Silence is counted in one's own looks, so that a job that was suspended as a
whole finds nobody silent when it goes on.
"""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

LOOKS = 30
"""Of which each is without a sign of life, before a rank counts as silent."""
LEFT = 2**40
"""On the counter of a rank that has left; more than beats ever make."""
FAREWELL_S = 5.0
"""How long one that leaves waits for its word to be heard."""


class Vigil:
    """Moves this rank's counter and looks at those of others, until :meth:`leave`.

    Args:
        store: A connection of its own: one that waits for an answer keeps all who share it waiting.
        rank: This process.
        watched: The ranks whose silence matters to it.
        limit_s: Seconds without a sign of life.
        on_silence: Called once, in a thread, with the ranks that are silent.
    """

    def __init__(
        self,
        store: "Store",
        rank: int,
        watched: Iterable[int],
        limit_s: float,
        on_silence: Callable[[list[int]], None],
    ) -> None:
        self._store, self._rank, self._on_silence = store, rank, on_silence
        self._counts = dict.fromkeys(watched, 0)
        self._pause_s = limit_s / LOOKS
        self._over = threading.Event()
        self._teller = threading.Thread(target=self._tell, daemon=True, name="sign of life")
        self._teller.start()
        # Apart: whoever asks the store of a stopped process waits for its answer for good.
        threading.Thread(target=self._look, daemon=True, name="vigil").start()

    def leave(self) -> None:
        """Watch no more, and tell the others that this rank's silence means nothing from now on."""
        self._over.set()
        self._teller.join(FAREWELL_S)

    def _tell(self) -> None:
        try:
            while not self._over.wait(self._pause_s):
                self._store.add(_key(self._rank), 1)
                for rank in self._counts:
                    self._counts[rank] = self._store.add(_key(rank), 0)
            self._store.add(_key(self._rank), LEFT)
        except RuntimeError:  # rank 0, who keeps the store, is gone: as good as silent
            return

    def _look(self) -> None:
        seen, looks = dict(self._counts), dict.fromkeys(self._counts, 0)
        while not self._over.wait(self._pause_s):
            for rank, count in list(self._counts.items()):
                looks[rank] = looks[rank] + 1 if count == seen[rank] and count < LEFT else 0
                seen[rank] = count
            if silent := [rank for rank, n in looks.items() if n >= LOOKS]:
                self._on_silence(silent)
                return


def _key(rank: int) -> str:
    return f"beats/{rank}"
