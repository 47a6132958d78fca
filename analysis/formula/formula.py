"""A law as its user writes it, ``E + A/N^alpha; positive E``: an expression and what is said of its names.

Clauses follow the expression: ``columns a, b`` and ``positive a, b`` list names, ``start a = 1`` (or
``a = 1:100``) says where the search begins, ``fix a = 1`` what is not fitted, ``bounds a = 0:1`` (one side
may be left out) between what a parameter lies. Nothing here needs numpy.
"""

import ast
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from scalevec.analysis.errors import FormulaError
from scalevec.analysis.formula.expressions import (
    DEEPEST,
    LONGEST_FORMULA,
    Expression,
    names_in,
    number_of,
    read,
    refusal,
    terms_of,
)
from scalevec.analysis.formula.steps import FormulaSteps

MOST_PARAMETERS = 12
FUNCTIONS = {"exp": 1, "log": 1, "sqrt": 1, "sigmoid": 1, "min": 2, "max": 2}
COLUMNS = ("N", "D", "C", "x")
"""Names that are columns in every formula: parameters, tokens, FLOPs, and the variable the user chooses."""
_CLAUSES = ("columns", "positive", "start", "fix", "bounds")
Range = tuple[float, float]
"""Between what a parameter lies; an open side is infinite."""


@dataclass(frozen=True)
class PowerTerm:
    """``coefficient / variable^exponent``, without a variable the coefficient alone; ``rising``: times it."""

    coefficient: str
    variable: str = ""
    exponent: str = ""
    rising: bool = False


