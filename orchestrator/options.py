"""Options that many commands share, and how a command ends."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.errors import Exit

RUNS = Path("runs")

Runs = Annotated[
    Path, typer.Option("--runs", envvar="SCALEVEC_RUNS_DIR", help="The folder of runs, seen by all machines.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


def finish(code: Exit) -> None:
    """End the command with its exit code."""
    raise typer.Exit(int(code))
