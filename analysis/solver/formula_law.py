"""A law that is any formula over columns, with the steps of its derivatives (:mod:`formula.steps`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.formula.grammar import MOST_PARAMETERS, Formula, Range
from scalevec.analysis.formula.steps import FormulaSteps
from scalevec.analysis.laws import Law, Parameters

NEAR_BOUND = 1e-3
"""How near to a bound a search begins, as a share of the bound or of what lies between two."""
MOST_STEPS = 1_500
"""Steps that value and derivatives may take: more than any law, few enough for a fit within a second."""


def _sigmoid(values: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-np.logaddexp(0.0, -values)))


def _power(base: FloatArray, exponent: FloatArray) -> FloatArray:
    return np.asarray(1.0 / base if exponent == -1 else base**exponent)


_OPERATIONS: dict[str, Any] = {
    "+": np.add,
    "*": np.multiply,
    "^": _power,
    "exp": np.exp,
    "log": np.log,
    "max": np.maximum,
    "sigmoid": _sigmoid,
    "step": lambda a: (a >= 0).astype(float),
}


def computed(
    steps: FormulaSteps, places: Sequence[int], known: dict[int, Any], names: Mapping[str, Any]
) -> None:
    """Put the values of the steps at ``places`` that are not ``known`` into it; names have ``names``."""
    with np.errstate(all="ignore"):
        for index in places:
            if index in known:
                continue
            operation, first, second = steps.steps[index]
            if operation in ("number", "name"):
                known[index] = np.float64(first) if operation == "number" else names[str(first)]
            elif second < 0:
                known[index] = _OPERATIONS[operation](known[int(first)])
            else:
                known[index] = _OPERATIONS[operation](known[int(first)], known[second])


@dataclass(frozen=True)
class FormulaLaw(Law):
    """A law as its user writes it; y and the columns have the units of the table.

    ``base`` is the law of ours of which it is a form with fixed or bounded parameters.
    """

    written: Formula = field(kw_only=True)
    base: Law | None = field(default=None, kw_only=True)

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns of the formula, N, D, C and x among them."""
        listed = self.written.columns or ()
        return tuple(name for name in self.written.names if name in listed or name in ("N", "D", "C", "x"))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that are no columns and are fitted."""
        known = (*self.variables, *self.fixed)
        return tuple(name for name in self.written.names if name not in known)

    @property
    def fixed(self) -> Mapping[str, float]:
        """The values of the parameters that are not fitted."""
        return self.written.fix

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Between what parameters lie; those above zero among them."""
        positive = dict.fromkeys(self.written.positive or (), (0.0, np.inf))
        return {
            name: ends
            for name, ends in {**positive, **self.written.bounds}.items()
            if name in self.parameters
        }

    @property
    def inner(self) -> tuple[str, ...]:
        """The parameters."""
        return self.parameters

    @property
    def positive(self) -> tuple[str, ...]:
        """The parameters that are never below zero."""
        return tuple(name for name, (low, _) in self.ranges.items() if low >= 0)

    @property
    def logarithmic(self) -> tuple[str, ...]:
        """The parameters whose intervals are symmetric in the logarithm."""
        of_base = self.base.logarithmic if self.base and self.base.terms else None
        return tuple(name for name in self.positive if name != "E" and (of_base is None or name in of_base))

    @property
    def formula(self) -> str:
        """The law as text."""
        return self.base.formula if self.base else f"{self.output} = {self.written.body}"

    @property
    def units(self) -> dict[str, str]:
        """Those of its base; a formula's own follow from those of the columns, and none is stated."""
        of_base = self.base.units if self.base else {}
        return {name: of_base.get(name, "none") for name in (*self.parameters, *self.fixed)}

    def predict(self, parameters: Parameters, variables: Mapping[str, FloatArray]) -> FloatArray:
        """y at ``variables`` (each [points])."""
        steps, root, known = self.written.steps, self.written.root, dict[int, Any]()
        computed(steps, steps.needed(root), known, {**self.constants, **parameters, **variables})
        shape = np.broadcast_shapes(*(np.shape(values) for values in variables.values()), known[root].shape)
        return np.asarray(np.broadcast_to(known[root], shape))

    @property
    def constants(self) -> dict[str, Any]:
        """The values of the parameters that are not fitted, as the steps take them."""
        return {name: np.float64(value) for name, value in self.fixed.items()}

    def leaves_free(self, variable: str) -> str:
        """The parameters that go with ``variable``."""
        return f"what goes with {variable}"


