"""Looks at a growing sample: boundaries that spend one alpha over all of them.

A test repeated at each look at its full level finds something more often than it should; the boundaries of a
group sequential design share the level out. ``alpha t^1.5`` is spent by the share ``t`` of the last look's
sample, two-sided (Kim and DeMets 1987). The boundaries follow from it by recursive integration over the
statistic's path (Armitage, McPherson and Rowe 1969). Here a p-value is compared with the boundary's own
(nominal) p, whatever t distribution it came from (Jennison and Turnbull 2000, section 3.8).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from scalevec.analysis.data.tidy import FloatArray

_NODES = 96
"""Gauss-Legendre nodes of each integral; the tests compare the boundaries with another integral."""
_FURTHEST = 8.2
"""Standard deviations beyond which double precision holds no probability."""
_SMALLEST_ALPHA = 1e-12


@cache
def nominal(looks: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """Return the two-sided p-value to be undercut at each look, for ``alpha`` over all of them.

    Args:
        looks: Sizes of the sample at the looks, increasing; only their ratios to the last count.
        alpha: The two-sided level of the whole design, between 0 and 1.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    shares = [look / looks[-1] for look in looks]
    p_values: list[float] = []
    at, density = np.zeros(1), np.ones(1)  # where the path may be so far: weights times its density
    for number, share in enumerate(shares):
        before = shares[number - 1] if number else 0.0
        to_spend = alpha * (share**1.5 - before**1.5) / 2
        step, scale = np.sqrt(share - before), np.sqrt(share)

        def too_much(bound: float) -> float:
            return float(density @ ndtr((at - bound * scale) / step) - to_spend)  # noqa: B023 (called at once)

        bound = float(brentq(too_much, 0.0, _FURTHEST)) if too_much(_FURTHEST) < 0 else _FURTHEST
        p_values.append(float(2 * ndtr(-bound)))
        at, density = _carried_on(at, density, bound * scale, step)
    return tuple(p_values)


def _carried_on(
    at: FloatArray, density: FloatArray, edge: float, step: float
) -> tuple[FloatArray, FloatArray]:
    """The paths that are still between ``-edge`` and ``edge`` one look later: places, weighted density."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    places = edge * nodes
    kernel = np.exp(-0.5 * ((places[:, None] - at) / step) ** 2) / (step * np.sqrt(2 * np.pi))
    return places, edge * weights * (kernel @ density)


@dataclass(frozen=True)
class Look:
    """A look of a declared design: the ``number`` th (from 0) of ``looks``, sizes of the sample."""

    looks: tuple[int, ...]
    number: int
    p: float | None
    """The sequential p-value: the smallest level at which a look so far would have found a difference."""

    @property
    def size(self) -> int:
        """The size of the sample at this look."""
        return self.looks[self.number]

    @property
    def is_last(self) -> bool:
        """Whether no further look is declared."""
        return self.number == len(self.looks) - 1

    def level(self, level: float) -> float:
        """The level of this look's interval, so that those of all looks hold together with ``level``."""
        return 1 - nominal(self.looks, 1 - level)[self.number]


def sequential_p(looks: tuple[int, ...], p_values: Sequence[float | None]) -> float | None:
    """Return the smallest alpha at which one of the first looks undercuts its nominal p-value.

    With it Holm's correction stays valid over several arms (Liu and Anderson 2008).

    Args:
        looks: All declared looks.
        p_values: The two-sided p-values at the looks so far; None where there is no noise figure.
    """
    from scipy.optimize import brentq

    seen = [(number, p) for number, p in enumerate(p_values) if p is not None]
    if not seen:
        return None

    def margin(log_alpha: float) -> float:
        bounds = nominal(looks, float(np.exp(log_alpha)))
        return max(bounds[number] - p for number, p in seen)

    low, high = np.log(_SMALLEST_ALPHA), np.log(1 - 1e-9)
    if margin(high) <= 0:
        return 1.0
    if margin(low) >= 0:
        return _SMALLEST_ALPHA
    return float(np.exp(brentq(margin, low, high, xtol=1e-9)))
