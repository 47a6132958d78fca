"""Steps whose loss and gradient norm are still on the device: to read them is to wait for it."""

import time
from typing import Any

import torch

from scalevec.model.accounting import flops_per_token
from scalevec.model.config import RunOptions, Trial

READ_S = 0.25
"""About how long a GPU is left to itself; waiting for it costs far less."""
FAST_GPU = 3e14
"""FLOPs per second of a large card in training."""
MOST_UNREAD = 16

Row = dict[str, Any]
ON_DEVICE = ("loss", "gradient_norm")


def steps_between_readings(trial: Trial, options: RunOptions) -> int:
    """After how many steps the device is waited for; the same at all processes of a trial. 1 on a CPU."""
    if options.device == "cpu":
        return 1
    step = flops_per_token(trial.model, trial.sequence_length) * trial.batch_tokens / options.processes
    return max(1, min(MOST_UNREAD, int(READ_S * FAST_GPU / step)))


class UnreadSteps:
    """The rows of metrics of the last steps, some of whose values are tensors of the device."""

    def __init__(self, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._rows: list[Row] = []
        self._started = self._measured = 0.0

    def __len__(self) -> int:
        return len(self._rows)

    def begin(self, measured_s: float) -> None:
        """A step begins; ``measured_s`` have gone to measurements so far, which are no training time."""
        if not self._rows:
            self._started, self._measured = time.perf_counter(), measured_s

    def add(self, row: Row) -> None:
        """The row of the step that was asked for; its ``ON_DEVICE`` are tensors of one number."""
        self._rows.append(row)

    def read(self, measured_s: float) -> list[Row]:
        """All rows with plain numbers, once the device has them. The time of a step is their mean."""
        rows, self._rows = self._rows, []
        numbers = torch.stack([row[name].double() for row in rows for name in ON_DEVICE]).tolist()
        elapsed = time.perf_counter() - self._started - (measured_s - self._measured)
        speed = self._batch_tokens * len(rows) / elapsed
        pairs = zip(rows, numbers[::2], numbers[1::2], strict=True)
        return [
            row | {"loss": loss, "gradient_norm": norm, "tokens_per_s": speed} for row, loss, norm in pairs
        ]
