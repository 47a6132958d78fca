"""A command at a terminal of 80 columns, without one: what it shows, and the keys it is sent."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from support import wait_until

_HOME, _CONTROL = "\x1b[H", re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LEAVES_SCREEN = "\x1b[?1049l"


class PseudoTerminal:
    """A process whose standard streams are a terminal of 80 columns x 24 lines."""

    def __init__(self, command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> None:
        self._end, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.environment = kept | {"TERM": "xterm-256color"} | dict(variables)
        self.process: subprocess.Popen[str] = subprocess.Popen(
            command,
            cwd=folder,
            env=self.environment,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
        )
        os.close(theirs)
        self.output = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self.output += os.read(self._end, 65_536).decode(errors="replace")
            except OSError:  # its last process has ended
                return

    def frames(self) -> list[list[str]]:
        """The lines of each whole screen that was drawn."""
        drawn = self.output.partition(LEAVES_SCREEN)[0].split(_HOME)[1:]
        return [[line.rstrip() for line in _CONTROL.sub("", frame).split("\n")] for frame in drawn]

    def shows(self, text: str) -> None:
        """Wait until ``text`` has been shown."""
        wait_until(lambda: text in _CONTROL.sub("", self.output), self.process)

    def press(self, keys: str) -> None:
        """Send ``keys``."""
        os.write(self._end, keys.encode())

    def wait(self) -> int:
        """Wait until the process has ended, and all it showed was read; its exit code."""
        code = self.process.wait(600)
        self._reader.join(600)
        os.close(self._end)
        return code
