"""Parts of a benchmark, each in a process of its own: one that fails or hangs leaves the others to run."""

import json
import math
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from workloads import Site

FORK = multiprocessing.get_context("fork")
"""Processes start from one that has imported torch and has not touched the device."""
LINES_OF_ERROR = 30

Record = dict[str, Any]


class Figures:
    """What a part has measured so far, and which of its checks failed."""

    def __init__(self, sender: Connection) -> None:
        self._sender = sender
        self.failures: list[str] = []

    def keep(self, name: str, value: Any) -> None:
        """Keep ``value``, a plain JSON value, under ``name``, whatever becomes of the part afterwards."""
        self._sender.send(("figure", name, finite(value)))

    def check(self, passed: bool, message: str) -> None:
        """Let the part fail with ``message``, when it is done, unless the check has ``passed``."""
        if not passed:
            self.failures.append(message)


@dataclass(frozen=True)
class Part:
    """One part: its name, what it does, and the most seconds that it may take."""

    name: str
    work: Callable[[Site, Figures], None]
    limit_s: float


def finite(value: Any) -> Any:
    """``value`` with None for each number that JSON does not know."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def run_part(part: Part, site: Site, seconds: float, record: Record, changed: Callable[[], None]) -> None:
    """Fill ``record`` with the status, message and figures of ``part``, ended after ``seconds``.

    ``changed`` is called whenever a figure has come.
    """
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_in_child, args=(part, site, sender))
    began = time.monotonic()
    process.start()
    sender.close()
    message: str | None = None
    record["status"] = "running"
    try:
        while message is None:
            message = _received(receiver, process, began + seconds, record, changed)
    except TimeoutError:
        message = f"stopped after {seconds:.0f} s"
    finally:
        _end(process)
    record |= {"status": "failed" if message else "ok", "message": message}
    record["wall_s"] = round(time.monotonic() - began, 2)


def _received(
    receiver: Connection, process: BaseProcess, deadline: float, record: Record, changed: Callable[[], None]
) -> str | None:
    """Take one message of the part; returns what ended it (empty: all is well), None while it goes on."""
    left = deadline - time.monotonic()
    if left <= 0 or not wait([receiver, process.sentinel], left):
        raise TimeoutError
    try:
        kind, *content = receiver.recv() if receiver.poll() else ("gone",)
    except EOFError:
        kind = "gone"
    if kind == "gone":
        process.join(1.0)
        return f"its process ended with exit code {process.exitcode}"
    if kind == "end":
        return str(content[0])
    name, value = content
    record["figures"][name] = value
    changed()
    return None


def _in_child(part: Part, site: Site, sender: Connection) -> None:
    os.setsid()
    figures = Figures(sender)
    try:
        part.work(site, figures)
        message = "; ".join(figures.failures)
    except BaseException:  # noqa: BLE001 (whatever it is, it goes into the report)
        lines = traceback.format_exc().splitlines()[-LINES_OF_ERROR:]
        message = "\n".join([*figures.failures, *lines])
    sender.send(("end", message))
    os._exit(0)


def _end(process: BaseProcess) -> None:
    """End the process of a part and those that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()
    process.join()


def write_json(path: Path, content: Any) -> None:
    """Put ``content`` into ``path``, whole or not at all."""
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    partial.replace(path)
