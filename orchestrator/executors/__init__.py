"""Where trials run. A new executor is one file here and one line in :data:`EXECUTORS`."""

from collections.abc import Callable

from orchestrator.executors.base import Ended, Executor, Site
from orchestrator.executors.local import LocalExecutor

__all__ = ["EXECUTORS", "Ended", "Executor", "LocalExecutor", "Site"]

EXECUTORS: dict[str, Callable[[Site], Executor]] = {"local": LocalExecutor}
"""Name -> constructor. What an executor alone needs (ray, submitit) is imported when it is made."""
