"""Keeps simulated results apart from real ones: a RUNS_DIR holds the one kind or the other."""

from pathlib import Path

from scalevec.orchestrator.errors import InvalidInputError
from scalevec.results.files import AlreadyWrittenError, write_once

FOLDER = "simulated"
MARKER = "SIMULATED"
_CONTENT = b"Every result below this folder was simulated: nothing was trained.\n"


def simulated_runs_dir(runs_dir: Path) -> Path:
    """Where the simulations of ``runs_dir`` are kept; a folder of simulations stands for itself."""
    return runs_dir if is_simulated(runs_dir) else runs_dir / FOLDER


def is_simulated(runs_dir: Path) -> bool:
    """Whether ``runs_dir`` holds simulations."""
    return (runs_dir / MARKER).exists()


def hold_simulations(runs_dir: Path) -> None:
    """Mark ``runs_dir`` as one of simulations.

    Raises ``InvalidInputError`` where real trials are kept in it.
    """
    if is_simulated(runs_dir):
        return
    if (runs_dir / "trials").exists():
        raise InvalidInputError(
            f"{runs_dir} holds trials that were trained; a simulation needs a folder of its own"
        )
    runs_dir.mkdir(parents=True, exist_ok=True)
    try:
        write_once(runs_dir / MARKER, _CONTENT)
    except AlreadyWrittenError:  # by another simulation, just now
        return


def refuse_simulations(runs_dir: Path) -> None:
    """What every executor that trains asks first.

    Raises ``InvalidInputError`` where ``runs_dir`` holds simulations.
    """
    if is_simulated(runs_dir):
        raise InvalidInputError(
            f"{runs_dir} holds simulated results; trials are trained in a folder of their own"
        )
