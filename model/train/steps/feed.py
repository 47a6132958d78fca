"""The batches of a run on its device, the next one made while this one is trained on."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import torch

from scalevec.model.data.order import Batch, TrainingBatches


class BatchFeed:
    """Gives the batches of ``batches`` in the order of the steps, whichever step is asked for first.

    Args:
        batches: What is trained on.
        part: Which of the sequences of a batch this process takes.
        n_steps: Of the run: no batch beyond is made.
        device: To which they are copied; to a GPU from pinned memory, behind what it computes.
        ahead: Whether a thread makes the next batch meanwhile; a CPU is busy with training itself.
    """

    def __init__(
        self, batches: TrainingBatches, part: slice, n_steps: int, device: torch.device, *, ahead: bool
    ) -> None:
        self._batches, self._part, self._n_steps, self._device = batches, part, n_steps, device
        self._pinned = device.type == "cuda"
        self._thread = ThreadPoolExecutor(1, "batches") if ahead else None
        self._next: tuple[int, Future[Batch]] | None = None

    def __enter__(self) -> Self:
        """Within it batches are given."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave off making the next."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def batch(self, step: int) -> Batch:
        """Inputs and targets of ``step`` (from 0), int64, [sequences, sequence_length], on the device."""
        waiting = self._next if self._next is not None and self._next[0] == step else None
        inputs, targets = self._on_host(step) if waiting is None else waiting[1].result()
        if self._thread is not None:
            follows = step + 1 < self._n_steps
            self._next = (step + 1, self._thread.submit(self._on_host, step + 1)) if follows else None
        return self._on_device(inputs), self._on_device(targets)

    def _on_host(self, step: int) -> Batch:
        inputs, targets = self._batches.batch(step, self._part)
        return (inputs.pin_memory(), targets.pin_memory()) if self._pinned else (inputs, targets)

    def _on_device(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.to(self._device, non_blocking=self._pinned)
