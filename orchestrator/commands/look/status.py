"""``scalevec status``: what runs, what failed and why, how long it takes; once, or with ``--watch``."""

import shutil
import sys
from typing import Annotated, Any

import typer

from scalevec.orchestrator.cli.options import RUNS, AnySweep, AsJson, Runs
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.look.screen import screen
from scalevec.orchestrator.commands.look.screen import watch as watched
from scalevec.orchestrator.commands.look.sweep_state import sweep_statuses
from scalevec.orchestrator.errors import Exit

WIDTH = 110
"""Of the report where standard output is no terminal."""


def status(
    source: AnySweep = None,
    runs_dir: Runs = RUNS,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Look again until every trial has a result or nobody runs the sweep."),
    ] = False,
    as_json: AsJson = False,
) -> Result | Exit:
    """Show a sweep's progress: states, losses, time left, failures.

    With --watch a table of rungs by arms, on the whole screen; with --watch --json one object per change.
    """
    if watch:
        return watched(source, runs_dir, as_json=as_json)
    statuses = sweep_statuses(source, runs_dir)
    nothing = f"no sweep has been run in {runs_dir}"
    return Result(statuses, (lambda: _text(statuses)) if statuses else nothing)


def _text(statuses: list[dict[str, Any]]) -> str:
    """At a terminal one screen, elsewhere every sweep whole."""
    if sys.stdout.isatty():
        columns, lines = shutil.get_terminal_size()
        return screen(statuses, columns, lines - 1).plain  # the prompt takes the last one
    return "\n\n".join(screen([each], WIDTH).plain for each in statuses)
