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
    """Bind this process to its parent, look whether that still lives, and become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:
        os.execvp(command[0], command)
    sys.exit("the process that started this one is gone")


if __name__ == "__main__":
    main()
