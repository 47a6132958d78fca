"""What is measured along a run besides the loss, at some of its steps, without changing a bit of it."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from scalevec.model.config import RunOptions
from scalevec.model.theory.measure import MeasuredRun, Row, StepMeasure
from scalevec.model.theory.movement import Preconditioner
from scalevec.model.theory.sharpness import Sharpness

T = TypeVar("T")

MEASURES: dict[str, Callable[[MeasuredRun], StepMeasure]] = {
    "preconditioner": Preconditioner,
    "sharpness": Sharpness,
}


class MeasurementError(RuntimeError):
    """A measurement cannot be made; the run could go on without it."""


class Measurements:
    """The measures that a run was asked for, every so many steps, at its first step and at its last."""

    def __init__(self, options: RunOptions, subject: MeasuredRun) -> None:
        self._every, self._last = options.measure_steps, subject.trial.steps
        self._device = torch.device(options.device)
        self.seconds = 0.0
        """What measuring has taken in this process; not a part of training time."""
        self._measures: Sequence[StepMeasure] = ()
        if options.measure:
            self._measures = self._timed(lambda: [MEASURES[name](subject) for name in options.measure])

    def _is_due(self, step: int) -> bool:
        return bool(self._measures) and (step % self._every == 0 or step in (1, self._last))

    def before_step(self, step: int) -> None:
        """Before the optimizer's step ``step`` (from 1), with its gradients in place and clipped."""
        if self._is_due(step):
            self._timed(self._before)

    def _before(self) -> None:
        for measure in self._measures:
            measure.before_step()

    def after_step(self, step: int) -> Row:
        """What was measured around the step ``step``; empty where nothing was due."""
        if not self._is_due(step):
            return {}
        rows = self._timed(lambda: [measure.after_step() for measure in self._measures])
        return {name: value for row in rows for name, value in row.items()}

    def _timed(self, work: Callable[[], T]) -> T:
        self._finish_queued_work()
        started = time.monotonic()
        try:
            result = work()
        except (
            torch.OutOfMemoryError
        ) as error:  # A smaller micro-batch, the cure for training, would not help.
            message = (
                "measuring along the run takes more memory than the device has; see measure in the sweep file"
            )
            raise MeasurementError(message) from error
        self._finish_queued_work()
        self.seconds += time.monotonic() - started
        return result

    def _finish_queued_work(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
