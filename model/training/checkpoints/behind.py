"""Checkpoints that are written while the training goes on: from a copy, one at a time, by a thread."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from scalevec.model.training.checkpoints.joint_state import whole
from scalevec.model.training.checkpoints.state import Checkpoint, save_checkpoint

SHARE = 0.02
"""Of the time of training that its checkpoints may take."""
WORTH_COUNTING_S = 1.0
"""A shorter hold-up never makes the interval longer."""


class BackgroundWriter:
    """Writes the checkpoints of a run behind it; used as a context, which ends when all is written.

    A write that failed is raised as its ``OSError`` where the next one begins, or at the end.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._thread: threading.Thread | None = None
        self._problem: BaseException | None = None
        self.seconds = 0.0
        """For which the training was held up: copying, and waiting for the write before."""
        self.last_s = 0.0
        """Of these, for the last checkpoint."""

    def write(self, checkpoint: Checkpoint) -> None:
        """Copy ``checkpoint`` and write the copy; waits where one is being written."""
        started = time.monotonic()
        self.wait()
        self._begin(checkpoint.step)
        # The training goes on with these very tensors.
        tensors = {
            name: whole(kept).detach().to("cpu", copy=True) for name, kept in checkpoint.tensors.items()
        }
        copied = replace(checkpoint, tensors=tensors)
        self._thread = threading.Thread(target=self._run, args=(copied,), name="checkpoint")
        self._thread.start()
        self.last_s = time.monotonic() - started
        self.seconds += self.last_s

    def _begin(self, step: int) -> None:
        """What comes before the write of the checkpoint after ``step``."""

    def _save(self, checkpoint: Checkpoint) -> None:
        save_checkpoint(self.folder, checkpoint)

    def look(self) -> None:
        """Called after each step."""

    def _run(self, checkpoint: Checkpoint) -> None:
        try:
            self._save(checkpoint)
        except BaseException as problem:  # noqa: BLE001 (raised where the run waits for it)
            self._problem = problem

    def wait(self) -> None:
        """Return when the last checkpoint is on the disk. Raises what its write raised."""
        if problem := self._joined():
            raise problem

    def _joined(self) -> BaseException | None:
        """What the write raised, once it has ended."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        problem, self._problem = self._problem, None
        return problem

    def interval(self, asked: float) -> float:
        """Seconds between two checkpoints: as ``asked``, or as many as keep their cost within 2 %."""
        return asked if self.last_s < WORTH_COUNTING_S else max(asked, self.last_s / SHARE)

    def __enter__(self) -> "BackgroundWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None:
            self.wait()
        else:  # which is what the run ended with, whatever the write did
            self._joined()
