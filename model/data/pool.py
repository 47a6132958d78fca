"""Processes that share out the work on a corpus, and how far they are."""

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Self, TypeVar

SECONDS_BETWEEN = 10.0
"""Between two messages."""
_AHEAD = 4
"""Tasks for each process that are under way or whose answers wait for their turn."""

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Progress = Callable[[str], None]


class Workers:
    """``count`` processes; with none, this one does the work.

    They are told nothing but tasks, so a script that prepares a large corpus has to guard its own start by
    ``if __name__ == "__main__"``, as with any pool of ``multiprocessing``.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        # Not multiprocessing.Pool: when the system kills one of its processes, it waits for ever.
        self._executor = (
            ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin, (count,))
            if count
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._executor is None:
            return
        for process in list((self._executor._processes or {}).values()):  # a task may take minutes
            process.kill()
        self._executor.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Task], Answer], tasks: Iterable[Task]) -> Iterator[Answer]:
        """The answers of ``function`` (of a module) to ``tasks``, in their order, few of them held at a time.

        Raises what it raises; ``ChildProcessError`` where a process ends without an answer.
        """
        if self._executor is None:
            yield from map(function, tasks)
            return
        waiting: deque[Future[Answer]] = deque()
        try:
            for task in tasks:
                waiting.append(self._submitted(self._executor, function, task))
                if len(waiting) >= _AHEAD * self._count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise ChildProcessError(
                "a process that prepared the corpus ended without an answer: perhaps it was killed for want "
                "of memory; give the same command again with fewer --jobs"
            ) from None

    @staticmethod
    def _submitted(
        executor: ProcessPoolExecutor, function: Callable[[Task], Answer], task: Task
    ) -> "Future[Answer]":
        # Ctrl-C reaches every process at the terminal; only this one answers it. Others inherit the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return executor.submit(function, task)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(count: int) -> None:
    """Set up a process of the pool before it loads NumPy or the tokenizers, whose threads would multiply."""
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": str(count),
        "TOKENIZERS_PARALLELISM": "false",
    }
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class Meter:
    """Says now and then how much was done (``did``, as in "read") of ``total`` bytes; 0: nobody knows."""

    def __init__(self, progress: Progress, did: str, total: int = 0) -> None:
        self._progress, self._did, self._total = progress, did, total
        self._documents = self._bytes = 0
        self._began = time.monotonic()
        self._next_at = self._began + SECONDS_BETWEEN

    def count(self, n_bytes: int, n_documents: int = 1) -> None:
        """Count so many documents, together of so many bytes, as done."""
        self._documents += n_documents
        self._bytes += n_bytes
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + SECONDS_BETWEEN
        rate = max(self._bytes, 1) / max(now - self._began, 1e-9)
        of_all = f" of {self._total / 1e6:,.0f}" if self._total else ""
        left = f", {(self._total - self._bytes) / rate / 60:,.0f} min left" if self._total else ""
        self._progress(
            f"{self._did}: {self._documents:,} documents, {self._bytes / 1e6:,.0f}{of_all} MB so far, "
            f"{rate / 1e6:,.1f} MB/s{left}"
        )
