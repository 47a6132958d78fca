"""What a measure along a run sees and owes."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from scalevec.model.config import Trial
from scalevec.model.data.corpus import TokenArray
from scalevec.model.decoder import Transformer

Row = dict[str, Any]


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

    def after_step(self) -> Row:
        """What was found, under keys that begin with ``theory/``."""
