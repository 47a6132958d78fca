"""Trials as processes on this machine, and which of its GPUs these may use.

torch is asked for the GPUs, in a process that ends: the processes that fork workers must not start CUDA, and
no file of the system tells the GPUs of WSL, ROCm and containers alike.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from scalevec.orchestrator.attempts.jobs import Job
from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError
from scalevec.orchestrator.executors import forked_workers
from scalevec.orchestrator.executors.base import Ended, Executor, Site
from scalevec.orchestrator.executors.forked_workers import Fresh, worker_environment
from scalevec.orchestrator.snapshots.snapshot import taken
from scalevec.results.claims import process_identity, process_lives
from scalevec.results.opening import open_log

POLL_S = 0.05
OF_CUDA, OF_ROCM = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
_CHOICES = (OF_CUDA, OF_ROCM, "ROCR_VISIBLE_DEVICES")
_DRIVERS = tuple(map(Path, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "/dev/nvhost-gpu")))
"""The devices of NVIDIA's driver, of WSL, of ROCm and of NVIDIA's boards."""
_COUNT = (
    "import json, torch\n"
    "print(json.dumps([torch.cuda.is_available() and torch.cuda.device_count(), bool(torch.version.hip)]))"
)


class VisibleGpus(NamedTuple):
    """The names of GPUs as ``variable`` takes them, which chooses among them for a process."""

    names: tuple[str, ...]
    variable: str = OF_CUDA


def sign_of_gpus() -> str:
    """Return which variable or driver says that there may be GPUs, without asking; empty where none does."""
    if _is_hidden():
        return ""
    chosen = (f"{name}={os.environ[name]}" for name in _CHOICES if name in os.environ)
    return next(chosen, next((str(path) for path in _DRIVERS if path.exists()), ""))


def visible_gpus() -> VisibleGpus:
    """Return the GPUs that torch can use here. It takes torch's start, seconds, the first time.

    Raises ``MissingRequirementError`` where torch cannot be asked.
    """
    if _is_hidden():
        return VisibleGpus(())
    return _asked(*(os.environ.get(name) for name in _CHOICES))


def _is_hidden() -> bool:
    """Whether a variable leaves no GPU: it counts up to the first name that is none, such as -1."""
    firsts = (os.environ[name].partition(",")[0].strip() for name in _CHOICES if name in os.environ)
    return any(first in ("", "NoDevFiles") or first.startswith("-") for first in firsts)


@cache
def _asked(*choices: str | None) -> VisibleGpus:
    done = subprocess.run([sys.executable, "-P", "-c", _COUNT], capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise MissingRequirementError(f"torch cannot say which GPUs are here: {why}")
    count, is_rocm = json.loads(done.stdout.splitlines()[-1])
    variable = OF_ROCM if is_rocm and choices[1] is not None else OF_CUDA
    named = os.environ.get(variable)
    names = map(str, range(count)) if named is None else (name.strip() for name in named.split(","))
    return VisibleGpus(tuple(names)[:count], variable)


class Adopted:
    """Somebody else's child: only its parent learns the exit code."""

    exit_code = None

    def __init__(self, identity: Mapping[str, Any]) -> None:
        self.identity = identity

    def ended(self) -> bool:
        """Whether it is over."""
        return not process_lives(self.identity)

    def reap(self) -> None:
        """Its parent does."""


Watched = Fresh | Adopted | forked_workers.Forked
"""A process; ``identity`` tells it from a later one of the same number, as ``results.claims`` describes it.

``exit_code`` is negative for a signal, and None while it runs and where nobody learns it.
"""


@dataclass(frozen=True)
class _WatchedProcess:
    """One that this executor watches, and what it holds of the GPUs."""

    process: Watched
    gpus: tuple[str, ...] = ()
    gpu_share: float = 0.0
    """Of an adopted one it is not known: it counts as if it had each of its GPUs alone."""


