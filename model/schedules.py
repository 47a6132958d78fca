"""Learning-rate schedules, and the trunks that trials of one course share."""

import math
from bisect import bisect_left
from dataclasses import replace

from scalevec.model.config import Trial
from scalevec.model.identity import digest, semantic_fields
from scalevec.model.optimization import imported


def cosine(trial: Trial, tokens: int) -> float:
    """Half a cosine from 1 at the end of the warm-up down to ``final_fraction`` (arXiv 1608.03983)."""
    final = trial.schedule.number("final_fraction")
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * _progress(trial, tokens)))


def linear(trial: Trial, tokens: int) -> float:
    """A line from 1 at the end of the warm-up down to ``final_fraction``."""
    return _down_to(trial.schedule.number("final_fraction"), _progress(trial, tokens))


def constant(trial: Trial, tokens: int) -> float:  # noqa: ARG001 (one signature for all)
    """1 from the end of the warm-up on."""
    return 1.0


def inverse_sqrt(trial: Trial, tokens: int) -> float:
    """The root of the warm-up's tokens over the tokens so far (arXiv 1706.03762), whatever the budget."""
    return math.sqrt(trial.schedule.warmup_tokens / tokens)


def wsd(trial: Trial, tokens: int) -> float:
    """Warm-up, stable, decay: 1, until the cooldown over the last tokens (arXiv 2404.06395, 2405.18392).

    With p the share of the cooldown that is done, the way down to ``final_fraction`` is ``linear`` (1 - p)
    or ``1-sqrt`` (1 - sqrt(p)).
    """
    start = trial.tokens - trial.cooldown_tokens
    if tokens <= start:
        return 1.0
    share = (tokens - start) / trial.cooldown_tokens
    return _down_to(
        trial.schedule.number("final_fraction"),
        share if trial.schedule.option("cooldown") == "linear" else math.sqrt(share),
    )


def learning_rate(trial: Trial, step: int) -> float:
    """The learning rate of optimizer step ``step`` (counted from 0), linear during the warm-up.

    The last step of the warm-up has the peak rate, the last step of all has the final one.
    """
    peak, warmup = trial.optimizer.learning_rate, trial.schedule.warmup_tokens
    tokens = (step + 1) * trial.batch_tokens
    if tokens <= warmup:
        return peak * tokens / warmup
    registered = trial.schedule.registered
    keywords = trial.schedule.keywords(registered.options)
    factor: float = imported(registered.factory)(trial, tokens, **keywords)
    return peak * factor


def _progress(trial: Trial, tokens: int) -> float:
    """The share of the tokens after the warm-up that is done."""
    warmup = trial.schedule.warmup_tokens
    return (tokens - warmup) / (trial.tokens - warmup)


def _down_to(final: float, share: float) -> float:
    """A line from 1 to ``final`` at ``share`` of its way; exact at both ends."""
    return final + (1 - final) * (1 - share)


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
