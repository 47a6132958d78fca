"""The registry of executors: where trials can run.

A new executor is one file and one entry here. Its class keeps what ``executors.base.Executor`` says; its
module, and what it alone needs (ray, submitit), is imported when it is built.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from scalevec.orchestrator.executors.base import Executor, QueuedJob, Site


@dataclass(frozen=True)
class RegisteredExecutor:
    """An executor: where its code is, and what can be known of it without its code."""

    factory: str
    """``module:name`` of a function :class:`Site` -> :class:`Executor`."""
    help: str
    """Where trials run on it, in a few words."""
    simulates: bool = False
    """Whether it draws results from a planted law: no corpus is needed, and its runs are kept apart."""
    keeps_jobs: bool = False
    """Whether its jobs keep running when the scheduler leaves (a cluster's queue)."""
    sends_away: bool = False
    """Whether trials may run on other machines, which are checked first."""
    queue_view: str = ""
    """``module:name`` of a function: job numbers -> ``QueuedJob`` of those there; empty without a queue."""
    honours: tuple[str, ...] | None = None
    """The keys of a profile that mean something to it; None for all."""
    honours_by_rung: tuple[str, ...] | None = None
    """Those of them that a profile may say by rung; None for all."""

    def build(self, site: "Site") -> "Executor":
        """Return the executor for ``site``; its module is imported now.

        Raises ``MissingRequirementError`` where a tool that it needs is not there.
        """
        executor: Executor = resolve_name(self.factory)(site)
        return executor

    def look_at_queue(self, numbers: Collection[str]) -> "dict[str, QueuedJob]":
        """Return those of ``numbers`` that its queue has. Raises ``MissingRequirementError``."""
        in_queue: dict[str, QueuedJob] = resolve_name(self.queue_view)(numbers)
        return in_queue


_CODE = "scalevec.orchestrator.executors"
_OF_A_TRIAL = ("cpus", "gpus", "processes", "nodes", "shard", "memory_gb", "python", "launcher")
_ANYWHERE = ("executor", *_OF_A_TRIAL, "max_gpu_hours", "log", "private_dir", "rungs")
_OF_SLURM = (
    *("partition", "account", "qos", "constraint", "exclude", "time", "time_factor", "setup", "flags"),
    "max_time",
    *("dependency", "max_parallel", "trials_per_job", "trials_per_gpu", *_OF_A_TRIAL),
)
EXECUTORS: dict[str, RegisteredExecutor] = {
    "local": RegisteredExecutor(
        f"{_CODE}.local.local_executor:LocalExecutor",
        "processes of this machine",
        honours=_ANYWHERE,
        honours_by_rung=_OF_A_TRIAL,
    ),
    "ray": RegisteredExecutor(
        f"{_CODE}.ray.ray_executor:RayExecutor",
        "tasks of a Ray cluster",
        sends_away=True,
        honours=(*_ANYWHERE, "address", "autoscale", "max_parallel", "resources"),
        honours_by_rung=(*_OF_A_TRIAL, "resources"),
    ),
    "slurm": RegisteredExecutor(
        f"{_CODE}.slurm.slurm_executor:SlurmExecutor",
        "jobs of a SLURM cluster",
        keeps_jobs=True,
        sends_away=True,
        queue_view=f"{_CODE}.slurm.queue:look",
        honours=(*_ANYWHERE, *_OF_SLURM, "max_submitted", "poll_s", "notice_s", "preempt"),
        honours_by_rung=_OF_SLURM,
    ),
    "simulate": RegisteredExecutor(
        f"{_CODE}.simulate.simulate_executor:SimulateExecutor",
        "nowhere: losses are drawn from a law",
        simulates=True,
    ),
}
if TYPE_CHECKING:
    ExecutorName = str
else:
    ExecutorName = Literal[tuple(EXECUTORS)]
SIMULATOR = next(name for name, registered in EXECUTORS.items() if registered.simulates)
