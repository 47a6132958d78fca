"""What is measured along a run besides the loss, at some of its steps, without changing a bit of it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from scalevec.model.config import RunOptions, Trial
from scalevec.model.data.corpus import TokenArray
from scalevec.model.decoder import Transformer
from scalevec.model.theory.preconditioner import Preconditioner
from scalevec.model.theory.sharpness import Sharpness

T = TypeVar("T")


@dataclass(frozen=True)
class MeasuredRun:
    """The run that is measured; ``tokens`` is its training split."""

    trial: Trial
    model: Transformer
    optimizer: torch.optim.Optimizer
    tokens: TokenArray


class StepMeasure(Protocol):
    """One thing to measure around an optimizer step; it leaves parameters, gradients and state alone."""

    def before_step(self) -> None:
        """Look at the model and its gradients, after clipping, before the optimizer moves it."""

    def after_step(self) -> dict[str, Any]:
        """What was found, under keys that begin with ``theory/``."""


MEASURES: dict[str, Callable[[MeasuredRun], StepMeasure]] = {
    "preconditioner": lambda run: Preconditioner(run.trial, run.model, run.optimizer),
    "sharpness": lambda run: Sharpness(run.trial, run.model, run.tokens),
}


class MeasurementError(RuntimeError):
    """A measurement cannot be made; the run could go on without it."""


class Measurements:
    """The measures that a run was asked for, every so many steps, at its first step and at its last.

    ``seconds`` is what measuring has taken in this process; it is no part of training time.
    """

    def __init__(self, options: RunOptions, run: MeasuredRun) -> None:
        self._every, self._last = options.measure_steps, run.trial.steps
        self._device = torch.device(options.device)
        self.seconds = 0.0
        self._measures: Sequence[StepMeasure] = ()
        if options.measure:
            self._measures = self._timed(lambda: [MEASURES[name](run) for name in options.measure])

    def _is_due(self, step: int) -> bool:
        return bool(self._measures) and (step % self._every == 0 or step in (1, self._last))

    def before_step(self, step: int) -> None:
        """Before the optimizer's step ``step`` (from 1), with its gradients in place and clipped."""
        if self._is_due(step):
            self._timed(self._before)

    def _before(self) -> None:
        for measure in self._measures:
            measure.before_step()

    def after_step(self, step: int) -> dict[str, Any]:
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
        except torch.OutOfMemoryError as error:
            # Not passed on as it is: a smaller micro-batch, the cure for training, would not help.
            message = "measuring along the run takes more memory than the device has"
            raise MeasurementError(f"{message}; see measure in the sweep file") from error
        self._finish_queued_work()
        self.seconds += time.monotonic() - started
        return result

    def _finish_queued_work(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
