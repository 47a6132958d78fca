"""Checkpoints that are written while the training goes on: from a copy, one at a time, by a thread."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from scalevec.model.train.checkpoints.joint_state import whole
from scalevec.model.train.checkpoints.state import Checkpoint, save_checkpoint

SHARE = 0.02
"""Of the time of training that its checkpoints may take."""
WORTH_COUNTING_S = 1.0
"""A smaller cost never makes the interval longer."""
SLOWED_DOWN = 2.0
"""Seconds that a training on the CPU loses for each second of processor time of a write behind it: 0.8 to 1.8
were seen with 119M and 254M parameters on two cores, idle and shared by eight others."""


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
        self.behind_s = 0.0
        """Processor time of the last write that is over, where the training is on the CPU too."""

    def write(self, checkpoint: Checkpoint) -> None:
        """Copy ``checkpoint`` and write the copy; waits where one is being written."""
        started = time.monotonic()
        self.wait()
        self._begin(checkpoint.step)
        held = {name: whole(kept).detach() for name, kept in checkpoint.tensors.items()}
        competes = all(tensor.device.type == "cpu" for tensor in held.values())
        # The training goes on with these very tensors.
        copied = replace(checkpoint, tensors=on_host(held))
        self._thread = threading.Thread(target=self._run, args=(copied, competes), name="checkpoint")
        self._thread.start()
        self.last_s = time.monotonic() - started
        self.seconds += self.last_s

    def _begin(self, step: int) -> None:
        """What comes before the write of the checkpoint after ``step``."""

    def _save(self, checkpoint: Checkpoint) -> None:
        save_checkpoint(self.folder, checkpoint)

    def look(self) -> None:
        """Called after each step."""

    def _run(self, checkpoint: Checkpoint, competes: bool) -> None:
        started = time.thread_time()
        try:
            self._save(checkpoint)
        except BaseException as problem:  # noqa: BLE001 (raised where the run waits for it)
            self._problem = problem
        self.behind_s = time.thread_time() - started if competes else 0.0

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
        cost = self.last_s + SLOWED_DOWN * self.behind_s
        return asked if cost < WORTH_COUNTING_S else max(asked, cost / SHARE)

    def __enter__(self) -> "BackgroundWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None:
            self.wait()
        else:  # which is what the run ended with, whatever the write did
            self._joined()


def on_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in this machine's memory, of what ``tensors`` are now.

    Those of a GPU go into pinned memory, which it writes several times as fast, and are waited for once;
    torch keeps that memory for the next checkpoint.
    """
    copies = {
        name: torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda).copy_(
            tensor, non_blocking=True
        )
        for name, tensor in tensors.items()
    }
    for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
    return copies
