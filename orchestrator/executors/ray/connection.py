"""Being connected to Ray: to a cluster at an address, or to one started for this process alone."""

import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from scalevec.orchestrator.errors import ClusterLostError, InvalidInputError, MissingRequirementError
from scalevec.results.extras import install_command

Answer = TypeVar("Answer")
AUTO = "auto"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "error"}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes Ray take 127.0.0.1 for its own address, as it does on systems where it knows no clusters, and listen
there only. Ray reads these variables when it is imported."""
ANSWER_S = 5.0
"""How long an address has to answer."""
LOOK_S = 2.0
"""Between two looks whether the cluster's head answers."""
LOST_AFTER_S = 30.0
"""Silence of the head after which the cluster counts as lost; Ray itself ends the process after 60 s."""
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
HTTP2_SETTINGS = 4
"""The type of the first frame on either side, RFC 9113, section 3.4; Ray speaks gRPC, which is HTTP/2."""


def require_ray() -> None:
    """Raise ``MissingRequirementError`` where Ray is not installed."""
    if find_spec("ray") is None:
        raise MissingRequirementError(
            f"executor 'ray' needs Ray, which is not installed: {install_command('ray')}"
        )


class Connection:
    """Opened when first asked for. Without an ``address`` a cluster of ``cpus`` processors is started on
    this machine, which listens on loopback only; :meth:`close` stops it and removes its files.

    A connection that this process has already is shared, and left to who opened it.
    """

    def __init__(self, address: str | None, cpus: int) -> None:
        self.address, self.cpus = address, cpus
        self._is_open = self._owns = False
        self._folder: str | None = None
        self._head: tuple[str, int] | None = None
        self._looked = 0.0
        self._silent_since: float | None = None
        self.is_lost = False
        """Whether the cluster is gone: Ray must not be called any more."""

    def open(self) -> None:
        """Connect.

        Raises ``MissingRequirementError`` where nobody answers, ``InvalidInputError`` for an address that is
        none.
        """
        if self._is_open:
            return
        if self.address is not None:
            require_answer(self.address)
        for name, value in (QUIET if self.address else QUIET | LOOPBACK).items():
            os.environ.setdefault(name, value)
        with _no_standard_error(), _kept_sigterm_handler():
            self._owns = self._connect()
        self._head = _head()
        self._is_open = True

    def answers(self) -> bool:
        """Whether the cluster's head can be asked; Ray would end this process for asking one that is lost.

        Raises ``ClusterLostError`` where it has not answered for a while.
        """
        now = time.monotonic()
        if self._head is not None and now - self._looked >= LOOK_S:
            self._looked = now
            if is_listening(self._head):
                self._silent_since = None
            elif self._silent_since is None:
                self._silent_since = now
        if self._silent_since is not None and now - self._silent_since >= LOST_AFTER_S:
            self.is_lost = True
            raise ClusterLostError(
                f"the head of the Ray cluster ({self.address or 'on this machine'}) has not answered for "
                f"{LOST_AFTER_S:g} s; its trials end with it, and continue from their checkpoints once the "
                "cluster is back"
            )
        return self._silent_since is None

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """What ``question``, which Ray puts to the cluster's head, returns or raises.

        Ray waits without end for a head that is lost on the way, and then ends this process: the question is
        put in a thread of its own, which is left behind. Raises ``ClusterLostError``.
        """
        answer: Future[Answer] = Future()

        def put() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:  # noqa: BLE001 (for who asked)
                answer.set_exception(error)

        threading.Thread(target=put, daemon=True).start()
        while True:
            with suppress(TimeoutError):
                return answer.result(LOOK_S)
            if answer.done():  # a TimeoutError of the question's own
                return answer.result()
            self.answers()

    def _connect(self) -> bool:
        """Whether this process was not connected before."""
        import ray
        from ray._private import worker

        if ray.is_initialized():
            return False
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        try:
            ray.init(address=self.address or "local", **self._options())
        except (OSError, RuntimeError, ImportError, ValueError) as error:
            raise MissingRequirementError(_explained(error, self.address)) from error
        # Ray prints the last lines of a daemon that died, whatever log_to_driver says.
        worker._worker_logs_enabled = False
        return True

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        if self.address is None:
            # A path of a socket has 107 characters at most: not the system's own, often longer, folder.
            self._folder = tempfile.mkdtemp(prefix="scalevec-", dir=os.environ.get("RAY_TMPDIR", "/tmp"))
            options |= {"num_cpus": self.cpus, "include_dashboard": False, "_temp_dir": self._folder}
        return options

    def close(self) -> None:
        """Disconnect if it was this one that connected."""
        if self._owns and self.is_lost:
            from ray._private import worker

            # Ray's own way to end them asks the cluster that is lost.
            node: Any = worker._global_node
            for daemons in node.all_processes.values() if node is not None else ():
                for daemon in daemons:
                    daemon.process.kill()
        elif self._owns:
            import ray

            ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._is_open, self._owns, self._folder = False, False, None


def _head() -> tuple[str, int] | None:
    import ray

    if not ray.is_initialized():
        return None
    return parts_of(ray.get_runtime_context().gcs_address)


def is_listening(address: tuple[str, int]) -> bool:
    """Whether something accepts connections at (host, port)."""
    try:
        socket.create_connection(address, timeout=LOOK_S).close()
    except OSError:
        return False
    return True


def _explained(error: Exception, address: str | None) -> str:
    if address == AUTO and isinstance(error, ConnectionError):
        return "no Ray cluster runs on this machine (address is auto); start one: ray start --head"
    message = str(error).strip().partition("\n")[0]
    return f"Ray at {address or 'this machine'} cannot be used: {message}"


def require_answer(address: str) -> None:
    """Raise ``MissingRequirementError`` where nothing answers as Ray does; Ray itself tries for minutes."""
    if address == AUTO:
        address = os.environ.get("RAY_ADDRESS", AUTO)
    if address == AUTO:
        return
    try:
        with socket.create_connection(parts_of(address), timeout=ANSWER_S) as connection:
            problem = None if _speaks_http2(connection) else "something else than Ray listens there"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem is not None:
        raise MissingRequirementError(
            f"no Ray cluster answers at {address} ({problem}); "
            "start one (ray start --head), or correct 'address' in the profile"
        )


def _speaks_http2(connection: socket.socket) -> bool:
    """Whether the other side greets as a gRPC server does. Raises ``TimeoutError`` where it is silent."""
    if os.environ.get("RAY_USE_TLS", "0") not in ("0", "false"):
        return True  # Ray finds out
    connection.sendall(HTTP2_GREETING)
    greeting = connection.recv(9, socket.MSG_WAITALL)
    return len(greeting) == 9 and greeting[3] == HTTP2_SETTINGS


def parts_of(address: str) -> tuple[str, int]:
    """Return host and port. Raises ``InvalidInputError``."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535:
        raise InvalidInputError(f"address is {address!r}; allowed: HOST:PORT of the cluster's head, or auto")
    return host.strip("[]"), int(port)


@contextmanager
def _kept_sigterm_handler() -> Iterator[None]:
    """Ray's own, which it installs when it connects, would end this process with an exit code of Ray's."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is not before:  # only ever in the main thread
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """Ray's parts in C++ write to the descriptor itself; what they say is in the exception too."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
