"""How every executor starts a worker: a process that does not outlive its parent, or a fork of a server."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from scalevec.orchestrator.attempts.jobs import BOUND, FORK_SERVER, STOP_SIGNALS, WORKER, Job
from scalevec.orchestrator.snapshots.snapshot import from_the_same_code
from scalevec.orchestrator.worker import guard
from scalevec.results.claims import process_identity, process_lives
from scalevec.results.opening import open_log

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**33), "MALLOC_MMAP_THRESHOLD_": str(2**32)}
"""glibc gives the pages of large freed tensors back and faults them in again at each step; this halves the
system time of a small trial. Other C libraries ignore it."""
_OF_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""What a person may have set of torch's memory on a GPU; it is read when CUDA begins."""
GROW_SEGMENTS = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
"""Freed GPU memory serves arrays of other sizes too: micro-batches can be as large as the card holds."""
KILL_WITH_PARENT = (sys.executable, "-I", "-S", guard.__file__, "alone")
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
    bound = (*KILL_WITH_PARENT, str(os.getpid()), *command)
    with open_log(log) as stream:
        return start(bound, stream, worker_environment(cpus), new_session=new_session)


def start(
    command: Sequence[str], log: IO[bytes], environment: Mapping[str, str], *, new_session: bool = True
) -> "subprocess.Popen[bytes]":
    """Start ``command``, which prints into ``log``, by default in a session of its own."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=new_session,
        env=environment,
    )


class Fresh:
    """A child of this process. It can be looked at in a signal handler too."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self._child = child
        self.identity: Mapping[str, Any] = process_identity(child.pid)

    def ended(self) -> bool:
        """Whether it is over; it is not reaped, so that its number stays its own."""
        try:
            return self._ending() is not None
        except ChildProcessError:
            return True

    def _ending(self) -> "os.waitid_result | None":
        """How it ended, None while it runs; without the lock of Popen, which a handler may find held."""
        return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)

    @property
    def exit_code(self) -> int:
        """Of one that has ended; negative for a signal."""
        with suppress(ChildProcessError):
            if ending := self._ending():
                return ending.si_status if ending.si_code == os.CLD_EXITED else -ending.si_status
        return self._child.wait()

    def reap(self) -> None:
        """Forget it once it has ended."""
        self._child.wait()


LOADING_S = 120.0
"""The longest wait for a server that loads torch; it takes seconds, or a minute from a cold file server."""
ANSWER_S = 10.0
"""The longest wait for one that has answered before."""
LOOK_S = 5.0
"""Between two looks for processes that ended without the server's word."""
ANSWER_BYTES = 2**14


def arguments_to_fork(job: Job) -> tuple[str, ...] | None:
    """The arguments of a worker that may be forked, None for one that has to start fresh.

    CUDA does not survive a fork, Linux alone tells a server of an end without a poll, and an interpreter or a
    launcher of its own is not the server's.
    """
    is_worker = job.command[: len(WORKER)] == WORKER
    can_be_forked = is_worker and job.options.device == "cpu" and sys.platform == "linux"
    return job.command[len(WORKER) :] if can_be_forked else None


