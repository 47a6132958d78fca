"""Learning-rate schedules: the factor on the peak rate, as a function of the tokens trained so far."""

import math
from collections.abc import Callable

from model.config import Trial

Schedule = Callable[[float, float], float]
"""(progress after the warm-up in (0, 1], final fraction) -> factor on the peak rate."""


def cosine(progress: float, final_fraction: float) -> float:
    """Half a cosine from 1 down to ``final_fraction``."""
    return final_fraction + (1 - final_fraction) * 0.5 * (1 + math.cos(math.pi * progress))


def warmup_stable_decay(progress: float, final_fraction: float) -> float:
    """1 until the cooldown, of which ``progress`` is the share that is done; then linear."""
    return 1 - (1 - final_fraction) * progress


SCHEDULES: dict[str, Schedule] = {"cosine": cosine, "wsd": warmup_stable_decay}


def learning_rate(trial: Trial, step: int) -> float:
    """The learning rate of optimizer step ``step`` (counted from 0), linear during the warm-up.

    The last step of the warm-up has the peak rate, the last step of all has the final one.
    """
    peak, schedule = trial.optimizer.learning_rate, trial.schedule
    tokens = (step + 1) * trial.batch_tokens
    if tokens <= schedule.warmup_tokens:
        return peak * tokens / schedule.warmup_tokens
    progress = (tokens - schedule.warmup_tokens) / (trial.tokens - schedule.warmup_tokens)
    if schedule.name == "wsd":
        cooldown = schedule.cooldown_fraction * trial.tokens
        progress = max(0.0, tokens - (trial.tokens - cooldown)) / cooldown
        if schedule.cooldown == "1-sqrt":
            progress = math.sqrt(progress)
    return peak * SCHEDULES[schedule.name](progress, schedule.final_fraction)
