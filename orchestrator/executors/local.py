"""Trials as processes on this machine."""

import os
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from orchestrator.errors import Refused
from orchestrator.executors.base import Ended, Site
from orchestrator.executors.environment import worker_environment
from orchestrator.executors.forks import Forked, ForkServer, ServerGone
from orchestrator.executors.processes import Adopted, Fresh, Watched, send
from orchestrator.jobs import WORKER, Job
from results.claims import process_identity, process_lives

POLL_S = 0.05
_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class _Running:
    process: Watched
    gpus: tuple[str, ...] = ()
    gpu_share: float = 0.0


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
        self._running: dict[str, _Running] = {}
        self._servers: dict[int, ForkServer] = {}
        """By the processors of a worker, which its variables depend on."""

    @property
    def free_slots(self) -> int:
        """Slots without a running process."""
        return self.slots - len(self._running)

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
            forked = self._forked(job, environment, log) if _can_be_forked(job) else None
            process = forked or Fresh(job.command, environment, log)
        number = _number(process.identity)
        self._running[number] = _Running(process, gpus, min(1.0, job.request.gpus))
        return number

    def _forked(self, job: Job, environment: Mapping[str, str], log: IO[bytes]) -> Forked | None:
        """None where no server can be had; why is in the log of the first job that asked for it."""
        server = self._servers.get(job.request.cpus)
        if server is None or (server.gone and server.has_served):
            server = self._servers[job.request.cpus] = ForkServer(environment, log)
        if server.gone:
            return None
        with suppress(ServerGone):
            return server.fork(job.command[len(WORKER) :], log)
        return None

    def _least_used_gpus(self, share: float) -> tuple[str, ...]:
        """As many GPUs as ``share`` needs, a fraction of one rounded up, those in least use."""
        used = dict.fromkeys(self._gpus, 0.0)
        for running in self._running.values():
            for gpu in running.gpus:
                used[gpu] += running.gpu_share
        return tuple(sorted(self._gpus, key=lambda gpu: used[gpu])[: -int(-share // 1)])

    def adopt(self, numbers: Collection[str]) -> set[str]:
        """Those that still run on this machine; the exit code of an adopted process stays unknown."""
        found = {number: _identity(number) for number in numbers if number not in self._running}
        here = {
            number: identity
            for number, identity in found.items()
            if identity is not None and _is_of_this_machine(identity) and process_lives(identity)
        }
        self._running |= {number: _Running(Adopted(identity)) for number, identity in here.items()}
        return set(here) | (set(numbers) & set(self._running))

    def wait(self, timeout_s: float) -> list[Ended]:
        """The processes that ended; waits for the first one at most ``timeout_s`` seconds."""
        deadline = time.monotonic() + timeout_s
        while True:
            ended = [number for number, running in self._running.items() if running.process.ended()]
            if ended or time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
        return [Ended(number, self._running.pop(number).process.exit_code) for number in ended]

    def cancel(self, numbers: Collection[str]) -> None:
        """SIGTERM: the workers checkpoint and end."""
        for number in numbers:
            if number in self._running:
                send(self._running[number].process, signal.SIGTERM)

    def stop(self, *, hard: bool = False) -> None:
        """SIGTERM (the workers checkpoint and end) or SIGKILL to every process."""
        for running in self._running.values():
            send(running.process, signal.SIGKILL if hard else signal.SIGTERM)

    def close(self) -> None:
        """End the servers; what they forked goes on."""
        for server in self._servers.values():
            server.close()


def _can_be_forked(job: Job) -> bool:
    """CUDA does not survive a fork, and Linux alone tells a server of an end without a poll."""
    is_worker = job.command[: len(WORKER)] == WORKER
    return is_worker and job.options.device == "cpu" and sys.platform == "linux"


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that a process here may use, by the names that CUDA_VISIBLE_DEVICES takes."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(name for name in named.split(",") if name)
    return tuple(str(place) for place in range(len(list(_GPUS.iterdir())) if _GPUS.is_dir() else 0))


_PARTS = ("host", "boot_id", "pid_namespace", "pid", "process_start")


def _number(identity: Mapping[str, Any]) -> str:
    return "/".join(str(identity[part]) for part in _PARTS)


def _identity(number: str) -> dict[str, Any] | None:
    values = number.split("/")
    if len(values) != len(_PARTS) or not values[3].isdecimal():
        return None
    return {**dict(zip(_PARTS, values, strict=True)), "pid": int(values[3])}


def _is_of_this_machine(identity: Mapping[str, Any]) -> bool:
    own = process_identity(os.getpid())
    return all(str(own[part]) == identity[part] for part in _PARTS[:3])
