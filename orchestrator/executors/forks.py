"""The executor's end of a fork server (``orchestrator.fork_server``)."""

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from results.claims import process_lives

LOADING_S = 120.0
"""The longest wait for a server that loads torch; it takes seconds, or a minute from a cold file server."""
ANSWER_BYTES = 2**14
COMMAND = (sys.executable, "-P", "-m", "orchestrator.fork_server")


class ServerGone(Exception):  # noqa: N818 (its processes go on)
    """The server could not start, does not answer, or was killed."""


class Forked:
    """A worker that a server forked; should the server go first, nobody learns the exit code."""

    def __init__(self, identity: Mapping[str, Any], server: "ForkServer") -> None:
        self.identity = identity
        self._server = server

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal."""
        return self._server.exit_codes.get(self.identity["pid"])

    def ended(self) -> bool:
        """Whether it is over."""
        self._server.hear()
        return self.exit_code is not None or (self._server.gone and not process_lives(self.identity))


class ForkServer:
    """Forks workers with the variables ``environment``; they outlive it, and it ends with its owner."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # A session of its own: a Ctrl-C at the terminal must not reach it.
            self._process = subprocess.Popen(
                COMMAND,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )
        self.exit_codes: dict[int, int] = {}
        """Of the processes that ended, by their number."""
        self.gone = False

    def fork(self, arguments: Sequence[str], log: IO[bytes]) -> Forked:
        """A worker with ``arguments`` that prints into ``log``. Raises ``ServerGone``."""
        self._connection.settimeout(LOADING_S)
        try:
            socket.send_fds(self._connection, [json.dumps(arguments).encode()], [log.fileno()])
            while True:
                answer = self._heard(self._connection.recv(ANSWER_BYTES))
                if "identity" in answer:
                    self.exit_codes.pop(answer["identity"]["pid"], None)
                    return Forked(answer["identity"], self)
        except (OSError, ServerGone) as problem:
            self.close()
            raise ServerGone from problem

    def hear(self) -> None:
        """Learn of the ends that the server has told since."""
        if self.gone:
            return
        self._connection.settimeout(0.0)
        try:
            while True:
                self._heard(self._connection.recv(ANSWER_BYTES))
        except BlockingIOError:
            return
        except (OSError, ServerGone):
            self.close()

    def _heard(self, message: bytes) -> dict[str, Any]:
        if not message:
            raise ServerGone
        answer: dict[str, Any] = json.loads(message)
        if "exit_code" in answer:
            self.exit_codes[answer["pid"]] = answer["exit_code"]
        return answer

    def close(self) -> None:
        """End the server; what it forked goes on."""
        self.gone = True
        self._connection.close()
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
