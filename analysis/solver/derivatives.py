"""A law by theta, what the solver changes, with its first and second derivatives as steps.

theta is ln p of a parameter p that is above zero, a logistic coordinate between two bounds, and p in units of
its size otherwise. The coefficient of a power term has its logarithm at the middle of the variable's range,
so that it hardly depends on the exponent. What depends on the points (these units, the middles, fixed values)
are names, so that the derivatives of a law are made once.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from scalevec.analysis.formula.formula import Builder, Range
from scalevec.analysis.formula.steps import FormulaSteps
from scalevec.analysis.laws import Law

MOST_STEPS = 1_500
"""Steps that value and derivatives may take: more than any law, few enough for a fit within a second."""


@dataclass(frozen=True, eq=False)
class Derivatives:
    """The steps of f by theta: its value, its first and its nonzero second derivatives.

    ``names`` are (parameter, arm) of the columns of theta, ``places`` their steps.
    """

    steps: FormulaSteps
    names: tuple[tuple[str, int], ...]
    places: tuple[int, ...]
    value: int
    first: tuple[int, ...]
    second: Mapping[tuple[int, int], int]

    @cached_property
    def of_value(self) -> list[int]:
        """The steps of the value."""
        return self.steps.needed(self.value)

    @cached_property
    def of_first(self) -> list[int]:
        """The steps of the value and the first derivatives."""
        return self.steps.needed(self.value, *self.first)

    @cached_property
    def of_all(self) -> list[int]:
        """The steps of the value and all derivatives."""
        return self.steps.needed(self.value, *self.first, *self.second.values())


def derivatives(law: Law, per_arm: Sequence[str] = (), n_arms: int = 1) -> Derivatives:
    """The derivatives of ``law``; in a joint fit ``per_arm`` have a value for each of ``n_arms``.

    Raises :class:`DataError` where they take more than :data:`MOST_STEPS`.
    """
    given = tuple((name, 0.0) for name in law.fixed)  # their values are names, as all that may differ
    return _derivatives(replace(law, name="", given=given), tuple(per_arm), n_arms)


@functools.lru_cache(maxsize=128)
def _derivatives(law: Law, per_arm: tuple[str, ...], n_arms: int) -> Derivatives:
    steps, parameters = FormulaSteps(), law.parameters
    names = [(n, arm) for n in parameters for arm in range(n_arms if n in per_arm else 1)]
    thetas = {column: steps.name(f"theta {column[0]} {column[1]}") for column in names}
    values: dict[str, int] = {}
    middles = {term.coefficient: term for term in law.written.terms if term.coefficient in law.positive}
    # An exponent comes before the coefficient that is centred by it.
    for parameter in sorted(parameters, key=lambda n: n in middles):
        theta = thetas[parameter, 0]
        if parameter in per_arm:
            arms = range(n_arms)
            parts = [steps.times(steps.name(f"in arm {arm}"), thetas[parameter, arm]) for arm in arms]
            theta = functools.reduce(steps.add, parts)
        term = middles.get(parameter)
        if term and term.variable and parameter not in law.written.bounds:
            exponent = steps.number(1.0)
            if term.exponent:
                exponent = values.get(term.exponent, steps.name(term.exponent))
            shift = steps.times(steps.name(f"middle {term.variable}"), exponent)
            theta = steps.add(theta, steps.minus(shift) if term.rising else shift)
        values[parameter] = bounded(steps, theta, f"size {parameter}", law.ranges.get(parameter))
    value = Builder(law.written.expression, steps, values).step(law.written.expression.tree)
    first, second = [], {}
    for i, (name_i, arm_i) in enumerate(names):
        first.append(steps.derivative(value, f"theta {name_i} {arm_i}"))
        for j, (name_j, arm_j) in enumerate(names[: i + 1]):
            # A point belongs to one arm: what two arms have of their own never meets.
            apart = name_i in per_arm and name_j in per_arm and arm_i != arm_j
            index = steps.number(0.0) if apart else steps.derivative(first[i], f"theta {name_j} {arm_j}")
            if not steps.is_zero(index):
                second[i, j] = index
            if len(steps.steps) > MOST_STEPS * n_arms:
                raise law.written.refuse(0, "it is too complex: its derivatives take too many steps")
    return Derivatives(steps, tuple(names), tuple(thetas.values()), value, tuple(first), second)


def bounded(steps: FormulaSteps, theta: int, size: str, ends: Range | None) -> int:
    """The parameter by its ``theta``; ``size`` names its unit where it has no bounds."""
    if ends is None:
        return steps.times(steps.name(size), theta)
    low, high = ends
    if high == float("inf"):
        return steps.add(steps.number(low), steps.exp(theta))
    if low == -float("inf"):
        return steps.add(steps.number(high), steps.minus(steps.exp(theta)))
    return steps.add(steps.number(low), steps.times(steps.number(high - low), steps.call("sigmoid", theta)))
