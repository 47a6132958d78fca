"""``scalevec logs``: what a trial's worker, or a sweep's controller, has printed."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from scalevec.orchestrator.cli.options import RUNS, Runs, trials
from scalevec.orchestrator.errors import Exit, InvalidInputError
from scalevec.orchestrator.progress import printable
from scalevec.orchestrator.sources.runs import Runs as RunsFolder
from scalevec.orchestrator.sources.sources import SWEEP_FILES, recorded_state, sweep_folder
from scalevec.orchestrator.sweep.controller import directory_of, is_owned
from scalevec.results.claims import ClaimObserver
from scalevec.results.files import MOST_BYTES_OF_LINES
from scalevec.results.masking import masked
from scalevec.results.opening import open_to_read
from scalevec.results.run_directory import OPEN_STATES, RunDirectory
from scalevec.results.sweep_folder import sweep_names

POLL_S = 1.0
_PART = 65_536
_LONGEST = 2**20
"""Of a line that is held back until its end is there."""


def logs(
    trial: Annotated[
        str,
        typer.Argument(
            metavar="TRIAL",
            help="The first digits of a trial's id; or a sweep (file or name), for its controller.",
            autocompletion=trials,
        ),
    ],
    runs_dir: Runs = RUNS,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the trial has ended.")] = False,
) -> Exit:
    """Print the log of a trial, or of a sweep's controller."""
    directory, is_over = _logged(trial, runs_dir)
    if not follow and not directory.log_path.exists():
        raise InvalidInputError(
            f"{directory.log_path}: nothing was printed yet; scalevec status names the trials that run"
        )
    for text in _texts(directory.log_path, is_over if follow else lambda: True):
        sys.stdout.write(printable(masked(text)))  # what wrote past Python's streams is in it too
        sys.stdout.flush()
    return Exit.DONE


def _logged(name: str, runs_dir: Path) -> tuple[RunDirectory, Callable[[], bool]]:
    """Return where the log is, and what says that no more will come."""
    observer = ClaimObserver()
    if name.endswith(SWEEP_FILES):
        name = sweep_folder(name, runs_dir).path.name
    if name in sweep_names(runs_dir):
        return directory_of(runs_dir, name), lambda: not is_owned(runs_dir, name, observer)
    directory = RunsFolder(runs_dir).trial(name)
    return directory, lambda: recorded_state(directory) not in OPEN_STATES


def _texts(path: Path, is_over: Callable[[], bool]) -> Iterator[str]:
    """Yield what is in ``path`` and what is appended, until ``is_over``; whole lines, but for the last."""
    rest, at, over = b"", 0, False
    while not over:
        over = is_over()  # asked before the last reading, which misses nothing then
        for part in _parts(path, at):
            at += len(part)
            whole, newline, rest = (rest + part).rpartition(b"\n")
            if len(rest) > _LONGEST:
                newline, rest = newline + rest, b""
            yield (whole + newline).decode(errors="replace")
        if not over:
            time.sleep(POLL_S)
    yield rest.decode(errors="replace")


def _parts(path: Path, at: int) -> Iterator[bytes]:
    try:
        with open_to_read(path, MOST_BYTES_OF_LINES) as stream:
            stream.seek(at)
            while part := stream.read(_PART):
                yield part
    except FileNotFoundError:
        return
