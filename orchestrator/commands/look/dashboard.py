"""``scalevec dashboard``: a sweep while it runs, in a browser, from a small server on this machine."""

import hmac
import json
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

import typer

from scalevec.orchestrator.cli.options import RUNS, Runs, Sweep
from scalevec.orchestrator.cli.output import json_line
from scalevec.orchestrator.commands.look.screen import counts_text, failure_text
from scalevec.orchestrator.commands.look.sweep_state import sweep_statuses
from scalevec.orchestrator.errors import Exit, InvalidInputError, explain, read_or_warn
from scalevec.orchestrator.observers.trial_logs import MetricsTail
from scalevec.orchestrator.progress import duration, note, notes_kept
from scalevec.results.claims import ClaimObserver
from scalevec.results.files import read_bytes_if_any
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder

HOST = "127.0.0.1"
LOOK_S = 2.0
"""Between two readings of the runs directory, however many pages ask."""
MOST_CURVES, POINTS = 12, 200
POLICY = "default-src 'none'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'"
POLICY_OF_REPORT = "sandbox allow-scripts allow-downloads; connect-src 'none'; form-action 'none'"
"""Whoever may write in the runs folder may have written it: it has no part in what the dashboard knows."""
PAGE = Path(__file__).with_name("dashboard.html")
Record = dict[str, Any]


def dashboard(
    source: Sweep,
    runs_dir: Runs = RUNS,
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="0: a free one.")] = 0,
) -> Exit:
    """Show a sweep while it runs, in a browser on this machine.

    Progress, failures and the training losses of what runs; no differences between arms, which are for the
    end. Whoever has the address that is printed can look, on this machine alone.
    """
    watched = WatchedSweep(source, runs_dir)
    watched.state()  # what is wrong with the name is said before there is an address
    with DashboardServer(watched, port) as server:
        note(
            f"dashboard: {server.url}\n"
            f"from your own machine: ssh -L {server.server_port}:{HOST}:{server.server_port} THIS_MACHINE, "
            "then the same address there; Ctrl-C ends it, and nothing of the sweep"
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            note("scalevec: the dashboard has ended; what runs goes on")
    return Exit.DONE


@dataclass
class WatchedSweep:
    """A sweep whose state is read at most every few seconds."""

    source: str
    runs_dir: Path
    _observer: ClaimObserver = field(default_factory=ClaimObserver)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _read: tuple[float, Record] | None = None
    _curves: dict[str, "Curve"] = field(default_factory=dict)

    def state(self) -> Record:
        """Return what the page shows: the record of ``status --json`` without losses of arms, and curves."""
        with self._lock:
            if self._read is None or time.monotonic() - self._read[0] > LOOK_S:
                with notes_kept() as notes:
                    [status] = sweep_statuses(self.source, self.runs_dir, self._observer)
                state = self._shown(status) | {"notes": list(dict.fromkeys(notes))}
                self._read = (time.monotonic(), state)
            return self._read[1]

    @property
    def report_path(self) -> Path:
        """Where the sweep's finished report is, once it has been written."""
        return SweepFolder.of(self.runs_dir, self.state()["sweep"]).report_path

    def report(self) -> bytes | None:
        """Return that report."""
        return read_or_warn(lambda: read_bytes_if_any(self.report_path), None, "the report is not shown")

    def _shown(self, status: Record) -> Record:
        left, running = status["seconds_left"], status["running"]
        return {
            "sweep": status["sweep"],
            "counts": counts_text(status),
            "left": "" if left is None else f"about {duration(left)} left",
            "share_done": (status["plan"] or {}).get("share_done"),
            "cost": status["cost"],
            # The loss of each cell is for the end: a comparison that is looked at early is another one.
            "cells": [{name: cell[name] for name in cell if name != "loss"} for cell in status["cells"]],
            "running": running,
            "failed": [failure_text(failure) for failure in status["failed"]],
            "curves": [self._curve(trial) for trial in running[:MOST_CURVES]],
        }

    def _curve(self, trial: Mapping[str, Any]) -> Record:
        metrics = RunDirectory.of(self.runs_dir, trial["trial_id"]).metrics_path
        curve = self._curves.setdefault(trial["trial_id"], Curve(MetricsTail(metrics)))
        curve.read_on()
        return {"trial_id": trial["trial_id"], "label": trial["label"], "points": curve.points}


@dataclass
class Curve:
    """The losses of a trial by step, some hundred of them: of its metrics only what is new is read."""

    tail: MetricsTail
    points: list[tuple[int, float]] = field(default_factory=list)

    def read_on(self) -> None:
        """Take what has been appended."""
        with suppress(ValueError, TypeError, KeyError):  # a torn line; the trial's worker sees to it
            for row in self.tail.rows():
                if (loss := row.get("loss")) is not None:
                    self.points.append((int(row["step"]), float(loss)))
        while len(self.points) > 2 * POINTS:
            del self.points[1:-1:2]


class DashboardServer(ThreadingHTTPServer):
    """Answers on this machine alone, whoever knows its token.

    Raises ``InvalidInputError`` where its port is taken.
    """

    daemon_threads = True

    def __init__(self, watched: WatchedSweep, port: int = 0) -> None:
        try:
            super().__init__((HOST, port), _Answer)
        except OSError as problem:
            raise InvalidInputError(f"--port is {port}: {problem.strerror}; 0 takes a free one") from problem
        self.watched, self.token = watched, secrets.token_urlsafe(24)

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"


class _Answer(BaseHTTPRequestHandler):
    """To one request."""

    def do_GET(self) -> None:
        """The page, what it shows, or the finished report."""
        server = cast(DashboardServer, self.server)
        _, given, *rest = [*urlsplit(self.path).path.split("/"), ""]
        # A page from elsewhere may have its own name point here, but has no token, and no say in the host.
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in (HOST, "localhost") or not hmac.compare_digest(given.encode(), server.token.encode()):
            self._send(403, "text/plain", b"this needs the address that scalevec dashboard printed\n")
        elif rest == ["", ""]:
            nonce = f"'nonce-{(word := secrets.token_urlsafe(16))}'"
            page = PAGE.read_text(encoding="utf-8").replace("NONCE", word)
            self._send(200, "text/html", page.encode(), f"script-src {nonce}; style-src {nonce}")
        elif rest == ["state", ""]:
            self._send(200, "application/json", _state(server.watched).encode())
        elif rest == ["report", ""] and (report := server.watched.report()):
            self._send(200, "text/html", report, policy=POLICY_OF_REPORT)
        else:
            self._send(404, "text/plain", b"nothing is here\n")

    def _send(self, code: int, kind: str, content: bytes, sources: str = "", policy: str = POLICY) -> None:
        """Send ``content``; ``sources`` extends the ``policy`` of what the page may load."""
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", "; ".join(filter(None, (policy, sources))))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing: the terminal is for what the server has to say."""


def _state(watched: WatchedSweep) -> str:
    try:
        return json_line(watched.state() | {"has_report": watched.report_path.is_file()})
    except Exception as problem:  # noqa: BLE001 (the page says it, and asks again)
        return json.dumps({"problem": explain(problem)[0]})
