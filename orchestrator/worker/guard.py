"""Commands that end with process PARENT; a file of its own, run without anything else of ours.

``python guard.py alone PARENT COMMAND...`` becomes the command, which the kernel kills when PARENT dies:
between fork and exec a process with threads (a worker of Ray has them) cannot safely run Python.

``python guard.py family PARENT COMMAND...`` runs a command whose processes all end with it. The command runs
in this process's group. SIGALRM, which the kernel sends too when the parent dies, ends all that the command
has started, in whatever session; other requests to stop are the command's alone. Afterwards this process ends
as the command did.
"""

import ctypes
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_FOR_THE_COMMAND = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
CANNOT_RUN = 126
LONGEST_S = 30.0
"""A process that waits for a device cannot be killed before that answers."""


def main() -> None:
    """Become the command, or run it to its end."""
    parent, command = int(sys.argv[2]), sys.argv[3:]
    if sys.argv[1] == "alone":
        bind_to(parent)
        os.execvp(command[0], command)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in _FOR_THE_COMMAND:  # handled, not ignored: an ignored signal would stay so in the command
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGALRM, lambda *_: _end_everything())
    bind_to(parent, signal.SIGALRM)
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, guard)
    _, status = os.waitpid(child, 0)
    _kill_descendants()
    _end_as(status)


def bind_to(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its ``parent`` dies; end it if that has died already."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        sys.exit("the process that started this one is gone")


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _become(command: list[str], guard: int) -> None:
    bind_to(guard)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as problem:
        gone = isinstance(problem, FileNotFoundError) and Path(command[0]).exists()
        why = "the program in its first line is not there" if gone else problem.strerror
        print(f"{command[0]}: {why}", file=sys.stderr, flush=True)
        os._exit(CANNOT_RUN)


def _end_everything() -> None:
    _kill_descendants()
    os._exit(1)


def _kill_descendants() -> None:
    """End all that the command has started: who loses its parent becomes a child of this process."""
    deadline = time.monotonic() + LONGEST_S
    while (living := _descendants()) and time.monotonic() < deadline:
        for pid in living:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _descendants() -> list[int]:
    """The living processes whose parents lead to this one."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                parents[int(folder.name)] = int(parent)
    family = [os.getpid()]
    for ancestor in family:
        family += [pid for pid, parent in parents.items() if parent == ancestor]
    return family[1:]


def _end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left one, where it is wanted
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        number = os.WTERMSIG(status)
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
