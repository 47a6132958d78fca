"""A law that is any formula over columns, with the steps of its derivatives (:mod:`analysis.formula`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.formula import MOST_PARAMETERS, Formula, FormulaSteps
from scalevec.analysis.laws import Law, Parameters

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
    """A law as its user writes it; y and the columns have the units of the table."""

    written: Formula = field(kw_only=True)

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns of the formula, N, D, C and x among them."""
        listed = self.written.columns or ()
        return tuple(name for name in self.written.names if name in listed or name in ("N", "D", "C", "x"))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that are no columns."""
        return tuple(name for name in self.written.names if name not in self.variables)

    @property
    def inner(self) -> tuple[str, ...]:
        """The parameters."""
        return self.parameters

    @property
    def positive(self) -> tuple[str, ...]:
        """The parameters above zero, which the solver holds as logarithms."""
        return tuple(name for name in self.parameters if name in (self.written.positive or ()))

    @property
    def logarithmic(self) -> tuple[str, ...]:
        """The parameters whose intervals are symmetric in the logarithm."""
        return tuple(name for name in self.positive if name != "E")

    @property
    def formula(self) -> str:
        """The law as text."""
        return f"{self.output} = {self.written.body}"

    @property
    def units(self) -> dict[str, str]:
        """None is stated: units follow from those of the columns, which the formula does not know."""
        return dict.fromkeys(self.parameters, "none")

    def predict(self, parameters: Parameters, variables: Mapping[str, FloatArray]) -> FloatArray:
        """y at ``variables`` (each [points])."""
        steps, root, known = self.written.steps, self.written.root, dict[int, Any]()
        computed(steps, steps.needed(root), known, {**parameters, **variables})
        shape = np.broadcast_shapes(*(np.shape(values) for values in variables.values()), known[root].shape)
        return np.asarray(np.broadcast_to(known[root], shape))

    def leaves_free(self, variable: str) -> str:
        """The parameters that go with ``variable``."""
        return f"what goes with {variable}"


def formula_law(name: str, formula: Formula, source: str) -> FormulaLaw:
    """Return the law ``formula``.

    Raises :class:`DataError` for one without columns, with too many parameters, or too complex.
    """
    law = FormulaLaw(name, (), source, written=formula)
    if not law.variables:
        raise formula.refuse(0, "it has no column; N, D, C, x and the columns of the table are columns")
    if not 1 <= len(law.parameters) <= MOST_PARAMETERS:
        raise formula.refuse(0, f"it has {len(law.parameters)} parameters; allowed: 1 to {MOST_PARAMETERS}")
    for clause, names in (("positive", formula.positive or ()), ("start", formula.start)):
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
    """By theta, which is ln p for a positive parameter p and p / ``scale`` for another.

    Raises :class:`DataError` where they take more than :data:`MOST_STEPS`.
    """
    steps, written = FormulaSteps(), law.written
    values = {
        name: steps.exp(steps.name(name))
        if name in law.positive
        else steps.times(steps.number(scale[name]), steps.name(name))
        for name in law.parameters
    }
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


def is_zero(steps: FormulaSteps, index: int) -> bool:
    """Whether the step at ``index`` is the number zero."""
    return steps.steps[index] == ("number", 0.0, -1)
