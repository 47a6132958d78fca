"""What the jobs of one submission run: JSON in the private folder, written before anything is sent.

Each job finds its trials by its place in the array: it does not matter under which number SLURM has it.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalevec.results.files import read_json, write_json

PAYLOAD = "payload.json"


@dataclass(frozen=True)
class Entry:
    """One trial of a job; ``token`` is what its worker writes into its claim.

    ``arguments`` are those of a worker that may be forked.
    """

    trial_id: str
    command: tuple[str, ...]
    directory: str
    token: str
    cpus: int = 1
    arguments: tuple[str, ...] | None = None
    nodes: int = 1
    """Machines of the job; the task on each starts the processes that train there."""


@dataclass(frozen=True)
class Payload:
    """The trials of each job of an array, in its order."""

    records: str
    """The folder, in RUNS_DIR, of the records of the submission."""
    jobs: tuple[tuple[Entry, ...], ...]
    requeue: bool = True
    """Whether SLURM starts a job again after its time limit; else the scheduler asks for a new one."""
    at_a_time: int = 1
    """Trials of a job that run side by side."""

    def write(self, folder: Path) -> None:
        """Keep it in ``folder``, of the private folder."""
        write_json(folder / PAYLOAD, asdict(self))


def read_payload(folder: Path) -> Payload:
    """Return what :meth:`Payload.write` has kept in ``folder``. Raises ``OSError``."""
    kept = read_json(folder / PAYLOAD, dict)
    return Payload(**kept | {"jobs": tuple(tuple(map(_entry, entries)) for entries in kept["jobs"])})


def _entry(fields: dict[str, Any]) -> Entry:
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return Entry(**fields | lists)
