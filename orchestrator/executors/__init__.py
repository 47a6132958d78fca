"""Where trials run. A new executor is one file here and one line in :data:`EXECUTORS`."""

from collections.abc import Callable

from orchestrator.executors.base import Ended, Executor, Site
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.simulate import SimulateExecutor

__all__ = ["EXECUTORS", "Ended", "Executor", "LocalExecutor", "SimulateExecutor", "Site"]


def _slurm(site: Site) -> Executor:
    from orchestrator.executors.slurm import SlurmExecutor

    return SlurmExecutor(site)


def _ray(site: Site) -> Executor:
    from orchestrator.executors.ray_cluster import RayExecutor

    return RayExecutor(site)


EXECUTORS: dict[str, Callable[[Site], Executor]] = {
    "local": LocalExecutor,
    "ray": _ray,
    "simulate": SimulateExecutor,
    "slurm": _slurm,
}
"""Name -> constructor. What an executor alone needs (ray, submitit) is imported when it is made."""
