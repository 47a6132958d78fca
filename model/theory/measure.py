"""What is measured along a run besides the loss, at some of its steps, without changing a bit of it.

First the measures that are asked for, then the statistics of scale vectors, which every run has.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from scalevec.model.config import RunOptions, Trial
from scalevec.model.data.corpus import TokenArray
from scalevec.model.decoder import Transformer
from scalevec.model.scale_vectors import ScaleVector
from scalevec.model.theory.preconditioner import Preconditioner, shortened
from scalevec.model.theory.sharpness import Sharpness


class MeasurementError(RuntimeError):
    """A measurement cannot be made; the run could go on without it."""


class Measurements:
    """The measures that a run was asked for, every so many steps, at its first step and at its last.

    Each looks at the model and its gradients, after clipping, before the optimizer moves it, and says
    afterwards what it found, under keys that begin with ``theory/``; it leaves parameters, gradients and
    state alone. ``seconds`` is what measuring has taken in this process; it is no part of training time.

    Args:
        options: Which are asked for, and how often.
        trial: What is trained.
        model: Its model.
        optimizer: Its optimizer.
        tokens: Its training split.
    """

    def __init__(
        self,
        options: RunOptions,
        trial: Trial,
        model: Transformer,
        optimizer: torch.optim.Optimizer,
        tokens: TokenArray,
    ) -> None:
        makers: dict[str, Callable[[], Preconditioner | Sharpness]] = {
            "preconditioner": lambda: Preconditioner(trial, model, optimizer),
            "sharpness": lambda: Sharpness(trial, model, tokens),
        }
        self._every, self._last = options.measure_steps, trial.steps
        self._device = torch.device(options.device)
        self.seconds = 0.0
        self._measures: Sequence[Preconditioner | Sharpness] = ()
        if options.measure:
            with self._timed():
                self._measures = [makers[name]() for name in options.measure]

    def _is_due(self, step: int) -> bool:
        return bool(self._measures) and (step % self._every == 0 or step in (1, self._last))

    def before_step(self, step: int) -> None:
        """Before the optimizer's step ``step`` (from 1), with its gradients in place and clipped."""
        if self._is_due(step):
            with self._timed():
                for measure in self._measures:
                    measure.before_step()

    def after_step(self, step: int) -> dict[str, Any]:
        """What was measured around the step ``step``; empty where nothing was due."""
        if not self._is_due(step):
            return {}
        with self._timed():
            rows = [measure.after_step() for measure in self._measures]
        return {name: value for row in rows for name, value in row.items()}

    @contextmanager
    def _timed(self) -> Iterator[None]:
        self._finish_queued_work()
        started = time.monotonic()
        try:
            yield
        except torch.OutOfMemoryError as error:
            # Not passed on as it is: a smaller micro-batch, the cure for training, would not help.
            message = "measuring along the run takes more memory than the device has"
            raise MeasurementError(f"{message}; see measure in the sweep file") from error
        self._finish_queued_work()
        self.seconds += time.monotonic() - started

    def _finish_queued_work(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


NEAR_ZERO = 0.1
"""An entry of a scale vector below this magnitude counts as near zero."""
NAMES = ("mean", "deviation", "near_zero")


@torch.no_grad()
def vector_statistics(
    model: nn.Module, in_effect: Callable[[ScaleVector], Tensor] = ScaleVector.__call__
) -> dict[str, float | list[float]]:
    """Mean, standard deviation and share near zero of the scale vectors in effect, by kind.

    Keys are ``sv/KIND/mean``, ``sv/KIND/deviation`` and ``sv/KIND/near_zero`` (share with
    |g| < NEAR_ZERO) over all layers, KIND one of ``query_input``, ``query_output``, ...,
    ``attention_shared``, ``feed_forward_shared``, ``final``. A kind of several layers has the same by
    layer, in the order of the layers: ``sv/KIND/mean/layers``. Empty for a model without vectors.
    ``in_effect`` is how a vector is had where a process does not hold all of it.
    """
    kinds: dict[str, list[Tensor]] = {}
    for name, module in model.named_modules():
        if isinstance(module, ScaleVector):
            kinds.setdefault(_kind(name), []).append(in_effect(module).flatten().double())
    # Of each kind all layers together, then each: read in one go, as every reading waits for the device.
    entries = [part for vectors in kinds.values() for part in (torch.cat(vectors), *vectors)]
    numbers = iter(torch.stack([_statistics(part) for part in entries]).tolist() if entries else ())
    statistics: dict[str, float | list[float]] = {}
    for kind, vectors in kinds.items():
        statistics |= {f"sv/{kind}/{name}": value for name, value in zip(NAMES, next(numbers), strict=True)}
        by_layer = zip(*(map(shortened, next(numbers)) for _ in vectors), strict=True)
        layers = {f"sv/{kind}/{name}/layers": [*of] for name, of in zip(NAMES, by_layer, strict=True)}
        statistics |= layers if len(vectors) > 1 else {}
    return statistics


def _statistics(entries: Tensor) -> Tensor:
    """Those of NAMES, [3], of ``entries`` [n]."""
    near_zero = (entries.abs() < NEAR_ZERO).double().mean()
    return torch.stack([entries.mean(), entries.std(correction=0), near_zero])


def _kind(module_name: str) -> str:
    """Its kind, from a vector's module name: ``blocks.3.attention.query.input_vector`` is query_input."""
    *owners, vector = module_name.split(".")
    names = owners[-1:]
    if "experts" in owners:
        names = ["expert", *(name for name in names if name != "experts")]
    return "_".join([*names, vector.removesuffix("_vector")])
