"""What the scheduler hands to an executor, what a worker's end means, and which jobs nobody reaches."""

import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from scalevec.model.config import RunOptions
from scalevec.model.fields import to_dict
from scalevec.orchestrator.progress import counted, listed, note
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import AnyTrial, Protocol

PYTHON_MODULE = (sys.executable, "-P", "-m")
"""``-P``: what lies in the working directory never stands before our packages."""
WORKER = (*PYTHON_MODULE, "scalevec.orchestrator.worker.train")
"""A worker's command before its arguments."""
FORK_SERVER = (*PYTHON_MODULE, "scalevec.orchestrator.worker.fork_server")
BOUND = "--bound"
"""Argument of a fork server whose workers are to die with it."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
"""What asks a worker to write a checkpoint and end, and a run to stop; SIGUSR2: the time of a job is up."""


@contextmanager
def stop_signals_to(
    ask: Callable[[], object], signals: Iterable[signal.Signals] = STOP_SIGNALS
) -> Iterator[None]:
    """Call ``ask`` at each of the ``signals`` that comes meanwhile, in place of ending at the first.

    It must not print: where it interrupts a line that is being written, Python refuses a second one.
    """
    before = {number: signal.signal(number, lambda *_: ask()) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class WorkerExit(IntEnum):
    """How a worker process ends; the run directory says the rest."""

    RESULT = 0
    ERROR = 1
    FOREIGN_CODE = 3
    """The code that it was sent with is not there, has changed, or other code came before it."""
    MACHINE_LACKS = 69
    """The machine is not ready for the trial (``worker.preflight``), which was not begun."""
    NO_SPACE = 74
    """The disk (or its quota) is full; trying again at once would fail again."""
    STOPPED = 75
    """Asked to stop; the state is in the newest checkpoint."""
    NOT_OWNER = 76
    """Another live worker owns the trial."""


@dataclass(frozen=True)
class ResourceRequest:
    """What one attempt asks of a machine; None leaves it to the executor."""

    cpus: int = 1
    """Of each process."""
    gpus: float = 0.0
    """Of each machine, with a process each; a fraction lets several small trials share one."""
    memory_gb: float | None = None
    """Of each process."""
    time_s: float | None = None
    processes: int = 1
    """Of each machine, where there are no GPUs."""
    nodes: int = 1
    """Machines that train the trial together."""
    shard: bool = False

    @property
    def processes_of_node(self) -> int:
        """Processes of each machine."""
        return max(int(self.gpus), self.processes)

    @property
    def world_size(self) -> int:
        """Processes in all."""
        return self.nodes * self.processes_of_node

    @property
    def cpus_of_node(self) -> int:
        """CPU cores of each machine."""
        return self.cpus * self.processes_of_node

    @property
    def memory_gb_of_node(self) -> float | None:
        """Memory of each machine."""
        return None if self.memory_gb is None else self.memory_gb * self.processes_of_node

    def devices(self) -> dict[str, float]:
        """What a trial keeps busy: its GPUs, where it has any, and the cores of all its machines."""
        return {"gpus": self.gpus * self.nodes, "cores": self.cpus_of_node * self.nodes}


@dataclass(frozen=True)
class Task:
    """One trial to be run. ``descriptive`` fields go into trial.json beside the semantic ones."""

    trial_id: str
    trial: AnyTrial
    label: str
    options: RunOptions
    estimate_s: float
    descriptive: dict[str, Any] = field(default_factory=dict)
    arm: str = ""
    rung: str = ""
    request: ResourceRequest = ResourceRequest()
    interpreter: tuple[str, ...] = (sys.executable,)
    """The words that start Python where it is trained."""
    protocol: Protocol | None = None
    """How a foreign trainer's attempt stops and goes on; None for a trial that we train ourselves."""