class LocalExecutor(Executor):
    """At most ``site.slots`` worker processes at a time, each in a session of its own.

    The session keeps a Ctrl-C at the terminal from reaching the workers: the scheduler passes it on as
    a request to checkpoint. A process that outlives its scheduler can be adopted by the next one.
    """

    name = "local"

    def __init__(self, site: Site) -> None:
        self.slots = site.slots
        self._site = site
        self._running: dict[str, _WatchedProcess] = {}
        self._forks = forked_workers.ForkServers(lambda command: taken(site.private).command(command))

    @cached_property
    def _gpus(self) -> VisibleGpus:
        return visible_gpus()

    @property
    def free_slots(self) -> int:
        """Slots without a running process."""
        return self.slots - len(self._running)

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Start the processes; a number is the process's identity on this machine.

        Raises ``InvalidInputError`` where a job asks for more GPUs or machines than there are here.
        """
        for job in jobs:
            if job.request.nodes > 1:
                asked = f"{job.rung or job.label}: nodes is {job.request.nodes}"
                raise InvalidInputError(f"{asked}; executor local has this machine alone")
            if job.request.gpus and job.request.gpus > len(self._gpus.names):
                asked = f"{job.rung or job.label}: asks for {job.request.gpus:g} GPUs"
                raise InvalidInputError(f"{asked}; torch sees {len(self._gpus.names)} here")
        return [self._start(job) for job in jobs]

    def _start(self, job: Job) -> str:
        gpus, arguments = self._least_used_gpus(job.request.gpus), forked_workers.arguments_to_fork(job)
        with open_log(job.log) as log:
            process: Watched | None = None
            if arguments is not None:
                process = self._forks.fork(arguments, job.request.cpus, log)
            if process is None:
                command = taken(self._site.private).command(job.command)
                process = Fresh(forked_workers.start(command, log, self._variables(job.request.cpus, gpus)))
        number = _number(process.identity)
        self._running[number] = _WatchedProcess(process, gpus, min(1.0, job.request.gpus))
        return number

    def _least_used_gpus(self, share: float) -> tuple[str, ...]:
        """As many GPUs as ``share`` needs, a fraction of one rounded up, those in least use."""
        if not share:
            return ()
        used = dict.fromkeys(self._gpus.names, 0.0)
        for running in self._running.values():
            for gpu in used.keys() & set(running.gpus):
                used[gpu] += running.gpu_share
        return tuple(sorted(used, key=lambda gpu: used[gpu])[: -int(-share // 1)])

    def _variables(self, cpus: int, gpus: Sequence[str]) -> dict[str, str]:
        return worker_environment(cpus) | ({self._gpus.variable: ",".join(gpus)} if gpus else {})

    def adopt(self, numbers: Collection[str]) -> set[str]:
        """Those that still run on this machine; the exit code of an adopted process stays unknown."""
        identities = {number: _identity(number) for number in numbers if number not in self._running}
        here = {
            number: identity
            for number, identity in identities.items()
            if identity is not None and _is_of_this_machine(identity) and process_lives(identity)
        }
        for number, identity in here.items():
            self._running[number] = _WatchedProcess(Adopted(identity), _gpus_of(identity["pid"]), 1.0)
        return set(here) | (set(numbers) & set(self._running))

    def wait(self, timeout_s: float) -> list[Ended]:
        """The processes that ended; waits for the first one at most ``timeout_s`` seconds."""
        deadline = time.monotonic() + timeout_s
        while True:
            ended = [number for number, running in self._running.items() if running.process.ended()]
            if ended or time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
        return [self._end(number) for number in ended]

    def _end(self, number: str) -> Ended:
        process = self._running.pop(number).process
        exit_code = process.exit_code
        process.reap()
        return Ended(number, exit_code)

    def cancel(self, numbers: Collection[str]) -> None:
        """SIGTERM: the workers checkpoint and end."""
        for number in numbers:
            if number in self._running:
                forked_workers.tell(self._running[number].process.identity, signal.SIGTERM)

    def stop(self, *, hard: bool = False) -> None:
        """SIGTERM (the workers checkpoint and end) or SIGKILL to every process."""
        for running in self._running.values():
            forked_workers.tell(running.process.identity, signal.SIGKILL if hard else signal.SIGTERM)

    def close(self) -> None:
        """End the servers; what they forked goes on."""
        self._forks.close()


def _gpus_of(pid: int) -> tuple[str, ...]:
    """The names of GPUs that a process of ours was given; none where it is over, or somebody else's."""
    try:
        variables = dict(
            value.partition("=")[::2] for value in Path(f"/proc/{pid}/environ").read_text().split("\0")
        )
    except (OSError, ValueError):
        return ()
    given = variables.get(OF_ROCM) or variables.get(OF_CUDA, "")
    return tuple(given.split(","))


_PARTS = ("host", "boot_id", "pid_namespace", "pid", "process_start")


def _number(identity: Mapping[str, Any]) -> str:
    return "/".join(str(identity[part]) for part in _PARTS)


def _identity(number: str) -> dict[str, Any] | None:
    values = number.split("/")
    if len(values) != len(_PARTS) or not values[3].isdecimal():
        return None
    return {**dict(zip(_PARTS, values, strict=True)), "pid": int(values[3])}


def _is_of_this_machine(identity: Mapping[str, Any]) -> bool:
    here = process_identity(os.getpid())
    return all(str(here[part]) == identity[part] for part in _PARTS[:3])
