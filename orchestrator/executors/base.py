"""What every executor owes; ``tests/contracts`` holds each of them to it."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from scalevec.orchestrator.attempts.jobs import Job
from scalevec.orchestrator.private import private_folder

if TYPE_CHECKING:
    from scalevec.orchestrator.executors.profiles import Profile


@dataclass(frozen=True)
class Ended:
    """A job that is over. ``exit_code`` is negative for a signal; None if nobody knows.

    It is ``WorkerExit.MACHINE_LACKS`` where what comes before the worker failed.

    ``cause`` is what the executor itself knows of an end without a result (one of
    ``retry_policy.INTERRUPTIONS``, ``out_of_memory``, ``cancelled`` or ``not_started``);
    what the worker wrote into the run directory counts before it. ``message`` is in the executor's own words.
    """

    number: str
    exit_code: int | None
    cause: str | None = None
    node: str | None = None
    message: str = ""


@dataclass(frozen=True)
class QueuedJob:
    """A job that waits or runs, as its cluster's queue shows it."""

    job: str
    state: str
    reason: str = ""
    """Why it waits, in the queue's own words."""
    node: str | None = None
    remedy: str = ""
    """The command that lets it go on, where it waits for a person."""


def _no_profile() -> "Profile":
    from scalevec.orchestrator.executors.profiles import Profile  # takes longer to load than many a command

    return Profile()


@dataclass(frozen=True)
class Site:
    """For whom an executor is built, and where."""

    runs_dir: Path
    sweep: str
    """The sweep's name; an executor may keep files of its own in ``RUNS_DIR/sweeps/NAME/EXECUTOR/``."""
    slots: int
    """Trials at a time, where the executor itself decides that."""
    profile: "Profile" = field(default_factory=_no_profile)
    simulation: Mapping[str, Any] = field(default_factory=dict)
    """The sweep's section ``simulate``."""
    cpus: int = 1
    """The most that one trial asks for."""

    @property
    def private(self) -> Path:
        """The private folder for what is sent (``orchestrator.private``), which may be refused."""
        return private_folder(self.profile.private_dir, self.runs_dir)


class Executor(Protocol):
    """What starts jobs as processes somewhere: this machine, a cluster's queue, or a simulation.

    The scheduler calls ``submit`` while there are ``free_slots``, ``wait`` for ends, and ``stop`` and
    ``close`` when it leaves. An executor says that a job is over, never how its trial went: that is read
    from the run directory.

    A job's number (a text) names it for ever, on this machine or another: a later scheduler may ask for it
    with ``adopt``. ``tests/contracts`` holds every executor to this protocol.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in ``executors.registry``, which says what can be known without building it."""

    @property
    def cluster(self) -> str:
        """The name of the cluster that keeps its jobs; empty where they end with the scheduler's machine.

        Raises ``MissingRequirementError`` where the cluster does not answer.
        """
        return ""

    @property
    @abstractmethod
    def free_slots(self) -> int:
        """How many more jobs it takes now."""

    @abstractmethod
    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Start or queue jobs.

        Args:
            jobs: At most ``free_slots`` of them.

        Returns:
            The number of each job, in their order.

        Raises:
            InvalidInputError: What they ask for cannot be had; none of them was started.
            MissingRequirementError: The executor's tools or machines are missing; none was started.
            TryLaterError: What refuses them passes; it names those that were taken before the refusal.
        """

    @abstractmethod
    def adopt(self, numbers: Collection[str]) -> set[str]:
        """Those of ``numbers``, given by an earlier scheduler, that still wait or run.

        From now on they count as this executor's own: ``wait`` reports their end. A job that a cluster holds,
        or will start again, waits.

        Raises:
            TryLaterError: Nobody can say.
        """

    @abstractmethod
    def wait(self, timeout_s: float) -> list[Ended]:
        """Return the jobs that ended since the last call, each once.

        Args:
            timeout_s: Seconds to wait at most; it returns early when a job ends.
        """

    def notices(self) -> list[tuple[str | None, str]]:
        """What a person should know that happened since the last call and passes by itself.

        Each with the number of the job that was interrupted, None where it is of no single job.
        """
        return []

    @abstractmethod
    def cancel(self, numbers: Collection[str]) -> None:
        """Ask these jobs to checkpoint and end, those that wait to leave the queue."""

    @abstractmethod
    def stop(self, *, hard: bool = False) -> None:
        """Ask all its jobs to checkpoint and end, or with ``hard`` end them at once."""

    def close(self) -> None:
        """Let go of what the executor itself holds (connections, a cluster that it started).

        Jobs that it keeps go on.
        """
