"""How far a run has come, and whether it is beyond hope."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from scalevec.model.config import Trial
from scalevec.model.train.checkpoint import Checkpoint

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
    """Whether its blocks are compiled; checkpoints that do not say so are from before that could be."""

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
        names = {field.name for field in fields(cls)} & checkpoint.facts.keys()
        kept = {name: checkpoint.facts[name] for name in names}
        losses = deque(checkpoint.facts["recent_losses"], maxlen=DIVERGENCE_WINDOW)
        # Checkpoints from before there were trunks have no trunk_step.
        return cls(step=checkpoint.step, **{**kept, "recent_losses": losses})


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
