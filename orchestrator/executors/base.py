"""What every executor owes; ``tests/contracts`` holds each of them to it."""

from dataclasses import dataclass
from typing import Protocol

from orchestrator.jobs import Job


@dataclass(frozen=True)
class Ended:
    """A job that is over. ``exit_code`` is negative for a signal; None if nobody knows."""

    number: str
    exit_code: int | None


class Executor(Protocol):
    """Runs jobs as processes somewhere; what became of a trial is read from its run directory."""

    @property
    def name(self) -> str:
        """The name under which a person chooses it."""

    @property
    def free_slots(self) -> int:
        """How many more jobs it takes now."""

    def submit(self, job: Job) -> str:
        """Start (or queue) ``job``; returns its number. The job outlives this process."""

    def wait(self, timeout_s: float) -> list[Ended]:
        """The jobs that ended since the last call; returns early when one ends."""

    def stop(self, *, hard: bool = False) -> None:
        """Ask all its jobs to checkpoint and end, or with ``hard`` end them at once."""
