"""Trials as fresh processes on this machine, one thread each."""

import os
import signal
import subprocess
import time
from contextlib import suppress

from orchestrator.executors.base import Ended
from orchestrator.jobs import Job

POLL_S = 0.05
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""On small models one thread a trial and more trials beat more threads a trial."""
KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**33), "MALLOC_MMAP_THRESHOLD_": str(2**32)}
"""glibc gives the pages of large freed tensors back and faults them in again at each step; this halves the
system time of a small trial. Other C libraries ignore it."""


class LocalExecutor:
    """At most ``slots`` worker processes at a time, each in a session of its own.

    The session keeps a Ctrl-C at the terminal from reaching the workers: the scheduler passes it on as
    a request to checkpoint.
    """

    name = "local"

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def free_slots(self) -> int:
        """Slots without a running process."""
        return self.slots - len(self._processes)

    def submit(self, job: Job) -> str:
        """Start the process of ``job``; its number is the process id."""
        with job.log.open("ab") as log:
            process = subprocess.Popen(
                job.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | ONE_THREAD | KEEP_FREED_MEMORY | {"PYTHONSAFEPATH": "1"},
            )
        self._processes[str(process.pid)] = process
        return str(process.pid)

    def wait(self, timeout_s: float) -> list[Ended]:
        """The processes that ended; waits for the first one at most ``timeout_s`` seconds."""
        deadline = time.monotonic() + timeout_s
        while True:
            ended = [
                Ended(number, process.returncode)
                for number, process in self._processes.items()
                if process.poll() is not None
            ]
            if ended or time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
        for one in ended:
            del self._processes[one.number]
        return ended

    def stop(self, *, hard: bool = False) -> None:
        """SIGTERM (the workers checkpoint and end) or SIGKILL to every process."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
