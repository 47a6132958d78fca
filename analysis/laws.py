"""The registry of scaling laws: sums of a constant and power terms, L = E + A / x^alpha + ...

Every law here is a sum of terms ``coefficient / variable^exponent``, so ``ln L`` is a log-sum-exp of
forms that are linear in (ln coefficient, exponent), and value, gradient and Hessian follow from the
list of terms alone. A new law of this kind is one line in :data:`LAWS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.data import FloatArray, require_choice

VARIABLES = {"N": "parameters", "D": "tokens", "C": "FLOPs"}


@dataclass(frozen=True)
class Term:
    """``coefficient / variable^exponent``; without a variable the coefficient alone, a constant.

    ``variable`` is N (parameters), D (tokens), or x, for which the user chooses N, D or C.
    """

    coefficient: str
    variable: str | None = None
    exponent: str | None = None


@dataclass(frozen=True)
class Law:
    """A functional form. Losses and the irreducible loss E are in nats a token; exponents have no unit."""

    name: str
    terms: tuple[Term, ...]
    source: str

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, each term's coefficient followed by its exponent."""
        names = [name for term in self.terms for name in (term.coefficient, term.exponent)]
        return tuple(name for name in names if name is not None)

    @property
    def exponents(self) -> tuple[str, ...]:
        """Names of the exponents."""
        return tuple(term.exponent for term in self.terms if term.exponent)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that the law needs, of N, D, x."""
        return tuple(dict.fromkeys(term.variable for term in self.terms if term.variable))

    @property
    def formula(self) -> str:
        """The law as text, ``L = E + A/x^alpha``."""
        parts = [t.coefficient + (f"/{t.variable}^{t.exponent}" if t.variable else "") for t in self.terms]
        return "L = " + " + ".join(parts)

    def predict(self, parameters: Mapping[str, float], variables: Mapping[str, FloatArray]) -> FloatArray:
        """Loss [points] in nats a token at ``variables`` (each [points]; units: counts and FLOPs)."""
        return np.asarray(np.sum(self._values(parameters, variables), axis=0))

    def gradient(self, parameters: Mapping[str, float], variables: Mapping[str, FloatArray]) -> FloatArray:
        """d loss / d parameter [points, parameters], in the order of :attr:`parameters`."""
        columns: list[FloatArray] = []
        for term, value in zip(self.terms, self._values(parameters, variables), strict=True):
            columns.append(value / parameters[term.coefficient])
            if term.variable:
                columns.append(-value * np.log(variables[term.variable]))
        return np.stack(columns, axis=-1)

    def _values(
        self, parameters: Mapping[str, float], variables: Mapping[str, FloatArray]
    ) -> list[FloatArray]:
        shape = np.shape(next(iter(variables.values())))
        return [
            parameters[term.coefficient] * np.asarray(variables[term.variable]) ** -parameters[term.exponent]
            if term.variable and term.exponent
            else np.full(shape, parameters[term.coefficient])
            for term in self.terms
        ]


_FLOOR = Term("E")
_POWER = Term("A", "x", "alpha")
LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        Law("power", (_POWER,), "Kaplan et al. 2020, arXiv 2001.08361, eq. 1.1"),
        Law("power-floor", (_FLOOR, _POWER), "Henighan et al. 2020, arXiv 2010.14701, eq. 1.1"),
        Law(
            "chinchilla",
            (_FLOOR, Term("A", "N", "alpha"), Term("B", "D", "beta")),
            "Hoffmann et al. 2022, arXiv 2203.15556, eq. 2",
        ),
    )
}


def law_named(name: str) -> Law:
    """The law called ``name``; raises :class:`analysis.data.DataError` that lists the laws."""
    require_choice("law", name, LAWS)
    return LAWS[name]
