"""The registry of scaling laws, most of them sums of a constant and power terms, L = E + A / x^alpha + ...

A sum of terms ``coefficient / variable^exponent`` has an ``ln L`` that is a log-sum-exp of forms linear in
(ln coefficient, exponent), so value, gradient and Hessian follow from the list of terms alone: a new law of
this kind is one line in :mod:`registry`, its formula.
"""

import dataclasses
import difflib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import require_choice
from scalevec.analysis.formula.grammar import parsed
from scalevec.analysis.options import VARIABLES, AnalysisOptions, require_law
from scalevec.analysis.registry import LAWS, LawEntry, Method, base_of, law_terms, law_text, load

MOST_TERMS, MOST_EXPONENTS = 5, 3
"""A sum with more of them is fitted like any other formula: its grid of starts would be too large."""
Parameters = Mapping[str, float] | Mapping[str, FloatArray]
"""Numbers, or arrays whose shape broadcasts with that of the variables."""


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

    @property
    def text(self) -> str:
        """The term as a formula writes it."""
        power = f"{self.variable}^{self.exponent}" if self.exponent else f"{self.variable}"
        return self.coefficient + (f"{' ' if self.rising else '/'}{power}" if self.variable else "")

    def value(self, parameters: Parameters, variables: Mapping[str, FloatArray]) -> FloatArray:
        """The term at ``variables``."""
        if self.variable is None:
            constant = parameters[self.coefficient]
            shape = np.broadcast_shapes(np.shape(constant), np.shape(next(iter(variables.values()))))
            return np.broadcast_to(constant, shape)
        exponent = parameters[self.exponent] if self.exponent else 1.0
        sign = 1.0 if self.rising else -1.0
        return np.asarray(parameters[self.coefficient] * variables[self.variable] ** (sign * exponent))


