"""The axis along which a tuned field is sought: where its optimum is a parabola's, and how a grid goes on.

``log``, the logarithm of the value: rates, decay, counts and whatever else is positive.
``log(1-x)``, the logarithm of what is missing to one: betas and momentum, zero among them.
``linear``, the value itself: where the grid holds a zero, which has no logarithm (no decay, no warm-up).
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from scalevec.sweeps.fields import FIELD_TYPES

LOG, LOG_ONE_MINUS, LINEAR = "log", "log(1-x)", "linear"

AVERAGES = ("beta1", "beta2", "beta3", "momentum")
"""Fields whose distance from one counts: it is the inverse of the steps that they average over."""
SHARES = ("warmup_fraction", "cooldown_fraction", "final_fraction")
"""Fields that are at most one."""
STEPS = 4
"""A value is rounded to this many steps to a factor of two, on a linear axis to a step of the grid."""


def axis_of(field: str, grid: Sequence[float]) -> str:
    """The axis on which the values ``grid`` of ``field`` are equally spaced, if they are."""
    if field in AVERAGES:
        return LOG_ONE_MINUS
    return LINEAR if 0 in grid else LOG


def is_whole(field: str, grid: Sequence[float]) -> bool:
    """Whether ``field`` is a whole number: it is chosen among the values that were tried, its ``grid``.

    A foreign trainer's own field is one where the grid holds whole numbers as such.
    """
    return FIELD_TYPES.get(field) is int or any(type(value) is int for value in grid)


def position_on(axis: str, value: float) -> float:
    """Where ``value`` is on ``axis``, ascending with the value."""
    if axis == LOG_ONE_MINUS:
        return -math.log1p(-value)
    return math.log(value) if axis == LOG else float(value)


def value_at(axis: str, position: float) -> float:
    """The value at a ``position`` on ``axis``, none below zero."""
    if axis == LOG_ONE_MINUS:
        return max(0.0, -math.expm1(-position))
    return math.exp(position) if axis == LOG else max(0.0, position)


def rounded(axis: str, value: float, grid: Sequence[float]) -> float:
    """``value`` to the nearest power of 2^(1/4), what is missing to one likewise; linear: to a quarter step.

    The step is the smallest one of ``grid``.
    """
    if axis == LOG:
        return float(2.0 ** (round(STEPS * math.log2(value)) / STEPS))
    if axis == LOG_ONE_MINUS:
        return 0.0 if value <= 0 else 1.0 - rounded(LOG, 1.0 - value, grid)
    step = min(high - low for low, high in pairwise(grid)) / STEPS
    return float(f"{round(value / step) * step:.12g}")


def beyond(field: str, grid: Sequence[float], edge: float) -> float | None:
    """The next value outside an ascending ``grid`` at its ``edge``, as far as the last step there.

    None where the edge is the end of what the field can be.
    """
    axis = axis_of(field, grid)
    inner = grid[1] if edge == grid[0] else grid[-2]
    if axis == LOG:  # as a product, which keeps round numbers round
        value = edge * edge / inner
    else:
        value = value_at(axis, 2 * position_on(axis, edge) - position_on(axis, inner))
        value = float(f"{value:.12g}")
    if field in SHARES:
        value = min(value, 1.0)
    if is_whole(field, grid):
        value = float(round(value))
    return None if value == edge else value
