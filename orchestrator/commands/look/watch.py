"""Reads sweeps again and again: for a whole terminal, for a pipe, and for the terminal of a run of one."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from scalevec.orchestrator.cli.output import command, json_line
from scalevec.orchestrator.commands.look.screen import (
    chosen_lines,
    counts_text,
    failure_text,
    may_change,
    missing,
    screen,
)
from scalevec.orchestrator.commands.look.sweep_state import sweep_statuses
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.progress import counted, duration, note, notes_kept, printable
from scalevec.results.claims import ClaimObserver
from scalevec.results.run_directory import OPEN_STATES

Record = dict[str, Any]
Reading = tuple[list[Record], list[str]]
"""The states of sweeps, and what reading them had to say."""
WATCH_S = 2.0


def state_of_run(sweep: str, runs_dir: Path) -> Callable[[int, int], Text]:
    """Return what looks at a sweep that runs in this process, for a screen of so many columns and lines."""
    observer = ClaimObserver()

    def look(width: int, height: int) -> Text:
        with notes_kept():  # the run itself tells what it meets
            return screen(sweep_statuses(sweep, runs_dir, observer), width, height)

    return look


def watch(source: str | None, runs_dir: Path, *, as_json: bool) -> Exit:
    """Show sweeps until nothing of them can change any more, and say how they ended."""
    console = Console()
    readings = _readings(source, runs_dir)
    try:
        if as_json:
            _print_changes(readings, _json_lines)
        elif console.is_terminal and not console.is_dumb_terminal:
            _print_endings(_show_live(readings, console), runs_dir)
        else:
            _print_endings(_print_changes(readings, _events), runs_dir)
    except KeyboardInterrupt:
        note("scalevec: stopped watching; what runs goes on")
        return Exit.INTERRUPTED
    return Exit.DONE


def _readings(source: str | None, runs_dir: Path) -> Iterator[Reading]:
    """Look until nothing can change any more; before the first run of a sweep, wait for it."""
    observer = ClaimObserver()
    while True:
        with notes_kept() as notes:
            statuses = sweep_statuses(source, runs_dir, observer)
        yield statuses, list(dict.fromkeys(notes))
        begun = [status for status in statuses if status["trials"]]
        if statuses and not any(map(may_change, begun or statuses)):
            return
        time.sleep(WATCH_S)


def _print_changes(
    readings: Iterable[Reading], lines_of: Callable[[Record], Iterator[tuple[str, str]]]
) -> list[Record]:
    """Print each line whose key the look before did not have; return the last states."""
    statuses: list[Record] = []
    before, told = set[str](), set[str]()
    for statuses, notes in readings:
        for text in notes:
            if text not in told:
                note(text)
        told.update(notes)
        lines = {key: line for status in statuses for key, line in lines_of(status)}
        for key, line in lines.items():
            if key not in before:
                print(printable(line), flush=True)
        before = set(lines)
    return statuses


def _json_lines(status: Record) -> Iterator[tuple[str, str]]:
    """The sweep as one object."""
    line = json_line(status)
    yield line, line


def _events(status: Record) -> Iterator[tuple[str, str]]:
    """What a person would want to know of: what tuning chose, what failed, how many are done."""
    sweep, left = status["sweep"], status["sweep_seconds_left"]
    for line in chosen_lines(status):
        yield f"{sweep} tuned {line}", f"{sweep}: tuned: {line}"
    for failure in status["failed"]:
        yield f"{sweep} failed {failure['trial_id']}", f"{sweep}: failed: {failure_text(failure)}"
    # Between two trials nothing runs: that alone is nothing to tell.
    lasting = {name: count for name, count in status["states"].items() if name not in OPEN_STATES}
    key = f"{sweep} {status['stage']} {status['trials'] + status['to_come']} {sorted(lasting.items())}"
    yield key, f"{sweep}: {counts_text(status)}" + ("" if left is None else f"; about {duration(left)} left")


def _show_live(readings: Iterable[Reading], console: Console) -> list[Record]:
    """Fill the terminal with each look, leave the last one on it, and return its states."""
    statuses: list[Record] = []
    shown = None
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for statuses, notes in readings:
            text = screen(statuses, *console.size, notes) if statuses else Text("nothing is run yet")
            if (text.plain, console.size) != shown:  # the line may be slow
                live.update(text, refresh=True)
            shown = text.plain, console.size
    console.print(screen(statuses, console.width), highlight=False)
    return statuses


def _print_endings(statuses: Iterable[Record], runs_dir: Path) -> None:
    for status in statuses:
        print(printable(_ending(status, runs_dir)), flush=True)


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
