"""What the jobs of one submission run: JSON in the private folder, written before anything is sent.

Each job finds its trials by its place in the array: it does not matter under which number SLURM has it.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalevec.orchestrator.attempts.jobs import on_machine
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


def task_number() -> int:
    """Which of the job's tasks this is; there is one on each machine."""
    return int(os.environ.get("SLURM_PROCID", "0"))


@dataclass(frozen=True)
class MachinesMeeting:
    """How the tasks of one start of a job meet: by the file ``path``, which the first one writes."""

    path: Path
    nodes: int

    def command(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """What this machine's task runs of the worker's ``command``."""
        return command if self.nodes == 1 else on_machine(command, task_number(), self.nodes, self.path)

    def call_off(self) -> None:
        """The first machine trains nothing (any more): tell those that still wait for its word."""
        if self.nodes > 1 and not self.path.exists():
            self.path.parent.mkdir(exist_ok=True)
            write_json(self.path, {"called_off": True})