@contextmanager
def _signals_held() -> Iterator[None]:
    """Within it no request to stop is handled.

    A server that is started in it holds them back for ever: they may be sent to every process of a job.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ServerGoneError(Exception):
    """The server could not start, does not answer, or was killed."""


class Forked:
    """A worker that a server forked, and reaps; should that go first, nobody learns the exit code."""

    def __init__(self, identity: Mapping[str, Any], server: "ForkServer") -> None:
        self.identity = identity
        self.exit_code: int | None = None
        """Negative for a signal."""
        self._server = server

    def ended(self) -> bool:
        """Whether it is over."""
        self._server.hear()
        return self.exit_code is not None or (self._server.gone and not process_lives(self.identity))

    def reap(self) -> None:
        """The server does."""


def tell(identity: Mapping[str, Any], number: int) -> None:
    """Send a signal to the process of this identity if it still runs; in a signal handler too."""
    if process_lives(identity):
        # Gone in this very moment, and its number perhaps somebody else's.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(identity["pid"], number)


class ForkServer:
    """Forks workers with the variables ``environment``; they outlive it, and it ends with its owner.

    Those of a ``bound`` one do not: they end with it, however its owner ends. ``command`` starts it, by
    default from the code of this process. What keeps it from loading is printed into ``log``.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        log: IO[bytes] | None = None,
        command: Sequence[str] | None = None,
        *,
        bound: bool = False,
    ) -> None:
        command = command or from_the_same_code(FORK_SERVER)
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.setblocking(False)
        with theirs, _signals_held():
            # A session of its own: a Ctrl-C at the terminal must not reach it.
            self._process = subprocess.Popen(
                (*KILL_WITH_PARENT, str(os.getpid()), *command, BOUND) if bound else command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL if log is None else log,
                start_new_session=True,
                env=environment,
            )
        self._living: dict[int, Forked] = {}
        """Of whose end the server has not told, by process number."""
        self._overdue: set[int] = set()
        """Those of them that were dead at the last look."""
        self._looked = time.monotonic()
        self.has_served = False
        self.gone = False

    def fork(self, arguments: Sequence[str], log: IO[bytes]) -> Forked:
        """A worker with ``arguments`` that prints into ``log``.

        Raises ``ServerGoneError``. A worker that a dying server forked in that moment may run all the same;
        its claim keeps another from training the trial too.
        """
        try:
            socket.send_fds(self._connection, [json.dumps(arguments).encode()], [log.fileno()])
            identity = self._answer(ANSWER_S if self.has_served else LOADING_S)
        except (OSError, ServerGoneError) as problem:
            self.close()
            raise ServerGoneError from problem
        except BaseException:
            self.close()  # else the answer to this request would be taken for the next one's
            raise
        self.has_served = True
        self._living[identity["pid"]] = Forked(identity, self)
        return self._living[identity["pid"]]

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the identity of the new worker; ends of others may be told before it."""
        deadline = time.monotonic() + timeout_s
        while True:
            if not select.select([self._connection], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ServerGoneError
            if (identity := self._heard().get("identity")) is not None:
                return dict(identity)

    def hear(self) -> None:
        """Learn of the ends that the server has told since, and whether it is still there.

        A signal handler that does not return may call it at any moment.
        """
        if self.gone:
            return
        try:
            while True:
                self._heard()
        except BlockingIOError:
            self._look_for_the_overdue()
        except (OSError, ServerGoneError):
            self.close()

    def _heard(self) -> dict[str, Any]:
        with _signals_held():  # what was received is also noted before a handler looks
            message = self._connection.recv(ANSWER_BYTES)
            if not message:
                raise ServerGoneError
            answer: dict[str, Any] = json.loads(message)
            if "exit_code" in answer:
                self._living.pop(answer["pid"]).exit_code = answer["exit_code"]
        return answer

    def _look_for_the_overdue(self) -> None:
        """A server that is silent of a death at two looks (stopped, stuck) is ended."""
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        dead = {pid for pid, process in self._living.items() if not process_lives(process.identity)}
        if dead & self._overdue:
            self.close()
        self._overdue = dead

    def close(self) -> None:
        """End the server; what it forked goes on."""
        self.gone = True
        self._connection.close()
        self._process.kill()
        self._process.wait()


class ForkServers:
    """Servers by the processors of a worker, which its variables depend on.

    ``started`` gives a command as it is started from the code that workers are to have; see
    :class:`ForkServer` for ``bound``.
    """

    def __init__(self, started: Callable[[Sequence[str]], Sequence[str]], *, bound: bool = False) -> None:
        self._started, self._bound = started, bound
        self.by_cpus: dict[int, ForkServer] = {}

    def fork(self, arguments: Sequence[str], cpus: int, log: IO[bytes]) -> Forked | None:
        """None where no server can be had; why is in the log of the first worker that asked for it."""
        server = self.by_cpus.get(cpus)
        if server is None or (server.gone and server.has_served):
            variables, command = worker_environment(cpus), self._started(FORK_SERVER)
            server = self.by_cpus[cpus] = ForkServer(variables, log, command, bound=self._bound)
        if server.gone:
            return None
        with suppress(ServerGoneError):
            return server.fork(arguments, log)
        return None

    def close(self) -> None:
        """End the servers."""
        for server in self.by_cpus.values():
            server.close()