@dataclass(frozen=True)
class Job:
    """One attempt at one trial. What the process prints is appended to ``log.txt`` of ``directory``."""

    trial_id: str
    command: tuple[str, ...]
    directory: Path
    """The run directory."""
    label: str = ""
    arm: str = ""
    rung: str = ""
    request: ResourceRequest = ResourceRequest()
    estimate_s: float = 0.0
    """The plan's estimate, for a request that leaves the time open."""
    avoid_nodes: tuple[str, ...] = ()
    """Hosts on which trials failed for no reason of their own."""
    token: str = ""
    """What the worker writes into its claim; empty where none is made."""
    options: RunOptions = field(default_factory=RunOptions)
    """How the command trains, for an executor that stands in for it."""

    @property
    def log(self) -> Path:
        """Where the output goes."""
        return self.directory / "log.txt"


def job_of(task: Task, runs_dir: Path, token: str, avoid_nodes: tuple[str, ...] = ()) -> Job:
    """Return the job of one attempt at ``task``."""
    return Job(
        task.trial_id,
        worker_command(runs_dir, task.trial_id, task.options, token, task.interpreter, task.protocol),
        RunDirectory.of(runs_dir.resolve(), task.trial_id).path,
        task.label,
        task.arm,
        task.rung,
        task.request,
        task.estimate_s,
        avoid_nodes,
        token,
        task.options,
    )


def worker_command(
    runs_dir: Path,
    trial_id: str,
    options: RunOptions,
    token: str,
    interpreter: tuple[str, ...] = (sys.executable,),
    protocol: Protocol | None = None,
) -> tuple[str, ...]:
    """The command that runs one attempt.

    ``token`` goes into the worker's claim, so that whoever knows the job to be gone may end that claim.
    """
    arguments = ["--runs", str(runs_dir.resolve()), "--options", json.dumps(to_dict(options))]
    if protocol is not None:
        arguments += ["--protocol", json.dumps(to_dict(protocol))]
    return (*interpreter, *WORKER[1:], *arguments, "--job", token, trial_id)


def on_machine(command: tuple[str, ...], node: int, nodes: int, meeting: Path) -> tuple[str, ...]:
    """A worker's ``command``, which ends with the trial's id, for machine ``node`` (from 0) of several.

    ``meeting`` is the file by which the machines find each other; the first one writes it.
    """
    words = ("--nodes", str(nodes), "--node", str(node), "--meeting", str(meeting))
    return (*command[:-1], *words, command[-1])


OpenJob = Mapping[str, Any]
"""A job as its trial's records have it."""


def unreached(directories: Iterable[RunDirectory]) -> list[tuple[RunDirectory, OpenJob]]:
    """The open jobs that nobody may adopt or end from here; none of trials with a result.

    They were sent from another runs folder, or from this one before it was mounted again.
    """
    jobs: list[tuple[RunDirectory, OpenJob]] = []
    for directory in directories:
        if not directory.result_path.exists():
            with suppress(CorruptRecordError):  # told by whoever reads the jobs that are ours
                jobs += [(directory, job) for job in directory.unreached_jobs()]
    return jobs


def unreached_text(jobs: Iterable[OpenJob]) -> str:
    """Which jobs these are, why nobody reaches them from here, and what to do."""
    jobs = list(jobs)
    return (
        f"{counted(len(jobs), 'open job')} sent from {listed(map(_folder_text, jobs))} cannot be reached: "
        "this runs folder is a copy of it, or was mounted again or restored. They are neither adopted nor "
        f"ended: {listed(map(_name, jobs))}. Cancel them where they were sent from, or by hand: scancel, kill"
    )


def tell_unreached(directories: Iterable[RunDirectory]) -> None:
    """Warn of the jobs that a run or a look leaves alone."""
    if jobs := unreached(directories):
        note(f"warning: {unreached_text(job for _, job in jobs)}")


def _folder_text(job: OpenJob) -> str:
    made_in = job.get("runs")
    if not isinstance(made_in, dict):
        return "an unknown runs folder"
    return f"{made_in.get('path')!s:.200} (inode {made_in.get('inode')!s:.20})"


def _name(job: OpenJob) -> str:
    """The job as its machine or its queue knows it."""
    parts = str(job["job"]).split("/")
    if job["executor"] == "local" and len(parts) > 3:
        return f"process {parts[3]:.20} on {parts[0]:.60}"
    return f"{job['executor']!s:.20} job {parts[0]:.60}"
