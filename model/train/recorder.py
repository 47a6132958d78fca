"""Who keeps what a training run has to say, and how the run is asked to stop."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class Recorder(Protocol):
    """Who keeps what the loop has to say, and tells it when to stop."""

    def record(self, row: Mapping[str, Any]) -> None:
        """Keep one row of metrics."""

    def cut_back(self, step: int) -> None:
        """Forget the rows of steps after ``step``: they will be run again."""

    def recorded(self) -> Sequence[Mapping[str, Any]]:
        """All rows that are kept, in the order of training, up to the first that is damaged."""

    def replace_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep these rows and no others: the run goes on from another's state."""

    def sync(self) -> None:
        """Make all that was recorded survive a loss of power."""

    def say(self, message: str, **details: Any) -> None:
        """Tell a person something that the result alone would not show, and programs the ``details``."""

    def origin(self) -> Mapping[str, Any]:
        """Who trains: plain values that tell trial and code, for those who take over the state."""

    def require_ownership(self) -> None:
        """Raise if another worker has taken over this trial."""

    def stop_requested(self) -> bool:
        """Whether the run shall stop at the next step, with a checkpoint."""


class SilentRecorder:
    """Implements :class:`Recorder` for a process that trains along with another, which records for both.

    ``stop_requested`` tells of a stop that this process alone was asked for.
    """

    def __init__(self, stop_requested: Callable[[], bool] = lambda: False) -> None:
        self._stop_requested = stop_requested

    def record(self, row: Mapping[str, Any]) -> None:
        """Nothing is kept."""

    def cut_back(self, step: int) -> None:
        """There is nothing to forget."""

    def recorded(self) -> Sequence[Mapping[str, Any]]:
        """No rows."""
        return ()

    def replace_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Nothing is kept."""

    def sync(self) -> None:
        """Nothing was recorded."""

    def say(self, message: str, **details: Any) -> None:
        """Said by the process that records."""

    def origin(self) -> Mapping[str, Any]:
        """Known to the process that records."""
        return {}

    def require_ownership(self) -> None:
        """The process that records sees to it, and where it ends this one does."""

    def stop_requested(self) -> bool:
        """Whether this process was asked to stop."""
        return self._stop_requested()


class TrainingInterruptedError(Exception):
    """The run was asked to stop; its state is in the newest checkpoint."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step
