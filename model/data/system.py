"""What the system gives: processors, processes that share out work, and files that are whole.

Loads nothing that takes long: a process of a pool begins here, before NumPy and its threads.
"""

import errno
import math
import multiprocessing
import os
import re
import shutil
import signal
import stat
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar

OWN_GROUPS = Path("/proc/self/cgroup")
"""What the kernel says of the cgroups that this process is in."""
CGROUPS = Path("/sys/fs/cgroup")
MOST_BYTES = 2**26
"""Of a file of facts."""
SECONDS_BETWEEN = 10.0
"""Between two messages."""
_AHEAD = 4
"""Tasks for each process that are under way or whose answers wait for their turn."""

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Progress = Callable[[str], None]


def usable_cpus(groups: Path = OWN_GROUPS, mounted: Path = CGROUPS) -> int:
    """Return the least of affinity, the quotas of cgroups (rounded up) and what a SLURM job has on its node.

    Not every cluster binds the processes of a job to the job's processors. The folders of ``groups`` are
    under ``mounted``.
    """
    given = [len(os.sched_getaffinity(0))]
    if (of_job := os.environ.get("SLURM_CPUS_ON_NODE", "")).isdecimal():
        given.append(int(of_job))
    for folder in _groups_around(groups, mounted):
        quota = _content(folder / "cpu.max") or " ".join(
            _content(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")
        )
        if match := re.fullmatch(r"(\d+)\s+(\d+)", quota):  # without a quota: "max 100000", or -1
            given.append(math.ceil(int(match[1]) / int(match[2])))
    return max(1, min(given))


def _groups_around(groups: Path, mounted: Path) -> Iterator[Path]:
    """Yield the folders of the cgroups that this process is in, of either version, and those around them."""
    lines: list[str] = []
    with suppress(OSError):  # not Linux
        lines = groups.read_text().splitlines()
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if not controllers or "cpu" in controllers.split(","):
            root = mounted / "cpu" if controllers else mounted
            folder = root / path.lstrip("/")
            while folder.is_relative_to(root):
                yield folder
                folder = folder.parent


def _content(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # a folder outside of this namespace, or the root, which has no limit
        return ""


class Workers:
    """``count`` processes; with none, this one does the work.

    They are told nothing but tasks, so a script that prepares a large corpus has to guard its own start by
    ``if __name__ == "__main__"``, as with any pool of ``multiprocessing``.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        # Not multiprocessing.Pool: when the system kills one of its processes, it waits for ever.
        context = multiprocessing.get_context("spawn")
        self._executor = futures.ProcessPoolExecutor(count, context, _begin, (count,)) if count else None

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
        waiting: deque[futures.Future[Answer]] = deque()
        try:
            for task in tasks:
                # Ctrl-C reaches every process at the terminal; only this one answers it. Others inherit the
                # mask.
                before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
                try:
                    waiting.append(self._executor.submit(function, task))
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
                if len(waiting) >= _AHEAD * self._count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except futures.BrokenExecutor:
            raise ChildProcessError(
                "a process that prepared the corpus ended without an answer: perhaps it was killed for want "
                "of memory; give the same command again with fewer --jobs"
            ) from None


def _begin(count: int) -> None:
    """Set up a process of the pool before it loads NumPy or the tokenizers, whose threads would multiply."""
    os.environ |= {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": str(count), "TOKENIZERS_PARALLELISM": "false"}
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


@contextmanager
def complete_directory(final: Path, within: Path | None = None, *, exclusive: bool = False) -> Iterator[Path]:
    """A new directory beside ``final`` that takes its name in one step, or is removed on an error.

    With ``within``, of the same file system, it is made there. Where another process has made ``final``
    meanwhile, that one stays: under a name that follows from the content it is the same. Where a person chose
    the name, ``exclusive`` raises ``FileExistsError`` then. Raises OSError if the disk does.
    """
    partial = (within or final.parent) / f".{final.name}.{uuid.uuid4().hex}.partial"
    try:
        with room_in(final):
            partial.mkdir(parents=True)
            yield partial
            sync(partial)
        try:
            partial.rename(final)
        except OSError:
            if not final.exists():
                raise
            if exclusive:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from None
        sync(final.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # after the rename there is nothing to remove


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Let the error of a full disk name ``folder``, unless it names a file: of a write it names none."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            error.filename = error.filename or str(folder)
        raise


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file and wait until the disk has it."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_regular(path: Path) -> bytes:
    """The content of a regular file, through no link.

    Raises ``OSError``, or ``ValueError`` for anything else, as a FIFO, and for more than ``MOST_BYTES``.
    """
    require_regular(path, MOST_BYTES)
    return path.read_bytes()


def require_regular(path: Path, most: float = math.inf) -> None:
    """Raise ``ValueError`` where ``path`` is a link, no file, or larger than ``most`` bytes."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path.name} is a link, or no file")
    if status.st_size > most:
        raise ValueError(f"{path.name} has {status.st_size:,} bytes; {most:,} are read at most")


def sync(path: Path) -> None:
    """Wait until the disk has the content of a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
