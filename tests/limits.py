"""Bounds of time and memory on what is called within this process."""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

IDLE = 0.02
"""Seconds of work in a second below which a process waits."""
HEAVY = (
    *("torch", "pandas", "pyarrow.parquet", "scipy.optimize", "matplotlib.figure"),
    "scalevec.model.decoder",
)
"""Loaded before the first command: an import that is interrupted leaves half a module."""

for module in HEAVY:
    import_module(module)


class HangError(BaseException):
    """A command did not end in time; nothing catches this."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise :class:`HangError` after so many seconds of work, or of waiting in which nothing is done.

    A machine with much else to do makes neither longer.
    """
    began = looked = time.process_time()
    idle_s = 0

    def look(*_: object) -> None:
        nonlocal looked, idle_s
        now = time.process_time()
        idle_s = 0 if now - looked > IDLE else idle_s + 1
        looked = now
        if max(idle_s, now - began) > seconds:
            raise HangError

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 1, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def memory_bytes(kind: str) -> int:
    """The memory that this process holds (``VmRSS``), or the most since the last call (``VmHWM``)."""
    [kib] = re.findall(rf"{kind}:\s+(\d+)", Path("/proc/self/status").read_text())
    Path("/proc/self/clear_refs").write_text("5")
    return int(kib) * 1024
