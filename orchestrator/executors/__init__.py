"""Where trials run. A new executor is one file here and one line in :data:`EXECUTORS`."""

from collections.abc import Callable

from orchestrator.executors.base import Ended, Executor
from orchestrator.executors.local import LocalExecutor

__all__ = ["EXECUTORS", "Ended", "Executor", "LocalExecutor"]

EXECUTORS: dict[str, Callable[[int], Executor]] = {"local": LocalExecutor}
"""Name -> constructor from the number of trials that may run at once."""
