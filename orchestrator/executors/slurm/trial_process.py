"""The process of one trial in a SLURM job; it does not outlive the job's own."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from scalevec.orchestrator.executors.forked_workers import Forked, ForkServers, start_bound
from scalevec.results.claims import process_lives
from scalevec.results.opening import open_log

LOST = -signal.SIGKILL
"""The exit code of a process whose server was killed, and it with it."""


class FreshTrial:
    """A child of this process. It can be looked at in a signal handler too."""

    def __init__(self, command: Sequence[str], log: Path, cpus: int) -> None:
        self._child = start_bound(command, log, cpus)

    def ended(self) -> bool:
        """Whether it is over; it is not reaped, so that its number stays its own."""
        try:
            return self._ending() is not None
        except ChildProcessError:
            return True

    def _ending(self) -> "os.waitid_result | None":
        """How it ended, None while it runs, without a lock."""
        return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)

    @property
    def exit_code(self) -> int:
        """Of one that has ended; negative for a signal."""
        with suppress(ChildProcessError):
            if ending := self._ending():
                return ending.si_status if ending.si_code == os.CLD_EXITED else -ending.si_status
        return self._child.wait()

    def tell(self, number: int) -> None:
        """Send it a signal."""
        with suppress(ProcessLookupError):
            os.kill(self._child.pid, number)

    def reap(self) -> None:
        """Forget it once it has ended."""
        self._child.wait()


class ForkedTrial:
    """A worker of a fork server."""

    def __init__(self, worker: Forked) -> None:
        self._worker = worker

    def ended(self) -> bool:
        """Whether it is over."""
        return self._worker.ended()

    @property
    def exit_code(self) -> int:
        """Of one that has ended; negative for a signal."""
        return LOST if self._worker.exit_code is None else self._worker.exit_code

    def tell(self, number: int) -> None:
        """Send it a signal; in a handler too, which must not hear what the server says and then return."""
        if process_lives(self._worker.identity):
            with suppress(ProcessLookupError):
                os.kill(self._worker.identity["pid"], number)

    def reap(self) -> None:
        """The server does."""


TrialProcess = FreshTrial | ForkedTrial


def start_trial(
    command: Sequence[str], log: Path, cpus: int, arguments: Sequence[str] | None, servers: ForkServers | None
) -> TrialProcess:
    """Start ``command`` with its output appended to ``log``: forked by one of ``servers`` where that can be.

    Args:
        command: What is started where nothing is forked.
        log: Where the output goes.
        cpus: Threads that it may use.
        arguments: Those of the worker, None where it has to start fresh.
        servers: Of this job; None where it has but one trial, for which a server would be loaded in vain.
    """
    if servers is not None and arguments is not None:
        with open_log(log) as stream:
            worker = servers.fork(arguments, cpus, stream)
        if worker is not None:
            return ForkedTrial(worker)
    return FreshTrial(command, log, cpus)