@dataclass(frozen=True, eq=False)
class Formula:
    """A formula that was read: ``names`` in the order of the text, each with its place.

    ``columns`` is None where the text does not list them, ``positive`` are those parameters that are above
    zero, ``start`` where the search for the others begins; ``fix`` has the values of those that are not
    fitted, ``bounds`` those between which others lie. ``terms`` are those of a sum of power terms.
    """

    text: str
    expression: Expression
    names: Mapping[str, int]
    columns: tuple[str, ...] | None
    positive: tuple[str, ...] | None
    start: Mapping[str, Range]
    fix: Mapping[str, float]
    bounds: Mapping[str, Range]

    @property
    def body(self) -> str:
        """The formula without its clauses."""
        return self.text.split(";", 1)[0].strip()

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The names that are columns."""
        return tuple(name for name in self.names if name in (self.columns or ()) or name in COLUMNS)

    @cached_property
    def terms(self) -> tuple[PowerTerm, ...]:
        """The terms of a sum of power terms, each with its own coefficient; none of any other formula."""
        terms = [self._term(part) for part in terms_of(self.expression.tree)]
        coefficients = [term.coefficient for term in terms if term]
        if None in terms or len(set(coefficients)) < len(terms) or not any(t and t.variable for t in terms):
            return ()
        if any(term.exponent in coefficients for term in terms if term):
            return ()
        return tuple(term for term in terms if term)

    def _term(self, node: ast.expr) -> PowerTerm | None:
        match node:
            case ast.Name():
                term = PowerTerm(self.expression.written(node))
            case ast.BinOp(
                ast.Name() as first, ast.Div() | ast.Mult() as sign, ast.Name() as variable
            ) | ast.BinOp(
                ast.Name() as first,
                ast.Div() | ast.Mult() as sign,
                ast.BinOp(ast.Name() as variable, ast.Pow(), ast.Name()),
            ):
                power = node.right if isinstance(node, ast.BinOp) else node
                exponent = self.expression.written(power.right) if isinstance(power, ast.BinOp) else ""
                names = self.expression.written(first), self.expression.written(variable)
                term = PowerTerm(*names, exponent, isinstance(sign, ast.Mult))
            case _:
                return None
        variables = self.variables
        is_term = term.coefficient not in variables and term.exponent not in variables
        return term if is_term and (not term.variable or term.variable in variables) else None

    def refuse(self, position: int, why: str) -> FormulaError:
        """The error ``why`` with the place in the text."""
        return refusal(self.text, position, why)


@functools.lru_cache(maxsize=256)
def parsed(text: str) -> Formula:
    """Return the formula that ``text`` writes.

    Raises :class:`FormulaError` with the place in the text for anything else, and for one that is too long.
    """
    if len(text) > LONGEST_FORMULA:
        raise refusal(text, LONGEST_FORMULA, f"it has {len(text)} characters; allowed: {LONGEST_FORMULA}")
    body, *parts = text.split(";")
    try:
        expression = read(body)
    except FormulaError as error:
        raise refusal(text, error.position, error.why) from None
    expression = Expression(text, expression.tree, expression.places)
    names = names_in(expression)
    steps = FormulaSteps()
    operation, value, _ = steps.steps[Builder(expression, steps, {}).step(expression.tree)]
    if operation == "number" and not math.isfinite(float(value)):
        raise refusal(text, 0, "it is no finite number")
    clauses: dict[str, dict[str, Range]] = {}
    position = len(body) + 1
    for part in parts:
        word, _, listed = part.strip().partition(" ")
        start = position + len(part) - len(part.lstrip())
        if word not in _CLAUSES:
            raise refusal(text, start, f"expected one of {', '.join(_CLAUSES)}")
        # A clause that comes later, from the command line, stands over one before.
        clauses.setdefault(word, {}).update(_listed(text, names, word, listed, start + len(word) + 1))
        position += len(part) + 1
    columns, positive = (tuple(clauses[name]) if name in clauses else None for name in _CLAUSES[:2])
    fix = {name: low for name, (low, _) in clauses.get("fix", {}).items()}
    bounds = {name: ends for name, ends in clauses.get("bounds", {}).items() if name not in fix}
    start_at = clauses.get("start", {})
    return Formula(text, expression, names, columns, positive, start_at, fix, bounds)


def _listed(text: str, names: Mapping[str, int], word: str, listed: str, position: int) -> dict[str, Range]:
    """The names that a clause lists, with their values: twice the same where it takes one."""
    given: dict[str, Range] = {}
    for item in listed.split(","):
        name, sign, value = (part.strip() for part in item.partition("="))
        at = position + len(item) - len(item.lstrip())
        if name not in names or name in given:
            shown = ", ".join(list(names)[:MOST_PARAMETERS])
            raise refusal(text, at, f"expected a name of the formula ({shown}), each once")
        low, is_range, high = value.partition(":")
        after = at + item.strip().index("=") + 1 if sign else at + len(name)
        after += len(text[after:]) - len(text[after:].lstrip())
        if word in _CLAUSES[:2]:
            if sign:
                raise refusal(text, after, f"{word} lists names alone")
            given[name] = (0.0, 0.0)
        elif word == "bounds" or (word == "start" and is_range):
            wanted = "'=' and LOW:HIGH, where one side may be left out, the low one first"
            ends = (_number(text, low, -math.inf, after), _number(text, high, math.inf, after))
            whole = word == "bounds" or (ends[0] > 0 and ends[1] < math.inf)
            if not is_range or not ends[0] < ends[1] or ends == (-math.inf, math.inf) or not whole:
                raise refusal(text, after, f"expected {wanted}")
            given[name] = ends
        else:
            number = _number(text, value, math.nan, after)
            given[name] = (number, number)
        position += len(item) + 1
    return given


def _number(text: str, shown: str, missing: float, position: int) -> float:
    try:
        value = float(shown) if shown.strip() or math.isnan(missing) else missing
    except ValueError:
        value = math.nan
    if math.isnan(value) or (shown.strip() and math.isinf(value)):
        raise refusal(text, position, "expected a finite number")
    return value


class Builder:
    """Makes the steps of an expression; ``values`` are steps that stand for names.

    ``marks`` are the places in the text of the steps that were made.
    """

    def __init__(self, expression: Expression, steps: FormulaSteps, values: Mapping[str, int]) -> None:
        self.expression, self.steps, self.values = expression, steps, values
        self.marks: dict[int, int] = {}

    def step(self, node: ast.expr, depth: int = 1) -> int:
        """The step of ``node``. Raises :class:`FormulaError` for what is no part of a formula."""
        if depth > DEEPEST:
            raise self.expression.refuse(node, f"nested more than {DEEPEST} deep")
        new = len(self.steps.steps)
        index, position = self._step_and_place(node, depth)
        for later in range(new, len(self.steps.steps)):
            self.marks.setdefault(later, position)
        return index

    def _step_and_place(self, node: ast.expr, depth: int) -> tuple[int, int]:
        steps, position = self.steps, self.expression.start(node)
        match node:
            case ast.Name():
                name = self.expression.written(node)
                return (self.values[name] if name in self.values else steps.name(name)), position
            case ast.UnaryOp(ast.USub() | ast.UAdd() as sign, operand):
                inner = self.step(operand, depth + 1)
                return (steps.minus(inner) if isinstance(sign, ast.USub) else inner), position
            case ast.BinOp(left, operator, right):
                # A chain of sums goes down on its left, which is no nesting that a reader sees.
                a = self.step(left, depth + (not isinstance(left, ast.BinOp)))
                b = self.step(right, depth + 1)
                return self._of_two(operator, a, b, node), self.expression.operator(node)
            case ast.Call(ast.Name() as function, arguments, []):
                return self._call(node, self.expression.written(function), arguments, depth), position
        value = number_of(node)
        if value is None or not math.isfinite(value):
            shown = self.expression.written(node)[:40]
            raise self.expression.refuse(node, f"{shown!r} is no part of a formula; is an operator missing?")
        return steps.number(value), position

    def _of_two(self, operator: ast.operator, a: int, b: int, node: ast.BinOp) -> int:
        steps, position = self.steps, self.expression.operator(node)
        match operator:
            case ast.Add() | ast.Sub():
                return steps.add(a, b if isinstance(operator, ast.Add) else steps.minus(b))
            case ast.Mult():
                return steps.times(a, b)
            case ast.Div():
                if steps.is_zero(b):
                    raise refusal(self.expression.text, position, "division by zero")
                return steps.times(a, steps.power(b, steps.number(-1.0)))
            case ast.Pow():
                return steps.power(a, b)
        raise refusal(self.expression.text, position, "allowed: + - * / ^")

    def _call(self, node: ast.Call, function: str, arguments: list[ast.expr], depth: int) -> int:
        if function not in FUNCTIONS:
            raise self.expression.refuse(node, f"no function {function!r}; allowed: {', '.join(FUNCTIONS)}")
        if len(arguments) != FUNCTIONS[function]:
            raise self.expression.refuse(node, f"{function} takes {FUNCTIONS[function]} value(s)")
        return self.steps.call(function, *(self.step(argument, depth + 1) for argument in arguments))