@dataclass(frozen=True)
class Law:
    """A functional form. Losses and the irreducible loss E are in nats/token; exponents have no unit.

    ``per_arm`` names the coefficients that each arm keeps in a joint fit of several arms (all others are
    shared); ``method`` says what is fitted: the points themselves, or optima that are found first.
    """

    name: str
    terms: tuple[Term, ...]
    source: str
    per_arm: tuple[str, ...] = ()
    method: Method = "points"
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
        """The variables that the law needs: of N, D, C, x and the columns of the table."""
        return tuple(dict.fromkeys(term.variable for term in self.terms if term.variable))

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The variables that are columns of the table under their own names."""
        return tuple(name for name in self.variables if name not in (*VARIABLES, "x"))

    @property
    def logarithmic(self) -> tuple[str, ...]:
        """The parameters whose intervals are symmetric in the logarithm: the coefficients of power terms."""
        return tuple(dict.fromkeys(term.coefficient for term in self.terms if term.variable))

    @property
    def formula(self) -> str:
        """The law as text, ``L = E + A/x^alpha``."""
        return f"{self.output} = {' + '.join(term.text for term in self.terms)}"

    @property
    def fixed(self) -> Mapping[str, float]:
        """The values of parameters that are not fitted: only a formula has any."""
        return {}

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Between what parameters lie that the text of a formula bounds."""
        return {}

    @property
    def units(self) -> dict[str, str]:
        """The unit of each parameter."""
        result = dict.fromkeys(self.exponents, "none")
        unit = "nats/token" if self.output == "L" else VARIABLES["N"]
        for term in self.terms:
            power = ""
            if term.variable:
                sign = "-" if term.rising else ""
                exponent = f"^{sign}{term.exponent or '1'}" if term.exponent or sign else ""
                power = f" x {VARIABLES.get(term.variable, f'unit of {term.variable}')}{exponent}"
            result[term.coefficient] = unit + power
        return {name: result[name] for name in self.parameters}

    def predict(self, parameters: Parameters, variables: Mapping[str, FloatArray]) -> FloatArray:
        """Loss [points] in nats/token at ``variables`` (each [points]; units: counts and FLOPs)."""
        return np.asarray(np.sum([term.value(parameters, variables) for term in self.terms], axis=0))

    def published(self, inner: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """The published parameters from those of the terms (the same, but for laws that say otherwise)."""
        return {name: inner[name] for name in self.parameters}

    def leaves_free(self, variable: str) -> str:
        """The parameter that no point determines where ``variable`` has one value only."""
        terms = [term for term in self.terms if term.variable == variable]
        others = {term.exponent for term in self.terms if term.variable != variable}
        alone = (term.exponent for term in terms if term.exponent and term.exponent not in others)
        return next(alone, terms[0].coefficient)


@dataclass(frozen=True)
class Kaplan(Law):
    """``L = [(Nc/N)^(aN/aD) + Dc/D]^aD``: the terms are A/N^r + B/D with A = Nc^r, r = aN/aD, B = Dc."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Nc (parameters), Dc (tokens), aN and aD (no unit)."""
        return "Nc", "aN", "Dc", "aD"

    @property
    def logarithmic(self) -> tuple[str, ...]:
        """The parameters whose intervals are symmetric in the logarithm."""
        return "Nc", "Dc"

    @property
    def power(self) -> str:
        """The outer power."""
        return "aD"

    @property
    def formula(self) -> str:
        """The law as text, in its published parameters."""
        return f"{self.output} = {LAWS['kaplan'].formula}"

    @property
    def units(self) -> dict[str, str]:
        """The unit of each parameter; the loss is in units of one nat/token."""
        return {"Nc": VARIABLES["N"], "aN": "none", "Dc": VARIABLES["D"], "aD": "none"}

    def predict(self, parameters: Parameters, variables: Mapping[str, FloatArray]) -> FloatArray:
        """Loss [points] in nats/token at N, D [points]."""
        a_n, a_d = parameters["aN"], parameters["aD"]
        by_size = (parameters["Nc"] / np.asarray(variables["N"])) ** (a_n / a_d)
        return np.asarray((by_size + parameters["Dc"] / np.asarray(variables["D"])) ** a_d)

    def published(self, inner: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """Nc, aN, Dc, aD from A, r, B and the outer power."""
        with np.errstate(over="ignore"):
            n_c = np.exp(np.log(inner["A"]) / inner["r"])
        return {"Nc": n_c, "aN": inner["r"] * inner["aD"], "Dc": inner["B"], "aD": inner["aD"]}

    def leaves_free(self, variable: str) -> str:
        """The parameter that no point determines where ``variable`` has one value only."""
        return {"N": "aN", "D": "aD"}[variable]


KAPLAN = Kaplan("kaplan", (Term("A", "N", "r"), Term("B", "D")), LAWS["kaplan"].source)


def law_named(name: str) -> Law:
    """Return the law called ``name``, or that a formula writes; raises :class:`DataError` for neither."""
    require_law(name)
    if name not in LAWS and (entry := base_of(name)):
        return _law(name, dataclasses.replace(entry, formula=law_text(name), factory=""))
    return _law(name, LAWS[name] if name in LAWS else LawEntry(name, "as given", any_y=True))


@functools.lru_cache(maxsize=256)
def _law(name: str, entry: LawEntry) -> Law:
    if entry.factory:
        law: Law = load(entry.factory)
        for variable in law.variables:
            require_choice(f"a variable of law {name}", variable, (*VARIABLES, "x"))
        return law
    output = "L" if entry.method == "points" else "N*"
    name, *clauses = (part.strip() for part in name.split(";"))
    base = _law(name, LAWS[name]) if clauses and name in LAWS else None
    if terms := _power_terms(entry):
        return Law(name, terms, entry.source, entry.per_arm, entry.method, output)
    formula_law: Callable[..., Law] = load("scalevec.analysis.solver.formula_law:formula_law")
    return formula_law(name, parsed(entry.formula), entry.source, base)


def _power_terms(entry: LawEntry) -> tuple[Term, ...]:
    """The terms of a sum of power terms that asks for nothing else; none of any other formula."""
    body, *clauses = entry.formula.split(";")
    formula = parsed(entry.formula) if clauses else None
    if formula and (formula.start or formula.fix or formula.bounds or formula.positive is not None):
        return ()
    columns = (formula and formula.columns) or ()
    try:
        parts = law_terms(body, columns)
    except ValueError:
        return ()
    terms = tuple(
        Term(str(part["coefficient"]), part["variable"], part["exponent"], part["sign"] in (" ", "*"))
        for part in parts
    )
    n_exponents = len({term.exponent for term in terms} - {None})
    few = len(terms) <= MOST_TERMS and n_exponents <= MOST_EXPONENTS
    return terms if few and any(term.variable for term in terms) else ()


def with_columns(name: str, table_columns: Sequence[str]) -> str:
    """Return the law ``name`` with those of its names that are columns of the table listed in its text.

    Raises :class:`DataError` for a name that is none of the table's columns, but nearly.
    """
    if base_of(name):
        return name
    formula = parsed(name)
    if formula.columns is not None:
        return name
    known = [name for name in formula.names if name in table_columns and name not in (*VARIABLES, "x")]
    declared = {*(formula.positive or ()), *formula.start, *known}
    for column in formula.names:
        close = difflib.get_close_matches(column, table_columns, n=1, cutoff=0.75) if len(column) > 3 else []
        if close and column not in declared:
            position = formula.text.index(column)
            raise formula.refuse(
                position,
                f"no column {column!r}; nearest: {close[0]!r}; a parameter so named is listed as positive",
            )
    return f"{name}; columns {', '.join(known)}" if known else name


def formula_of(options: AnalysisOptions) -> str:
    """Return the law of ``options`` as text with their variable and column."""
    law = law_named(options.law)
    text = re.sub(r"\bx\b", options.x, law.formula) if "x" in law.variables else law.formula
    return text if options.y == "loss" else text.replace("L = ", f"{options.y} = ", 1)
