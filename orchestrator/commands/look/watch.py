"""Looks at sweeps again and again: on a screen, as lines on a pipe, as JSON, and beside a run of one."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.cli.hints import command
from scalevec.orchestrator.cli.output import json_line
from scalevec.orchestrator.commands.look.screen import (
    chosen_lines,
    counts_text,
    failure_text,
    may_change,
    missing,
    screen,
)
from scalevec.orchestrator.commands.look.sweep_state import LookMemory, states_of_sweeps, sweep_statuses
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.progress import counted, duration, note, notes_kept, printable
from scalevec.results.run_directory import OPEN_STATES
from scalevec.results.sweep_folder import sweep_names

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Record = dict[str, Any]
Look = tuple[list[Record], list[str]]
"""The states of sweeps, and what reading them had to say."""
WATCH_S = 2.0
SHARE = 5
"""A look beside a run is followed by a pause this many times as long: the run comes first."""
_OF_THE_MOMENT = ("seconds_since_sign_of_life",)
"""What changes from look to look though nothing has happened."""


def watch(source: str | None, runs_dir: Path, *, as_json: bool) -> Exit:
    """Show sweeps until nothing of them can change any more, and say how they ended."""
    from rich.console import Console

    console = Console()
    looks = _looks(source, runs_dir)
    try:
        if as_json:
            _print_changes(looks)
        elif console.is_terminal and not console.is_dumb_terminal:
            _show_live(looks, runs_dir, console)
        else:
            _print_lines(looks, runs_dir)
    except KeyboardInterrupt:
        note("scalevec: stopped watching; what runs goes on")
        return Exit.INTERRUPTED
    return Exit.DONE


def _looks(source: str | None, runs_dir: Path) -> Iterator[Look]:
    """Yield the state, and what reading it had to say, until nothing can change any more.

    Before the first run of a sweep, wait for it.
    """
    memory = LookMemory()
    while True:
        with notes_kept() as notes:
            statuses = sweep_statuses(source, runs_dir, memory)
        yield statuses, list(dict.fromkeys(notes))
        begun = [status for status in statuses if status["trials"]]
        if statuses and not any(map(may_change, begun or statuses)):
            return
        time.sleep(WATCH_S)


def _print_changes(looks: Iterable[Look]) -> None:
    """Print a sweep as one object on a line whenever something of it has changed."""
    printed: dict[str, Record] = {}
    for statuses, _ in _with_new_notes(looks):
        for status in statuses:
            lasting = {name: value for name, value in status.items() if name not in _OF_THE_MOMENT}
            if printed.get(status["sweep"]) != lasting:
                print(json_line(status), flush=True)
            printed[status["sweep"]] = lasting


def _with_new_notes(looks: Iterable[Look]) -> Iterator[Look]:
    """Pass ``looks`` on, and tell on standard error what reading them had to say, once."""
    told = set[str]()
    for statuses, notes in looks:
        for text in notes:
            if text not in told:
                note(text)
        told.update(notes)
        yield statuses, notes


def _print_lines(looks: Iterable[Look], runs_dir: Path) -> None:
    """Print a line for each change that a person would want to know of, for pipes and plain terminals."""
    told = set[str]()
    statuses: list[Record] = []
    for statuses, _ in _with_new_notes(looks):
        for line, key in [pair for status in statuses for pair in _events(status)] or [
            ("nothing is run yet",) * 2
        ]:
            if key not in told:
                print(printable(line), flush=True)
            told.add(key)
    print("\n".join(printable(_ending(status, runs_dir)) for status in statuses), flush=True)


def _events(status: Record) -> Iterator[tuple[str, str]]:
    """Yield the lines of a sweep, each with the key by which it is told once."""
    sweep, left = status["sweep"], status["sweep_seconds_left"]
    for line in chosen_lines(status):
        yield f"{sweep}: tuned: {line}", f"{sweep}: tuned: {line}"
    for failure in status["failed"]:
        line = f"{sweep}: failed: {failure_text(failure)}"
        yield line, f"{sweep}: failed: {failure['trial_id']}"
    # Between two trials nothing runs: that alone is nothing to tell.
    lasting = {name: count for name, count in status["states"].items() if name not in OPEN_STATES}
    key = f"{sweep}: {status['stage']} {status['trials'] + status['to_come']} {sorted(lasting.items())}"
    yield f"{sweep}: {counts_text(status)}" + ("" if left is None else f"; about {duration(left)} left"), key


def _show_live(looks: Iterable[Look], runs_dir: Path, console: "Console") -> None:
    from rich.live import Live
    from rich.text import Text

    statuses: list[Record] = []
    shown = None
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        for statuses, notes in looks:
            text = screen(statuses, *console.size, notes) if statuses else Text("nothing is run yet")
            if (text.plain, console.size) != shown:
                live.update(text, refresh=True)
            shown = text.plain, console.size
    console.print(screen(statuses, console.width), highlight=False)
    print("\n".join(printable(_ending(status, runs_dir)) for status in statuses))


def _ending(status: Record, runs_dir: Path) -> str:
    left = missing(status)
    if not left:
        return f"{status['sweep']}: every trial has a result"
    # What has failed runs again only after a retry.
    verb = "retry" if left == status["states"].get("failed") else "run"
    again = command(verb, status["sweep"], runs_dir)
    return (
        f"{status['sweep']}: nobody runs it any more; {counted(left, 'trial')} without a result. "
        f"To go on: {again}"
    )


class Onlooker:
    """Looks at a sweep from a thread of the process that runs it, for the table below that run's log."""

    def __init__(self, sweep: str, runs_dir: Path) -> None:
        self._sweep, self._runs_dir = sweep, runs_dir
        self._statuses: list[Record] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def text(self, width: int, height: int) -> "Text | None":
        """Return the newest state in ``width`` x ``height`` characters; None before the first."""
        return screen(self._statuses, width, height) if self._statuses else None

    def close(self) -> None:
        """Look once more, and then no more."""
        self._closed.set()
        self._thread.join()

    def _look(self) -> None:
        memory = LookMemory()
        took_s = 0.0
        is_last = False
        while not is_last:
            is_last = self._closed.wait(max(WATCH_S / 2, SHARE * took_s))
            began = time.monotonic()
            # Whatever a look meets, the run itself meets it too, and says so.
            with notes_kept(), suppress(Exception):
                if self._sweep in sweep_names(self._runs_dir):
                    self._statuses = states_of_sweeps([self._sweep], self._runs_dir, memory)
            took_s = time.monotonic() - began
