"""The environment in which every executor starts a worker process."""

import os

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**33), "MALLOC_MMAP_THRESHOLD_": str(2**32)}
"""glibc gives the pages of large freed tensors back and faults them in again at each step; this halves the
system time of a small trial. Other C libraries ignore it."""


def worker_environment(cpus: int = 1) -> dict[str, str]:
    """This process's variables with a thread for each of ``cpus``.

    On small models one thread a trial and more trials beat more threads a trial. The store's URL, which may
    hold a password, is left out: workers never talk to it.
    """
    threads = dict.fromkeys(THREAD_VARIABLES, str(max(1, cpus)))
    own = {name: value for name, value in os.environ.items() if name != "SCALEVEC_STORE"}
    return own | threads | KEEP_FREED_MEMORY | {"PYTHONSAFEPATH": "1"}
