"""Being connected to Ray: to a cluster at an address, or to one started for this process alone."""

import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from orchestrator.errors import Lacking, Refused

AUTO = "auto"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "error"}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes Ray take 127.0.0.1 for its own address, as it does on systems where it knows no clusters, and listen
there only. Ray reads these variables when it is imported."""
ANSWER_S = 5.0
"""How long an address has to answer."""
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
HTTP2_SETTINGS = 4
"""The type of the first frame on either side, RFC 9113, section 3.4; Ray speaks gRPC, which is HTTP/2."""


def require_ray() -> None:
    """Raise ``Lacking`` where Ray is not installed."""
    if find_spec("ray") is None:
        raise Lacking("the executor ray needs Ray: pip install 'scalevec[ray]'")


class Connection:
    """Opened when first asked for. Without an ``address`` a cluster of ``cpus`` processors is started on
    this machine, which listens on loopback only; :meth:`close` stops it and removes its files.

    A connection that this process has already is shared, and left to who opened it.
    """

    def __init__(self, address: str | None, cpus: int) -> None:
        self.address, self.cpus = address, cpus
        self._is_open = self._owns = False
        self._folder: str | None = None

    def open(self) -> None:
        """Connect. Raises ``Lacking`` where nobody answers, ``Refused`` for an address that is none."""
        if self._is_open:
            return
        if self.address is not None:
            _require_answer(self.address)
        for name, value in (QUIET if self.address else QUIET | LOOPBACK).items():
            os.environ.setdefault(name, value)
        with _own_signal_handlers(), _standard_error_to(os.devnull):
            self._owns = self._connect()
        self._is_open = True

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
            raise Lacking(_said_of(error, self.address)) from error
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
        if self._owns:
            import ray

            ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._is_open, self._owns, self._folder = False, False, None


def _said_of(error: Exception, address: str | None) -> str:
    if address == AUTO and isinstance(error, ConnectionError):
        return "no Ray cluster runs on this machine (address is auto); start one: ray start --head"
    said = str(error).strip().partition("\n")[0]
    return f"Ray at {address or 'this machine'} cannot be used: {said}"


def _require_answer(address: str) -> None:
    """Raise ``Lacking`` where nothing answers as Ray does: Ray itself would go on trying for a long time."""
    if address == AUTO:
        address = os.environ.get("RAY_ADDRESS", AUTO)
    if address == AUTO:
        return
    try:
        with socket.create_connection(_parts(address), timeout=ANSWER_S) as connection:
            problem = None if _speaks_http2(connection) else "something else than Ray listens there"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem is not None:
        raise Lacking(
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


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535:
        raise Refused(f"address is {address!r}; allowed: HOST:PORT of the cluster's head, or auto")
    return host.strip("[]"), int(port)


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Ray takes SIGTERM for itself when it connects; here a request to stop is the scheduler's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _standard_error_to(path: str) -> Iterator[None]:
    """Ray's own parts write to the descriptor itself; what they say is in the exception too."""
    kept, other = os.dup(2), os.open(path, os.O_WRONLY)
    try:
        os.dup2(other, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(other)
