"""The executor's end of a fork server (``orchestrator.fork_server``)."""

import json
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from orchestrator.jobs import FORK_SERVER
from results.claims import process_lives

LOADING_S = 120.0
"""The longest wait for a server that loads torch; it takes seconds, or a minute from a cold file server."""
ANSWER_S = 10.0
"""The longest wait for one that has answered before."""
LOOK_S = 5.0
"""Between two looks for processes that ended without the server's word."""
ANSWER_BYTES = 2**14


class ServerGone(Exception):  # noqa: N818 (its processes go on)
    """The server could not start, does not answer, or was killed."""


class Forked:
    """A worker that a server forked; should the server go first, nobody learns the exit code."""

    def __init__(self, identity: Mapping[str, Any], server: "ForkServer") -> None:
        self.identity = identity
        self.exit_code: int | None = None
        """Negative for a signal."""
        self._server = server

    def ended(self) -> bool:
        """Whether it is over."""
        self._server.hear()
        return self.exit_code is not None or (self._server.gone and not process_lives(self.identity))


class ForkServer:
    """Forks workers with the variables ``environment``; they outlive it, and it ends with its owner.

    What keeps it from loading is printed into ``log``.
    """

    def __init__(self, environment: Mapping[str, str], log: IO[bytes] | None = None) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # A session of its own: a Ctrl-C at the terminal must not reach it.
            self._process = subprocess.Popen(
                FORK_SERVER,
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

        Raises ``ServerGone``. A worker that a dying server forked in that moment may run all the same; its
        claim keeps another from training the trial too.
        """
        self._connection.settimeout(ANSWER_S if self.has_served else LOADING_S)
        try:
            socket.send_fds(self._connection, [json.dumps(arguments).encode()], [log.fileno()])
            while (identity := self._heard().get("identity")) is None:
                pass
        except (OSError, ServerGone) as problem:
            self.close()
            raise ServerGone from problem
        except BaseException:
            self.close()  # else the answer to this request would be taken for the next one's
            raise
        self.has_served = True
        self._living[identity["pid"]] = Forked(identity, self)
        return self._living[identity["pid"]]

    def hear(self) -> None:
        """Learn of the ends that the server has told since, and whether it is still there."""
        if self.gone:
            return
        self._connection.settimeout(0.0)
        try:
            while True:
                self._heard()
        except BlockingIOError:
            self._look_for_the_overdue()
        except (OSError, ServerGone):
            self.close()

    def _heard(self) -> dict[str, Any]:
        message = self._connection.recv(ANSWER_BYTES)
        if not message:
            raise ServerGone
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
