"""Trials as fresh processes on this machine."""

import os
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import Refused
from orchestrator.executors.base import Ended, Site
from orchestrator.executors.environment import worker_environment
from orchestrator.jobs import Job
from results.claims import process_identity, process_lives

POLL_S = 0.05
_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class _Watched:
    """A process with what tells it from a later one of the same number; ``child`` unless adopted."""

    identity: dict[str, object]
    child: "subprocess.Popen[bytes] | None" = None
    gpus: tuple[str, ...] = ()
    gpu_share: float = 0.0

    @property
    def pid(self) -> int:
        return int(str(self.identity["pid"]))

    def ended(self) -> bool:
        if self.child is not None:
            return self.child.poll() is not None
        return not process_lives(self.identity)

    @property
    def exit_code(self) -> int | None:
        """Only a parent learns it."""
        return self.child.returncode if self.child is not None else None


class LocalExecutor:
    """At most ``site.slots`` worker processes at a time, each in a session of its own.

    The session keeps a Ctrl-C at the terminal from reaching the workers: the scheduler passes it on as
    a request to checkpoint. A process that outlives its scheduler can be adopted by the next one.
    """

    name = "local"
    keeps_jobs = False
    sends_away = False

    def __init__(self, site: Site) -> None:
        self.slots = site.slots
        self._gpus = visible_gpus()
        self._watched: dict[str, _Watched] = {}

    @property
    def free_slots(self) -> int:
        """Slots without a running process."""
        return self.slots - len(self._watched)

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Start the processes; a number is the process's identity on this machine.

        Raises ``Refused`` where a job asks for more GPUs than there are here.
        """
        for job in jobs:
            if job.request.gpus > len(self._gpus):
                asked = f"{job.rung or job.label}: asks for {job.request.gpus:g} GPUs"
                raise Refused(f"{asked}; this machine has {len(self._gpus)}")
        return [self._start(job) for job in jobs]

    def _start(self, job: Job) -> str:
        gpus = self._least_used_gpus(job.request.gpus)
        environment = worker_environment(job.request.cpus)
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        with job.log.open("ab") as log:
            process = subprocess.Popen(
                job.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        identity = process_identity(process.pid)
        number = _number(identity)
        self._watched[number] = _Watched(identity, process, gpus, min(1.0, job.request.gpus))
        return number

    def _least_used_gpus(self, share: float) -> tuple[str, ...]:
        """As many GPUs as ``share`` needs, a fraction of one rounded up, those in least use."""
        used = dict.fromkeys(self._gpus, 0.0)
        for watched in self._watched.values():
            for gpu in watched.gpus:
                used[gpu] += watched.gpu_share
        return tuple(sorted(self._gpus, key=lambda gpu: used[gpu])[: -int(-share // 1)])

    def adopt(self, numbers: Collection[str]) -> set[str]:
        """Those that still run on this machine; the exit code of an adopted process stays unknown."""
        found = {number: _identity(number) for number in numbers if number not in self._watched}
        here = {
            number: identity
            for number, identity in found.items()
            if identity is not None and _is_of_this_machine(identity) and process_lives(identity)
        }
        self._watched |= {number: _Watched(identity) for number, identity in here.items()}
        return set(here) | (set(numbers) & set(self._watched))

    def wait(self, timeout_s: float) -> list[Ended]:
        """The processes that ended; waits for the first one at most ``timeout_s`` seconds."""
        deadline = time.monotonic() + timeout_s
        while True:
            ended = [number for number, watched in self._watched.items() if watched.ended()]
            if ended or time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
        return [Ended(number, self._watched.pop(number).exit_code) for number in ended]

    def cancel(self, numbers: Collection[str]) -> None:
        """SIGTERM: the workers checkpoint and end."""
        self._signal([self._watched[number] for number in numbers if number in self._watched], signal.SIGTERM)

    def stop(self, *, hard: bool = False) -> None:
        """SIGTERM (the workers checkpoint and end) or SIGKILL to every process."""
        self._signal(list(self._watched.values()), signal.SIGKILL if hard else signal.SIGTERM)

    def _signal(self, processes: Sequence[_Watched], number: signal.Signals) -> None:
        for watched in processes:
            if not watched.ended():
                with suppress(ProcessLookupError):
                    os.kill(watched.pid, number)

    def close(self) -> None:
        """Nothing is held."""


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that a process here may use, by the names that CUDA_VISIBLE_DEVICES takes."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(name for name in named.split(",") if name)
    return tuple(str(place) for place in range(len(list(_GPUS.iterdir())) if _GPUS.is_dir() else 0))


_PARTS = ("host", "boot_id", "pid_namespace", "pid", "process_start")


def _number(identity: dict[str, object]) -> str:
    return "/".join(str(identity[part]) for part in _PARTS)


def _identity(number: str) -> dict[str, object] | None:
    values = number.split("/")
    if len(values) != len(_PARTS) or not values[3].isdecimal():
        return None
    return {**dict(zip(_PARTS, values, strict=True)), "pid": int(values[3])}


def _is_of_this_machine(identity: dict[str, object]) -> bool:
    own = process_identity(os.getpid())
    return all(str(own[part]) == identity[part] for part in _PARTS[:3])
