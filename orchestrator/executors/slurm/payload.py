"""What the jobs of one submission run, and what they record of it.

What they run is JSON in the private folder, written before anything is sent. Each job finds its trials by its
place in the array: it does not matter under which number SLURM has it.
"""

import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalevec.orchestrator.attempts.jobs import on_machine
from scalevec.orchestrator.errors import read_or_else
from scalevec.results.files import names_in, read_json, read_json_if_any, utc_now, write_json

PAYLOAD = "payload.json"
LOG = "{job}.txt"
"""In the folder of records: what SLURM itself logs is in the private folder, where others cannot read it."""


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


@dataclass(frozen=True)
class JobRecord:
    """What a job records of its trial number ``index``, and whether that is cancelled.

    It lies in the folder of the submission. A record that is not ``final`` says how far an attempt came; it
    counts only once the job is gone.
    """

    folder: Path
    job: str
    index: int

    @property
    def file_name(self) -> str:
        """The name of its files."""
        return f"{self.job}.{self.index}.json"

    def read(self) -> dict[str, Any] | None:
        """Return the record, None before the trial was started."""
        path = self.folder / "ended" / self.file_name
        return read_or_else(lambda: read_json_if_any(path, dict), None)

    def write(self, exit_code: int | None, cause: str | None, **more: Any) -> None:
        """Note how an attempt ended (or, not final, that it began).

        A job that lives on where a lost node was has no say once SLURM started it again elsewhere.
        """
        path = self.folder / "ended" / self.file_name
        path.parent.mkdir(exist_ok=True)
        earlier = self.read()
        if earlier is not None and earlier["start"] > restarts():
            return
        record = {
            "final": True,
            "exit_code": exit_code,
            "cause": cause,
            "node": node_name(),
            "start": restarts(),
            "time": utc_now(),
        }
        write_json(path, record | more)

    def cancel(self) -> None:
        """Ask that the trial be ended, or not begun."""
        path = self.folder / "cancelled" / self.file_name
        path.parent.mkdir(exist_ok=True)
        path.touch()

    def is_cancelled(self) -> bool:
        """Whether somebody asked for it."""
        return (self.folder / "cancelled" / self.file_name).exists()


def is_final(record: dict[str, Any] | None) -> bool:
    """Whether a record says that the trial's turn is over."""
    return record is not None and bool(record["final"])


def records_in(folder: Path) -> set[str]:
    """Return the names of the records of a submission: one look for all of its trials."""
    return set(names_in(folder / "ended"))


def job_number() -> str:
    """The job that this process is part of, as SLURM writes it: ``12_3`` for a task of an array."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ["SLURM_JOB_ID"]


def node_name() -> str:
    """The node as SLURM names it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def restarts() -> int:
    """How often SLURM started this job again."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))
