"""A process that has loaded what training needs, and forks a worker for each request.

``python -P -m scalevec.orchestrator.worker.fork_server [--bound]``, with a Unix socket for its standard
input: each request is a message, the arguments of ``orchestrator.worker.train`` in JSON, and comes with the
open log of the worker. The answers, JSON too, are ``{"identity": ...}`` of the new process at once and
``{"pid": ..., "exit_code": ...}`` when one ends.

To load torch takes seconds, as long as a tiny model trains; a fork takes none. A forked worker is as much on
its own as a fresh one: a session, a claim and a log of its own, and it outlives this process, which ends when
the socket's other end is gone. With ``--bound`` it does not: the kernel kills it with this process. Where the
device is a GPU, workers start fresh: CUDA does not survive a fork.
"""

import atexit
import gc
import importlib
import json
import os
import selectors
import shlex
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

import setproctitle

from scalevec.orchestrator.attempts.jobs import BOUND, STOP_SIGNALS, WORKER
from scalevec.orchestrator.worker.guard import bind_to
from scalevec.orchestrator.worker.provenance import environment
from scalevec.results.claims import process_identity

REQUEST_BYTES = 2**17
"""More than any request has: paths, and the options of one trial."""


@dataclass(frozen=True)
class _ForkRequest:
    arguments: list[str]
    log: int
    """A file descriptor."""


def main() -> int:
    """Serve until the other end is gone; in each forked process: be a worker."""
    gc.disable()  # torch makes many objects that stay: looking through them takes a sixth of its loading
    from scalevec.orchestrator.worker import train as worker

    if "torch" in sys.modules:
        # The first optimizer imports the compiler, 1.8 s: here once, not in every worker.
        importlib.import_module("torch._dynamo")
    os.close(os.pidfd_open(os.getpid()))  # a system that forbids it says so before anything is forked
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as a parent may leave it, it hides exit codes
    environment()  # remembers versions and commit: a worker says what it was forked with, not what lies there
    gc.freeze()  # a collection in a worker need not touch, and so copy, what all share
    gc.enable()
    server, is_bound = os.getpid(), BOUND in sys.argv[1:]
    with socket.socket(fileno=os.dup(0)) as connection:
        request = _serve(connection)
    if request is None:
        return 0
    if is_bound:
        bind_to(server)
    _be_alone(request, worker.__file__)
    code = worker.main(request.arguments)
    # As multiprocessing ends its forks: to take modules down touches, and so copies, what all share, 0.3 s.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(code)


def _serve(connection: socket.socket) -> _ForkRequest | None:
    """Fork for each request; returns it in the forked process alone, and None where no more can come."""
    living: dict[int, int] = {}
    """Process numbers by the descriptor that becomes readable at the process's end."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not connection:
                    selector.unregister(key.fileobj)
                    _tell_end(connection, living.pop(key.fd), key.fd)
                    continue
                request = _received(connection)
                if request is None or _is_left(connection):
                    return None
                # One thread, and no CUDA yet: the only state in which a process that loaded torch may fork.
                pid = os.fork()
                if pid == 0:  # the selector and the connection are closed on the way out
                    for ends in living:
                        os.close(ends)
                    return request
                os.close(request.log)
                ends = _tell_start(connection, pid)
                living[ends] = pid
                selector.register(ends, selectors.EVENT_READ)


def _is_left(connection: socket.socket) -> bool:
    """Whether the other end has gone since its last message: then nobody would watch a new worker."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False


def _tell_start(connection: socket.socket, pid: int) -> int:
    """Tell the client who the new process is; return a descriptor that becomes readable when it ends."""
    # A zombie keeps its PID until it is reaped: its identity can be read even if it has already exited.
    _send(connection, {"identity": process_identity(pid)})
    return os.pidfd_open(pid)


def _received(connection: socket.socket) -> _ForkRequest | None:
    message, logs, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 1)
    return _ForkRequest(json.loads(message), logs[0]) if message else None


def _tell_end(connection: socket.socket, pid: int, ends: int) -> None:
    os.close(ends)
    _, status = os.waitpid(pid, 0)
    _send(connection, {"pid": pid, "exit_code": os.waitstatus_to_exitcode(status)})


def _send(connection: socket.socket, answer: dict[str, object]) -> None:
    with suppress(ConnectionError):  # nobody there: the next look at the connection ends this process
        connection.send(json.dumps(answer).encode())


def _be_alone(request: _ForkRequest, program: str) -> None:
    """What a fresh process would have: a session, standard streams, arguments and a name of its own."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # held back from the server by its client
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nowhere, 0), (request.log, 1), (request.log, 2)):
        os.dup2(source, target)
    os.close(nowhere)
    os.close(request.log)
    sys.argv = [program, *request.arguments]
    # For ps and kill; it is written over the variables that /proc shows, not those that the process has.
    setproctitle.setproctitle(shlex.join([*WORKER, *request.arguments]))


if __name__ == "__main__":
    sys.exit(main())
