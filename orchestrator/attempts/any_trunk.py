"""The trunk of any trial (``model.identity``): those of foreign trainers have none."""

from collections import Counter
from collections.abc import Mapping

from scalevec.model import identity
from scalevec.sweeps.trainers.any_trial import AnyTrial
from scalevec.sweeps.trainers.foreign_trial import ForeignTrial


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
