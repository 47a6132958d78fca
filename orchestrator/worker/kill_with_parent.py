"""``python kill_with_parent.py PARENT COMMAND...``: become a command that dies with process PARENT.

A file of its own, run without anything else of ours: between fork and exec a process with threads (a worker
of Ray has them) cannot safely run Python.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Bind this process to its parent, and become the command."""
    bind_to(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])


def bind_to(parent: int) -> None:
    """Have the kernel kill this process when its ``parent`` dies; end it if that has died already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the process that started this one is gone")


if __name__ == "__main__":
    main()
