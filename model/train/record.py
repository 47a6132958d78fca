"""How far a run has come, what it records along the way, and the accounts of its time."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
import torch

from scalevec.model.accounting import flops_per_token
from scalevec.model.config import Trial
from scalevec.model.train.checkpoint import Checkpoint
from scalevec.model.train.devices import model_flops_utilization

DIVERGENCE_WINDOW = 50
"""Steps over which the training loss is averaged before it is held against the initial loss."""
DIVERGENCE_GRACE = 0.2
"""Share of the steps in which a loss above the initial one is not yet divergence."""


@dataclass
class RunProgress:
    """What a resumed run must know besides tensors; plain values, kept in the checkpoint."""

    step: int = 0
    """Optimizer steps done."""
    loss_initial: float | None = None
    recent_losses: deque[float] = field(default_factory=lambda: deque(maxlen=DIVERGENCE_WINDOW))
    wall_s: float = 0.0
    """Of all these steps, whoever took them."""
    data_s: float = 0.0
    """Of these, for making batches."""
    checkpoints_s: float = 0.0
    """Of these, that checkpoints held the training up."""
    evaluation_s: float = 0.0
    """Beside these."""
    resumes: int = 0
    trunk_step: int = 0
    """How many of the first steps were taken from a trunk."""
    compiled: bool = False
    """Whether its blocks are compiled."""

    @property
    def arithmetic(self) -> str:
        """``compiled`` or ``eager``."""
        return "compiled" if self.compiled else "eager"

    def take(self, step: int, loss: float) -> None:
        """``step`` (from 1) is done; ``loss`` was that of its batch."""
        self.step = step
        if self.loss_initial is None:
            self.loss_initial = loss
        self.recent_losses.append(loss)

    def facts(self) -> dict[str, Any]:
        """Everything but the step, as JSON values."""
        return {name: value for name, value in vars(self).items() if name != "step"} | {
            "recent_losses": list(self.recent_losses)
        }

    @classmethod
    def kept_in(cls, checkpoint: Checkpoint) -> "RunProgress":
        """The progress that ``checkpoint`` holds."""
        kept = {field.name: checkpoint.facts[field.name] for field in fields(cls) if field.name != "step"}
        losses = deque(kept.pop("recent_losses"), maxlen=DIVERGENCE_WINDOW)
        return cls(step=checkpoint.step, recent_losses=losses, **kept)


def has_diverged(trial: Trial, progress: RunProgress, loss: float) -> bool:
    """Whether the run is beyond hope: a loss that is no number, or a mean above where it began.

    The mean is over the last 50 steps, and counts after a fifth of all steps.
    """
    if not math.isfinite(loss):
        return True
    losses = progress.recent_losses
    settled = progress.step > DIVERGENCE_GRACE * trial.steps and len(losses) == DIVERGENCE_WINDOW
    return settled and sum(losses) / len(losses) > (progress.loss_initial or math.inf)


def stays_whole(trial: Trial, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether ``trial`` would not have counted as diverged at any of ``rows``, those of its first steps.

    Trials of other budgets share them, but not the share of the steps after which a loss counts.
    """
    progress = RunProgress(loss_initial=rows[0]["loss"])
    for row in rows:
        progress.take(row["step"], row["loss"])
        if has_diverged(trial, progress, row["loss"]):
            return False
    return True


def unbroken(rows: Sequence[Mapping[str, Any]]) -> int:
    """The step up to which ``rows`` hold a row for each step, in order; training records every step."""
    return next((step for step, row in enumerate(rows) if row["step"] != step + 1), len(rows))


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


PERCENTILES = (5, 50, 95)


def timing_of(
    trial: Trial,
    progress: RunProgress,
    rows: Iterable[Mapping[str, Any]],
    device: torch.device,
    world_size: int,
) -> dict[str, Any]:
    """The accounts of a run, as plain values.

    Args:
        trial: What was trained.
        progress: How far, and the seconds that went to batches, checkpoints and evaluation.
        rows: Its rows of metrics, those of earlier attempts and of its trunk among them.
        device: Of one process.
        world_size: Processes, on a device each.

    Returns:
        ``step_s``: percentiles of the seconds of a step.
        ``data_s``, ``checkpoints_s`` (what they held the training up), ``evaluation_s``.
        ``mfu``: the counted FLOPs of the median step over the devices' peak; None where that is not known.
    """
    seconds = [trial.batch_tokens / row["tokens_per_s"] for row in rows if row.get("tokens_per_s")]
    step_s = {f"p{q}": float(np.percentile(seconds, q)) for q in PERCENTILES} if seconds else {}
    on_gpu = device.type == "cuda"
    return {
        "step_s": step_s,
        "data_s": progress.data_s,
        "checkpoints_s": progress.checkpoints_s,
        "evaluation_s": progress.evaluation_s,
        "mfu": _utilization(trial, step_s["p50"], device, world_size) if step_s and on_gpu else None,
    }


def _utilization(trial: Trial, step_s: float, device: torch.device, world_size: int) -> float | None:
    per_token, name = flops_per_token(trial.model, trial.sequence_length), torch.cuda.get_device_name(device)
    return model_flops_utilization(
        per_token, trial.batch_tokens / step_s, trial.product_precision, name, world_size
    )
