"""A command that runs as long as its worker at most, with all that it starts."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from scalevec.orchestrator.attempts.kept_files import umask_of_trainers
from scalevec.orchestrator.worker import guard
from scalevec.orchestrator.worker.trainers.line_pattern import LinePattern
from scalevec.results.masking import masked
from scalevec.results.opening import CorruptRecordError, open_log

KILLED_S = 40.0
"""The longest wait for the end of what was killed."""
LAST_WORDS_S = 5.0
_MOST_BYTES = 65_536


class CommandOutput:
    """Takes what a command prints: into the log, and rows of metrics where a ``pattern`` finds them."""

    def __init__(self, stream: int, log: Path, pattern: LinePattern | None) -> None:
        self._stream, self._log, self._pattern = stream, log, pattern
        self._rows: deque[Mapping[str, Any]] = deque()
        self._unended: deque[Mapping[str, Any]] = deque()
        self.last_line = ""
        self._thread = threading.Thread(target=self._read, daemon=True, name="output")
        self._thread.start()

    def new_rows(self, *, is_whole: bool = False) -> list[Mapping[str, Any]]:
        """The rows since the last call; a last line without its end counts only in output that is whole."""
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        return [*rows, *self._unended] if is_whole else rows

    def finish(self) -> None:
        """Wait for the last lines of a command that has ended."""
        self._thread.join(LAST_WORDS_S)

    def _read(self) -> None:
        rest = b""
        while chunk := os.read(self._stream, _MOST_BYTES):
            # Progress bars end their lines with a carriage return.
            *lines, rest = re.split(rb"(?<=[\r\n])", rest + chunk)
            if len(rest) > _MOST_BYTES:
                lines, rest = [*lines, rest], b""
            self._take(lines, self._rows)
        self._take([rest], self._unended)

    def _take(self, lines: Sequence[bytes], rows: deque[Mapping[str, Any]]) -> None:
        texts = [masked(line.decode(errors="surrogateescape")) for line in lines]
        for text in texts:
            line = text.strip().encode(errors="replace").decode()
            self.last_line = line[:300] or self.last_line
            if self._pattern and (row := self._pattern.row(line)):
                rows.append(row)
        # A full disk, or a link in its place, is noticed at the records; the command must not wait for us.
        with suppress(OSError, CorruptRecordError), open_log(self._log) as log:
            log.write("".join(texts).encode(errors="surrogateescape"))


class GuardedCommand:
    """A running command; used as a context, it is over afterwards, and so is all that it started."""

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        folder: Path,
        log: Path,
        pattern: LinePattern | None,
    ) -> None:
        self._guard = subprocess.Popen(
            (sys.executable, "-I", "-S", guard.__file__, "family", str(os.getpid()), *command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(variables),
            start_new_session=True,
            umask=umask_of_trainers(),
            bufsize=0,
        )
        assert self._guard.stdout is not None
        self.output = CommandOutput(self._guard.stdout.fileno(), log, pattern)

    def ended(self, wait_s: float) -> int | None:
        """The exit code, negative for a signal; None while it runs, after ``wait_s`` seconds."""
        try:
            return self._guard.wait(wait_s)
        except subprocess.TimeoutExpired:
            return None

    def tell(self, number: int) -> None:
        """Send a signal to the command and to the processes of its group."""
        if self._guard.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._guard.pid, number)

    def kill(self) -> None:
        """End it at once, and whatever it started."""
        if self._guard.poll() is None:
            self._guard.send_signal(signal.SIGALRM)
            if self.ended(KILLED_S) is None:
                self.tell(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        with suppress(ProcessLookupError):  # where the guard was killed, others of its group are left
            os.killpg(self._guard.pid, signal.SIGKILL)
        self.output.finish()
        assert self._guard.stdout is not None
        self._guard.stdout.close()
