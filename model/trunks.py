"""Trunks: the part of a run before its cooldown, which it has in common with runs of other token budgets.

Until its cooldown begins, nothing of such a run depends on its budget: not the learning rate (the warm-up is
counted in tokens), not the order of the data. So trials of one trunk are in the same state, bit for bit on
one machine, after each step that all of them take before their cooldowns.
"""

from bisect import bisect_left
from dataclasses import replace

from scalevec.model.config import Trial
from scalevec.model.identity import digest, semantic_fields
from scalevec.model.schedules import learning_rate

_FAR = 1_000_000
"""A budget so many times as large cools down later, if at all."""


def trunk_id(trial: Trial) -> str | None:
    """SHA-256 of what decides the bits of ``trial`` before its cooldown; None where there is no such part.

    The identity of the trial without its tokens and without what only its cooldown uses.
    """
    course = trial.schedule.registered.course
    if course is None or branch_step(trial) == 0:
        return None
    fields = semantic_fields(trial)
    del fields["tokens"]
    return digest({**fields, "schedule": {"course": course, "warmup_tokens": trial.schedule.warmup_tokens}})


def branch_step(trial: Trial) -> int:
    """How many of the first steps of ``trial`` do not depend on its budget; 0 where it has no trunk.

    The schedule itself is asked, at this budget and at a far larger one. The last step, whose row of metrics
    is fuller, always counts as the trial's own.
    """
    if trial.schedule.registered.course is None:
        return 0
    longer = replace(trial, tokens=trial.tokens * _FAR)

    def depends(step: int) -> bool:
        return learning_rate(trial, step) != learning_rate(longer, step)

    return bisect_left(range(trial.steps - 1), True, key=depends)
