"""The learning rate along a trial: factors on the peak rate, each named by an entry of ``SCHEDULES``."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from scalevec.model.fields import ConfigurationError
from scalevec.model.optimization import imported

if TYPE_CHECKING:
    from scalevec.model.config import Trial


def cosine(trial: "Trial", tokens: int) -> float:
    """Half a cosine from 1 at the end of the warm-up down to ``final_fraction`` (arXiv 1608.03983)."""
    final = trial.schedule.number("final_fraction")
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * _progress(trial, tokens)))


def linear(trial: "Trial", tokens: int) -> float:
    """A line from 1 at the end of the warm-up down to ``final_fraction``."""
    return _down_to(trial.schedule.number("final_fraction"), _progress(trial, tokens))


def constant(trial: "Trial", tokens: int) -> float:  # noqa: ARG001 (one signature for all)
    """1 from the end of the warm-up on."""
    return 1.0


def inverse_sqrt(trial: "Trial", tokens: int) -> float:
    """The root of the warm-up's tokens over the tokens so far (arXiv 1706.03762), whatever the budget."""
    return math.sqrt(trial.schedule.warmup_tokens / tokens)


def wsd(trial: "Trial", tokens: int) -> float:
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


def learning_rate(trial: "Trial", step: int) -> float:
    """The learning rate of optimizer step ``step`` (counted from 0), linear during the warm-up.

    The last step of the warm-up has the peak rate, the last step of all has the final one.
    """
    peak, warmup = trial.optimizer.learning_rate, trial.schedule.warmup_tokens
    tokens = (step + 1) * trial.batch_tokens
    if tokens <= warmup:
        return peak * tokens / warmup
    schedule: Callable[..., float] = imported(trial.schedule.registered.factory)
    factor = schedule(trial, tokens, **trial.schedule.keywords())
    if not 0 <= factor < math.inf:  # a NaN too
        raise ConfigurationError("schedule", trial.schedule.name, f"factors of zero or more, not {factor}")
    return peak * factor


def _progress(trial: "Trial", tokens: int) -> float:
    """The share of the tokens after the warm-up that is done."""
    warmup = trial.schedule.warmup_tokens
    return (tokens - warmup) / (trial.tokens - warmup)


def _down_to(final: float, share: float) -> float:
    """A line from 1 to ``final`` at ``share`` of its way; exact at both ends."""
    return final + (1 - final) * (1 - share)
