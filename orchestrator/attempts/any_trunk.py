"""The trunk of any trial (``model.trunks``): those of foreign trainers have none."""

from scalevec.model import trunks
from scalevec.sweeps.trainers.any_trial import AnyTrial
from scalevec.sweeps.trainers.foreign_trial import ForeignTrial


def trunk_id(trial: AnyTrial) -> str | None:
    """The trunk that ``trial`` may share (``model.trunks``); a foreign trainer's has none."""
    return None if isinstance(trial, ForeignTrial) else trunks.trunk_id(trial)


def branch_step(trial: AnyTrial) -> int:
    """The steps of ``trial`` that its trunk has; 0 where there is none."""
    return 0 if isinstance(trial, ForeignTrial) else trunks.branch_step(trial)
