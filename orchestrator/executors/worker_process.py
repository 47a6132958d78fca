"""How every executor starts a worker: its environment, and a process that does not outlive its parent."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scalevec.orchestrator.worker import kill_with_parent
from scalevec.results.opening import open_log

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**33), "MALLOC_MMAP_THRESHOLD_": str(2**32)}
"""glibc gives the pages of large freed tensors back and faults them in again at each step; this halves the
system time of a small trial. Other C libraries ignore it."""
_OF_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""What a person may have set of torch's memory on a GPU; it is read when CUDA begins."""
GROW_SEGMENTS = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
"""Freed GPU memory serves arrays of other sizes too: micro-batches can be as large as the card holds."""
KILL_WITH_PARENT = (sys.executable, "-I", "-S", kill_with_parent.__file__)
"""``-I -S``: no site-packages, so that the few lines between fork and exec start in milliseconds."""


def worker_environment(cpus: int = 1) -> dict[str, str]:
    """Return this process's variables with one thread for each of ``cpus``.

    On small models one thread per trial and more trials beat more threads per trial. The store's URL, which
    may hold a password, is left out: workers never talk to it.
    """
    threads = dict.fromkeys(THREAD_VARIABLES, str(max(1, cpus)))
    inherited = {name: value for name, value in os.environ.items() if name != "SCALEVEC_STORE"}
    allocator = {} if inherited.keys() & set(_OF_ALLOCATOR) else GROW_SEGMENTS
    return inherited | threads | KEEP_FREED_MEMORY | allocator | {"PYTHONSAFEPATH": "1"}


def start_bound(
    command: Sequence[str], log: Path, cpus: int, *, new_session: bool = False
) -> "subprocess.Popen[bytes]":
    """Start ``command`` with its output appended to ``log``; the kernel kills it when this process dies.

    SLURM's task and Ray's worker may be killed alone: what they started must not go on writing into the run
    directory while the next attempt does.
    """
    with open_log(log) as stream:
        return subprocess.Popen(
            (*KILL_WITH_PARENT, str(os.getpid()), *command),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=new_session,
            env=worker_environment(cpus),
        )
