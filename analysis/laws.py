"""The registry of scaling laws, most of them sums of a constant and power terms, L = E + A / x^alpha + ...

A sum of terms ``coefficient / variable^exponent`` has an ``ln L`` that is a log-sum-exp of forms linear in
(ln coefficient, exponent), so value, gradient and Hessian follow from the list of terms alone: a new law of
this kind is one line in :data:`LAWS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.data import FloatArray, require_choice

VARIABLES = {"N": "parameters", "D": "tokens", "C": "FLOPs"}


@dataclass(frozen=True)
class Term:
    """``coefficient / variable^exponent``; without a variable the coefficient alone, a constant.

    ``variable`` is N (parameters), D (tokens), C (FLOPs), or x, for which the user chooses one of them. A
    variable without an exponent has exponent one; a ``rising`` term is coefficient x variable^exponent.
    """

    coefficient: str
    variable: str | None = None
    exponent: str | None = None
    rising: bool = False

    def value(self, parameters: Mapping[str, float], variables: Mapping[str, FloatArray]) -> FloatArray:
        """The term at ``variables``."""
        if self.variable is None:
            shape = np.shape(next(iter(variables.values())))
            return np.full(shape, parameters[self.coefficient])
        exponent = parameters[self.exponent] if self.exponent else 1.0
        sign = 1.0 if self.rising else -1.0
        return np.asarray(parameters[self.coefficient] * variables[self.variable] ** (sign * exponent))

    @property
    def formula(self) -> str:
        """The term as text."""
        if self.variable is None:
            return self.coefficient
        power = self.variable + (f"^{self.exponent}" if self.exponent else "")
        return f"{self.coefficient} {power}" if self.rising else f"{self.coefficient}/{power}"


@dataclass(frozen=True)
class Law:
    """A functional form. Losses and the irreducible loss E are in nats a token; exponents have no unit.

    ``own`` names the coefficients that each arm keeps for itself in a joint fit of several arms (all others
    are shared); ``method`` says what is fitted: the points themselves, or optima that are found first.
    """

    name: str
    terms: tuple[Term, ...]
    source: str
    own: tuple[str, ...] = ()
    method: str = "points"
    output: str = "L"

    @property
    def inner(self) -> tuple[str, ...]:
        """Names of the parameters of the terms: each coefficient followed by its exponent, each once."""
        names = [name for term in self.terms for name in (term.coefficient, term.exponent)]
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the published parameters."""
        return self.inner

    @property
    def power(self) -> str | None:
        """Name of an outer power over the sum of terms, if there is one."""
        return None

    @property
    def exponents(self) -> tuple[str, ...]:
        """Names of the exponents of the terms, each once."""
        return tuple(dict.fromkeys(term.exponent for term in self.terms if term.exponent))

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that the law needs, of N, D, C, x."""
        return tuple(dict.fromkeys(term.variable for term in self.terms if term.variable))

    @property
    def formula(self) -> str:
        """The law as text, ``L = E + A/x^alpha``."""
        return f"{self.output} = " + " + ".join(term.formula for term in self.terms)

    @property
    def units(self) -> dict[str, str]:
        """The unit of each parameter."""
        result = dict.fromkeys(self.exponents, "none")
        unit = "nats a token" if self.output == "L" else VARIABLES["N"]
        for term in self.terms:
            power = ""
            if term.variable:
                sign = "-" if term.rising else ""
                power = f" x {VARIABLES.get(term.variable, 'unit of x')}^{sign}{term.exponent}"
            result[term.coefficient] = unit + power
        return {name: result[name] for name in self.parameters}

    def predict(self, parameters: Mapping[str, float], variables: Mapping[str, FloatArray]) -> FloatArray:
        """Loss [points] in nats a token at ``variables`` (each [points]; units: counts and FLOPs)."""
        return np.asarray(np.sum([term.value(parameters, variables) for term in self.terms], axis=0))

    def gradient(self, parameters: Mapping[str, float], variables: Mapping[str, FloatArray]) -> FloatArray:
        """d loss / d parameter [points, parameters], in the order of :attr:`parameters`."""
        columns = {name: np.zeros(np.shape(next(iter(variables.values())))) for name in self.inner}
        for term in self.terms:
            value = term.value(parameters, variables)
            columns[term.coefficient] = columns[term.coefficient] + value / parameters[term.coefficient]
            if term.variable and term.exponent:
                sign = 1.0 if term.rising else -1.0
                columns[term.exponent] = columns[term.exponent] + sign * value * np.log(
                    variables[term.variable]
                )
        return np.stack([columns[name] for name in self.inner], axis=-1)

    def published(self, inner: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """The published parameters from those of the terms (the same, but for laws that say otherwise)."""
        return {name: inner[name] for name in self.parameters}

    def leaves_free(self, variable: str) -> str:
        """The parameter that no point determines where ``variable`` has one value only."""
        own = [term for term in self.terms if term.variable == variable]
        others = {term.exponent for term in self.terms if term.variable != variable}
        return next((t.exponent for t in own if t.exponent and t.exponent not in others), own[0].coefficient)


@dataclass(frozen=True)
class Kaplan(Law):
    """``L = [(Nc/N)^(aN/aD) + Dc/D]^aD``: the terms are A/N^r + B/D with A = Nc^r, r = aN/aD, B = Dc."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Nc (parameters), Dc (tokens), aN and aD (no unit)."""
        return "Nc", "aN", "Dc", "aD"

    @property
    def power(self) -> str:
        """The outer power."""
        return "aD"

    @property
    def formula(self) -> str:
        """The law as text."""
        return "L = [(Nc/N)^(aN/aD) + Dc/D]^aD"

    @property
    def units(self) -> dict[str, str]:
        """The unit of each parameter; the loss is in units of one nat a token."""
        return {"Nc": VARIABLES["N"], "aN": "none", "Dc": VARIABLES["D"], "aD": "none"}

    def predict(self, parameters: Mapping[str, float], variables: Mapping[str, FloatArray]) -> FloatArray:
        """Loss [points] in nats a token at N, D [points]."""
        by_size, by_data = self._parts(parameters, variables)
        return np.asarray((by_size + by_data) ** parameters["aD"])

    def gradient(self, parameters: Mapping[str, float], variables: Mapping[str, FloatArray]) -> FloatArray:
        """d loss / d (Nc, aN, Dc, aD) [points, 4]."""
        by_size, by_data = self._parts(parameters, variables)
        total = by_size + by_data
        a_n, a_d = parameters["aN"], parameters["aD"]
        loss = total**a_d
        log_ratio = np.log(parameters["Nc"] / np.asarray(variables["N"]))
        share = by_size / total
        d_power = np.log(total) - share * (a_n / a_d) * log_ratio
        columns = [
            loss * share * a_n / parameters["Nc"],
            loss * share * log_ratio,
            loss * a_d * (by_data / total) / parameters["Dc"],
            loss * d_power,
        ]
        return np.stack(columns, axis=-1)

    def _parts(
        self, parameters: Mapping[str, float], variables: Mapping[str, FloatArray]
    ) -> tuple[FloatArray, FloatArray]:
        ratio = parameters["Nc"] / np.asarray(variables["N"])
        return (
            ratio ** (parameters["aN"] / parameters["aD"]),
            parameters["Dc"] / np.asarray(variables["D"]),
        )

    def published(self, inner: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """Nc, aN, Dc, aD from A, r, B and the outer power."""
        with np.errstate(over="ignore"):
            n_c = np.exp(np.log(inner["A"]) / inner["r"])
        return {"Nc": n_c, "aN": inner["r"] * inner["aD"], "Dc": inner["B"], "aD": inner["aD"]}

    def leaves_free(self, variable: str) -> str:
        """The parameter that no point determines where ``variable`` has one value only."""
        return {"N": "aN", "D": "aD"}[variable]


_FLOOR = Term("E")
_POWER = Term("A", "x", "alpha")
_CHINCHILLA = (_FLOOR, Term("A", "N", "alpha"), Term("B", "D", "beta"))
_TIED = (_FLOOR, Term("A", "N", "alpha"), Term("B", "D", "alpha"))
_OPTIMUM = (Term("G", "C", "a", rising=True),)
_KAPLAN = "Kaplan et al. 2020, arXiv 2001.08361"
_HOFFMANN = "Hoffmann et al. 2022, arXiv 2203.15556"
# fmt: off
LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        Law("power", (_POWER,), f"{_KAPLAN}, eq. 1.1"),
        Law("power-floor", (_FLOOR, _POWER), "Henighan et al. 2020, arXiv 2010.14701, eq. 1.1"),
        Law("chinchilla", _CHINCHILLA, f"{_HOFFMANN}, eq. 2"),
        Law("chinchilla-shared", _CHINCHILLA, f"{_HOFFMANN}, eq. 2, arms together", ("A", "B")),
        Law("gadre", _TIED, "Gadre et al. 2024, arXiv 2403.08540, eq. 4, written in N and D"),
        Kaplan("kaplan", (Term("A", "N", "r"), Term("B", "D")), f"{_KAPLAN}, eq. 1.5"),
        Law("isoflop", _OPTIMUM, f"{_HOFFMANN}, section 3.2", method="isoflop", output="N*"),
        Law("envelope", _OPTIMUM, f"{_HOFFMANN}, section 3.1", method="envelope", output="N*"),
    )
}
# fmt: on


def law_named(name: str) -> Law:
    """The law called ``name``; raises :class:`analysis.data.DataError` that lists the laws."""
    require_choice("law", name, LAWS)
    return LAWS[name]
