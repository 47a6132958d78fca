"""What every executor owes; ``tests/contracts`` holds each of them to it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from orchestrator.jobs import Job
from orchestrator.profiles import Profile


@dataclass(frozen=True)
class Ended:
    """A job that is over. ``exit_code`` is negative for a signal; None if nobody knows.

    ``cause`` is what the executor itself knows of an end without a result (one of
    ``orchestrator.policy.INTERRUPTIONS``, ``out_of_memory``, ``cancelled`` or ``not_started``);
    what the worker wrote into the run directory counts before it. ``message`` is in the executor's own words.
    """

    number: str
    exit_code: int | None
    cause: str | None = None
    node: str | None = None
    message: str = ""


@dataclass(frozen=True)
class Site:
    """For whom an executor is built, and where."""

    runs_dir: Path
    sweep: str
    """The sweep's name; an executor may keep files of its own in ``RUNS_DIR/sweeps/NAME/EXECUTOR/``."""
    slots: int
    """Trials at a time, where the executor itself decides that."""
    profile: Profile = field(default_factory=Profile)
    simulation: Mapping[str, Any] = field(default_factory=dict)
    """The sweep's section ``simulate``."""
    cpus: int = 1
    """The most that one trial asks for."""


class Executor(Protocol):
    """Runs jobs as processes somewhere; what became of a trial is read from its run directory.

    A number names one job for ever, on this machine or another: a later scheduler may ask for it.
    """

    @property
    def name(self) -> str:
        """The name under which a person chooses it."""

    @property
    def keeps_jobs(self) -> bool:
        """Whether jobs go on by themselves when the scheduler leaves (a cluster's queue)."""

    @property
    def sends_away(self) -> bool:
        """Whether trials may run on other machines, which are to be looked at first."""

    @property
    def free_slots(self) -> int:
        """How many more jobs it takes now."""

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Start (or queue) ``jobs``; returns a number for each, in their order.

        Raises ``Refused`` where what they ask for cannot be had, ``Lacking`` where the executor's tools or
        machines are missing; then none of them was started.
        """

    def adopt(self, numbers: Collection[str]) -> set[str]:
        """Those of ``numbers``, given by an earlier scheduler, that still wait or run.

        From now on they count as this executor's own: ``wait`` reports their end.
        """

    def wait(self, timeout_s: float) -> list[Ended]:
        """The jobs that ended since the last call, each once; returns early when one ends."""

    def cancel(self, numbers: Collection[str]) -> None:
        """Ask these jobs to checkpoint and end, those that wait to leave the queue."""

    def stop(self, *, hard: bool = False) -> None:
        """Ask all its jobs to checkpoint and end, or with ``hard`` end them at once."""

    def close(self) -> None:
        """Let go of what the executor itself holds (connections, a cluster that it started).

        Jobs that it keeps go on.
        """