def formula_law(name: str, formula: Formula, source: str, base: Law | None = None) -> FormulaLaw:
    """Return the law ``formula``, a form of ``base`` where there is one.

    Raises :class:`DataError` for one without columns, with too many parameters, or too complex.
    """
    law = FormulaLaw(name, (), source, written=formula, base=base)
    if not law.variables:
        raise formula.refuse(0, "it has no column; N, D, C, x and the columns of the table are columns")
    if not 1 <= len(law.parameters) <= MOST_PARAMETERS:
        raise formula.refuse(0, f"it has {len(law.parameters)} parameters; allowed: 1 to {MOST_PARAMETERS}")
    named = {
        "positive": formula.positive or (),
        **{c: getattr(formula, c) for c in ("start", "fix", "bounds")},
    }
    for clause, names in named.items():
        if columns := [name for name in names if name in law.variables]:
            raise formula.refuse(formula.text.index(clause), f"{columns[0]} is a column, no parameter")
    if low := [name for name in law.positive if formula.start.get(name, 1.0) <= 0]:
        raise formula.refuse(
            formula.text.rindex("start"), f"{low[0]} is positive, but starts at zero or below"
        )
    derivatives(law, dict.fromkeys(law.parameters, 1.0))
    return law


@dataclass(frozen=True)
class Derivatives:
    """The steps of f by theta: its value, its first and its nonzero second derivatives."""

    steps: FormulaSteps
    value: int
    first: tuple[int, ...]
    second: Mapping[tuple[int, int], int]

    @cached_property
    def of_value(self) -> list[int]:
        """The steps of the value."""
        return self.steps.needed(self.value)

    @cached_property
    def of_all(self) -> list[int]:
        """The steps of the value and all derivatives."""
        return self.steps.needed(self.value, *self.first, *self.second.values())


def derivatives(law: FormulaLaw, scale: Mapping[str, float]) -> Derivatives:
    """By theta, which is p / ``scale`` for a parameter p without bounds; ln p for one above zero.

    Raises :class:`DataError` where they take more than :data:`MOST_STEPS`.
    """
    steps, written = FormulaSteps(), law.written
    values = {name: _bounded(steps, name, scale[name], law.ranges.get(name)) for name in law.parameters}
    values |= {name: steps.number(value) for name, value in law.fixed.items()}
    value = written.steps.replaced(written.root, values, steps)
    first, second = [], {}
    for i, name in enumerate(law.parameters):
        first.append(steps.derivative(value, name))
        for j, other in enumerate(law.parameters[: i + 1]):
            if not is_zero(steps, index := steps.derivative(first[i], other)):
                second[i, j] = index
            if len(steps.steps) > MOST_STEPS:
                raise written.refuse(0, "it is too complex: its derivatives take too many steps")
    return Derivatives(steps, value, tuple(first), second)


def _bounded(steps: FormulaSteps, name: str, scale: float, ends: Range | None) -> int:
    """The parameter ``name`` by its theta."""
    theta = steps.name(name)
    if ends is None:
        return steps.times(steps.number(scale), theta)
    low, high = ends
    if high == np.inf:
        return steps.add(steps.number(low), steps.exp(theta))
    if low == -np.inf:
        return steps.add(steps.number(high), steps.minus(steps.exp(theta)))
    return steps.add(steps.number(low), steps.times(steps.number(high - low), steps.call("sigmoid", theta)))


def of_theta(theta: FloatArray, scale: float, ends: Range | None) -> FloatArray:
    """The values of a parameter by its ``theta``, as :func:`derivatives` writes it."""
    steps, known = FormulaSteps(), dict[int, Any]()
    value = _bounded(steps, "theta", scale, ends)
    computed(steps, steps.needed(value), known, {"theta": np.clip(theta, -700, 700) if ends else theta})
    return np.asarray(known[value])


def theta_of(values: FloatArray, scale: float, ends: Range | None) -> FloatArray:
    """theta of a parameter's ``values``; those beyond its bounds begin a little inside."""
    if ends is None:
        return values / scale
    low, high = ends
    if high == np.inf or low == -np.inf:
        inside = values - low if high == np.inf else high - values
        least = NEAR_BOUND * abs(low if high == np.inf else high)
        return np.log(np.maximum(inside, least) if least else inside)
    share = np.clip((values - low) / (high - low), NEAR_BOUND, 1 - NEAR_BOUND)
    return np.asarray(np.log(share / (1 - share)))


def is_zero(steps: FormulaSteps, index: int) -> bool:
    """Whether the step at ``index`` is the number zero."""
    return steps.steps[index] == ("number", 0.0, -1)
