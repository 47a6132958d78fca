"""Processes of this machine that an executor watches."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Protocol

from results.claims import process_identity, process_lives


class Watched(Protocol):
    """A process; ``identity`` tells it from a later one of the same number."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """As ``results.claims.process_identity`` describes it."""

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs and where nobody learns it."""

    def ended(self) -> bool:
        """Whether it is over."""


class Fresh:
    """A child of this process, in a session of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> None:
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
        self.identity: Mapping[str, Any] = process_identity(self._child.pid)

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal."""
        return self._child.returncode

    def ended(self) -> bool:
        """Whether it is over."""
        return self._child.poll() is not None


class Adopted:
    """Somebody else's child: only its parent learns the exit code."""

    exit_code = None

    def __init__(self, identity: Mapping[str, Any]) -> None:
        self.identity = identity

    def ended(self) -> bool:
        """Whether it is over."""
        return not process_lives(self.identity)


def send(process: Watched, number: signal.Signals) -> None:
    """Signal ``process`` if it still runs."""
    if not process.ended():
        # Gone in this very moment, and its number perhaps somebody else's.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.identity["pid"], number)
