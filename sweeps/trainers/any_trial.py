"""What the orchestrator asks of every trial, whoever trains it: its identity, its record and its trunk."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from scalevec.model import identity
from scalevec.model.config import Trial
from scalevec.sweeps.trainers.foreign_trial import ForeignTrial, foreign_trial, is_foreign

AnyTrial = Trial | ForeignTrial


def semantic_fields(trial: AnyTrial) -> dict[str, Any]:
    """The fields that make ``trial`` what it is, as plain JSON values."""
    return trial.semantic_fields() if isinstance(trial, ForeignTrial) else identity.semantic_fields(trial)


def trial_id(trial: AnyTrial) -> str:
    """SHA-256 (64 hexadecimal digits) of the canonical JSON of :func:`semantic_fields`."""
    return trial.trial_id if isinstance(trial, ForeignTrial) else identity.trial_id(trial)


def trial_from_fields(fields: dict[str, Any]) -> AnyTrial:
    """The trial that :func:`semantic_fields` described. Raises ``ConfigurationError``."""
    return foreign_trial(fields) if is_foreign(fields) else identity.trial_from_fields(fields)


def learning_rate(trial: AnyTrial) -> float | None:
    """The peak rate of ``trial``; None where a foreign trainer has none."""
    if not isinstance(trial, ForeignTrial):
        return trial.optimizer.learning_rate
    rate = trial.values.get("learning_rate")
    return float(rate) if isinstance(rate, int | float) else None


def batches(trial: AnyTrial) -> tuple[int, ...]:
    """What beside its size decides the cost of a trial: tokens of a batch and of a sequence, or its steps."""
    if isinstance(trial, ForeignTrial):
        return (trial.steps,)
    return trial.batch_tokens, trial.sequence_length


def ours(trial: AnyTrial) -> Trial:
    """A trial that we train, where no other can come."""
    assert isinstance(trial, Trial)
    return trial


def trunk_id(trial: AnyTrial) -> str | None:
    """The trunk that ``trial`` may share (``model.identity``); a foreign trainer's has none."""
    return None if isinstance(trial, ForeignTrial) else identity.trunk_id(trial)


def branch_step(trial: AnyTrial) -> int:
    """The steps of ``trial`` that its trunk has; 0 where there is none."""
    return 0 if isinstance(trial, ForeignTrial) else identity.branch_step(trial)


def shared_trunks(trials: Mapping[str, AnyTrial]) -> dict[str, str]:
    """The trunk of each trial (by its id) that shares it with another; the others are left out."""
    named = {name: trunk for name, trial in trials.items() if (trunk := trunk_id(trial))}
    counts = Counter(named.values())
    return {name: trunk for name, trunk in named.items() if counts[trunk] > 1}
