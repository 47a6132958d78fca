"""A scaling law: a formula over columns, with its source, the signs and units of its parameters."""

import ast
import difflib
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.formula.formula import MOST_PARAMETERS, Formula, Range, names_in, parsed
from scalevec.analysis.formula.jets import Jet, constant, evaluate, parameter
from scalevec.analysis.options import VARIABLES, AnalysisOptions, base_of, law_text, require_law
from scalevec.analysis.registry import LawEntry, Method

Parameters = Mapping[str, float] | Mapping[str, FloatArray]
"""Numbers, or arrays whose shape broadcasts with that of the variables."""


@dataclass(frozen=True)
class Law:
    """A functional form, written as a formula. Exponents have no unit, losses the unit of the table.

    ``per_arm`` names the coefficients that each arm keeps in a joint fit of several arms (all others are
    shared); ``method`` says what is fitted: the points themselves, or optima that are found first.
    """

    name: str
    written: Formula
    source: str
    per_arm: tuple[str, ...] = ()
    method: Method = "points"

    @property
    def fixed(self) -> dict[str, float]:
        """The values of the parameters that are not fitted."""
        return dict(self.written.fix)

    @property
    def output(self) -> str:
        """What the law gives: L, a loss (or another y), or N*, the best size."""
        return "L" if self.method == "points" else "N*"

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The columns of the formula, N, D, C and x among them."""
        return self.written.variables

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names that are no columns and are fitted."""
        return tuple(n for n in self.written.names if n not in self.variables and n not in self.fixed)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The variables that are columns of the table under their own names."""
        return tuple(name for name in self.variables if name not in (*VARIABLES, "x"))

    @cached_property
    def positive(self) -> tuple[str, ...]:
        """The parameters that are above zero: those that are listed, else the coefficients of power terms."""
        listed = self.written.positive
        if listed is None:
            listed = tuple(term.coefficient for term in self.written.terms)
        return tuple(name for name in listed if name in self.parameters)

    @cached_property
    def ranges(self) -> Mapping[str, Range]:
        """Between what parameters lie; those above zero among them, also below an upper bound alone."""
        bounds = {n: ends for n, ends in self.written.bounds.items() if n in self.parameters}
        for name, (low, high) in bounds.items():
            if name in self.positive and low == -np.inf and high > 0:
                bounds[name] = (0.0, high)
        return {**dict.fromkeys(self.positive, (0.0, np.inf)), **bounds}

    @cached_property
    def _anywhere(self) -> Jet:
        """The law at numbers of no meaning by all of its names: which derivatives there are."""
        names = enumerate(self.written.names)
        with np.errstate(all="ignore"):
            of_names = {name: parameter(name, np.float64(0.31 + 0.17 * k)) for k, name in names}
            return evaluate(self.written.tree, of_names)

    def interact(self, a: str, b: str) -> bool:
        """Whether the slope by one of two names depends on the other."""
        with np.errstate(all="ignore"):
            return (min(a, b), max(a, b)) in self._anywhere.second

    @cached_property
    def floor(self) -> str:
        """The irreducible loss: the parameter that is added to all others; empty where there is none."""
        for name in (*self.parameters, *self.fixed):
            alone = not any(self.interact(name, other) for other in self.written.names)
            if alone and np.all(self._anywhere.first[name] == 1.0):
                return name
        return ""

    @cached_property
    def linear(self) -> tuple[str, ...]:
        """Parameters in which the formula is linear, all of them together."""
        calls = [node for node in ast.walk(self.written.tree) if isinstance(node, ast.Call)]
        # A smaller or larger of two is linear on either side alone.
        bent = {name for call in calls if ast.unparse(call.func) in ("min", "max") for name in names_in(call)}
        names: list[str] = []
        for name in self.parameters:
            if name not in bent and not any(self.interact(name, other) for other in (*names, name)):
                names.append(name)
        return tuple(names)

    @property
    def formula(self) -> str:
        """The law as text, ``L = E + A/x^alpha``."""
        return f"{self.output} = {self.written.body}"

    def units(self, y: str, x: str) -> dict[str, str]:
        """The unit of each coefficient of a power term, "none" of what has none or none that is known.

        ``y`` is the unit of what is fitted; ``x`` names the variable of a law in one.
        """
        result = dict.fromkeys((*self.parameters, *self.fixed), "none")
        for term in self.written.terms:
            name = x if term.variable == "x" else term.variable
            sign = "-" if term.rising else ""
            exponent = f"^{sign}{term.exponent or '1'}" if term.exponent or sign else ""
            of_x = f" x {VARIABLES.get(name, f'unit of {name}')}{exponent}" if name else ""
            result[term.coefficient] = (y if self.output == "L" else VARIABLES["N"]) + of_x
        return result

    def predict(self, parameters: Parameters, variables: Mapping[str, FloatArray]) -> FloatArray:
        """y at ``variables`` (each [points]; units: counts and FLOPs)."""
        given = {**self.fixed, **parameters, **variables}
        with np.errstate(all="ignore"):
            value = evaluate(
                self.written.tree, {n: constant(np.asarray(v, float)) for n, v in given.items()}
            ).value
        shape = np.broadcast_shapes(*(np.shape(values) for values in variables.values()), np.shape(value))
        return np.asarray(np.broadcast_to(value, shape))

    def touched_by(self, variable: str) -> list[str]:
        """The parameters that act together with ``variable``."""
        return [name for name in self.parameters if self.interact(name, variable)]


def law_named(name: str) -> Law:
    """Return the law called ``name``, or that a formula writes; raises :class:`DataError` for neither."""
    require_law(name)
    return _law(name, base_of(name) or LawEntry(name, "as given"))


@functools.lru_cache(maxsize=256)
def _law(name: str, entry: LawEntry) -> Law:
    formula = parsed(law_text(name))
    law = Law(name.split(";")[0].strip(), formula, entry.source, entry.per_arm, entry.method)
    if not law.variables:
        raise formula.refuse("it has no column; N, D, C, x and the columns of the table are columns")
    if not 1 <= len(law.parameters) <= MOST_PARAMETERS:
        raise formula.refuse(f"it has {len(law.parameters)} parameters; allowed: 1 to {MOST_PARAMETERS}")
    clauses: dict[str, Sequence[str]] = {"positive": formula.positive or ()}
    clauses |= {clause: tuple(getattr(formula, clause)) for clause in ("start", "fix", "bounds")}
    for clause, names in clauses.items():
        if columns := [name for name in names if name in law.variables]:
            raise formula.refuse(f"{clause}: {columns[0]} is a column, no parameter")
    if low := [name for name in law.positive if formula.start.get(name, (1.0, 1.0))[0] <= 0]:
        raise formula.refuse(f"{low[0]} is positive, but starts at zero or below")
    return law


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
            raise formula.refuse(
                f"no column {column!r}; nearest: {close[0]!r}; a parameter so named is listed as positive"
            )
    return f"{name}; columns {', '.join(known)}" if known else name


def formula_of(options: AnalysisOptions) -> str:
    """Return the law of ``options`` as text with their variable and column."""
    law = law_named(options.law)
    text = re.sub(r"\bx\b", options.x, law.formula) if "x" in law.variables else law.formula
    return text if options.y == "loss" else text.replace("L = ", f"{options.y} = ", 1)
