"""Expressions of users, read by Python's parser and looked at, never run: formulas, ``where``, MathML.

A formula is arithmetic as papers write it: ``^`` is a power, ``[]`` are parentheses, ``G C^a`` a product.
Names that Python would not take (``lambda``, a column in backticks) are read like any other.

A law as its user writes it, ``E + A/N^alpha; positive E``, has clauses after the expression: ``columns a, b``
and ``positive a, b`` list names, ``start a = 1`` (or ``a = 1:100``) says where the search begins,
``fix a = 1`` what is not fitted, ``bounds a = 0:1`` (one side may be left out) between what a parameter lies.
Nothing here needs numpy.
"""

import ast
import functools
import keyword
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from scalevec.analysis.errors import FormulaError

_PART = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<quoted>`[^`]*`)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[^\W\d]\w*)|(?P<space>\s+)|(?P<sign>.)",
    re.DOTALL,
)
_SIGNS = {"^": "**", "[": "(", "]": ")"}


def refusal(text: str, why: str) -> FormulaError:
    """The error ``why`` about ``text``."""
    return FormulaError(f"formula {text[:200]!r}: {why}")


def read(text: str, *, is_formula: bool = True) -> ast.expr:
    """Return what ``text`` writes; only a formula has ``^``, ``[]`` and products without a sign.

    What the nodes may be is up to the reader. Raises :class:`FormulaError` where it cannot be read.
    """
    parts: list[str] = []
    names: dict[str, str] = {}
    last = ""
    for match in _PART.finditer(text):
        kind, part = str(match.lastgroup), match[0]
        if part == "#":
            raise refusal(text, "'#' is not allowed")
        if is_formula and kind in ("name", "quoted") and last in ("name", "quoted", "number"):
            parts.append("*")
        is_word = kind == "name" and keyword.iskeyword(part)
        if kind == "quoted" or (is_word and is_formula) or (kind == "name" and not part.isascii()):
            names[f"_name_{len(parts)}_"] = part.strip("`")
            part = f"_name_{len(parts)}_"
        parts.append(" " if kind == "space" else _SIGNS.get(part, part) if is_formula else part)
        last = last if kind == "space" else kind
    try:
        tree = ast.parse("".join(parts).strip(), mode="eval").body
    except SyntaxError as error:
        expected = "expected a number, a name, a function or '(', with a sign between two of them"
        message = str(error.msg)
        is_clear = "was never closed" in message or "unmatched" in message
        raise refusal(text, message if is_clear else expected) from None
    except (ValueError, RecursionError, MemoryError):
        raise refusal(text, "it cannot be read") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return tree


def written(node: ast.expr) -> str:
    """``node`` as a formula writes it."""
    return ast.unparse(node).replace(" ** ", "^").replace("**", "^")


def names_in(tree: ast.expr) -> tuple[str, ...]:
    """The names of an expression that are no functions, each once, in the order of the text."""
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in functions]
    return tuple(dict.fromkeys(node.id for node in sorted(names, key=lambda node: node.col_offset)))


LONGEST_FORMULA = 500
DEEPEST = 30
MOST_PARAMETERS = 12
FUNCTIONS = {"exp": 1, "log": 1, "sqrt": 1, "sigmoid": 1, "min": 2, "max": 2}
COLUMNS = ("N", "D", "C", "x")
"""Names that are columns in every formula: parameters, tokens, FLOPs, and the variable the user chooses."""
NEAR = 5.0
"""A parameter with a start is sought within this factor of it."""
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
    """A formula that was read: ``names`` in the order of the text.

    ``columns`` is None where the text does not list them, ``positive`` are those parameters that are above
    zero, ``start`` where the search for the others begins; ``fix`` has the values of those that are not
    fitted, ``bounds`` those between which others lie. ``terms`` are those of a sum of power terms.
    """

    text: str
    tree: ast.expr
    names: tuple[str, ...]
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
        terms, rest = list[PowerTerm | None](), self.tree
        while isinstance(rest, ast.BinOp) and isinstance(rest.op, ast.Add):
            terms.insert(0, self._term(rest.right))
            rest = rest.left
        powers = [term for term in (self._term(rest), *terms) if term]
        coefficients = {term.coefficient for term in powers}
        is_sum = len(coefficients) == len(terms) + 1 and any(term.variable for term in powers)
        return tuple(powers) if is_sum and not coefficients & {term.exponent for term in powers} else ()

    def _term(self, node: ast.expr) -> PowerTerm | None:
        match node:
            case ast.Name(coefficient):
                term = PowerTerm(coefficient)
            case ast.BinOp(ast.Name(coefficient), ast.Div() | ast.Mult() as sign, ast.Name(variable)):
                term = PowerTerm(coefficient, variable, "", isinstance(sign, ast.Mult))
            case ast.BinOp(
                ast.Name(coefficient),
                ast.Div() | ast.Mult() as sign,
                ast.BinOp(ast.Name(variable), ast.Pow(), ast.Name(exponent)),
            ):
                term = PowerTerm(coefficient, variable, exponent, isinstance(sign, ast.Mult))
            case _:
                return None
        is_term = not {term.coefficient, term.exponent} & {*self.variables}
        return term if is_term and (not term.variable or term.variable in self.variables) else None

    def refuse(self, why: str) -> FormulaError:
        """The error ``why`` about this formula."""
        return refusal(self.text, why)


@functools.lru_cache(maxsize=256)
def parsed(text: str) -> Formula:
    """Return the formula that ``text`` writes.

    Raises :class:`FormulaError` for anything else, and for one that is too long.
    """
    if len(text) > LONGEST_FORMULA:
        raise refusal(text, f"it has {len(text)} characters; allowed: {LONGEST_FORMULA}")
    body, *parts = text.split(";")
    tree = read(body)
    _require_formula(text, tree)
    names = names_in(tree)
    clauses: dict[str, dict[str, Range]] = {}
    for part in parts:
        word, _, listed = part.strip().partition(" ")
        if word not in _CLAUSES:
            raise refusal(text, f"{word[:40]!r}: expected one of {', '.join(_CLAUSES)}")
        # A clause that comes later, from the command line, stands over one before.
        of_word = clauses.setdefault(word, {})
        for item in listed.split(","):
            try:
                of_word |= _listed(word, item.strip(), names)
            except ValueError as error:
                raise refusal(text, f"{word} {item.strip()[:60]!r}: {error}") from None
    columns, positive = (tuple(clauses[word]) if word in clauses else None for word in _CLAUSES[:2])
    start, fix, bounds = (clauses.get(word, {}) for word in _CLAUSES[2:])
    values = {name: low for name, (low, _) in fix.items()}
    free = {name: ends for name, ends in bounds.items() if name not in fix}
    return Formula(text, tree, names, columns, positive, start, values, free)


def _require_formula(text: str, node: ast.expr, depth: int = 1) -> None:
    """Raise :class:`FormulaError` for what is no part of a formula."""
    if depth > DEEPEST:
        raise refusal(text, f"nested more than {DEEPEST} deep")
    inner: list[ast.expr] = []
    match node:
        case ast.Name():
            pass
        case ast.Constant(int() | float() as value) if not isinstance(value, bool) and math.isfinite(value):
            pass
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
            inner = [operand]
        case ast.BinOp(_, ast.Div(), ast.Constant(0)):
            raise refusal(text, "division by zero")
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Pow(), right):
            # A chain of sums goes down on its left, which is no nesting that a reader sees.
            _require_formula(text, left, depth + (not isinstance(left, ast.BinOp)))
            inner = [right]
        case ast.Call(ast.Name(function), arguments, []):
            if len(arguments) != FUNCTIONS.get(function):
                allowed = ", ".join(f"{name} of {n}" for name, n in FUNCTIONS.items())
                raise refusal(text, f"no function {function!r} of {len(arguments)}; allowed: {allowed}")
            inner = arguments
        case _:
            shown = written(node)[:40]
            raise refusal(text, f"{shown!r} is no part of a formula; is an operator missing?")
    for part in inner:
        _require_formula(text, part, depth + 1)


def _listed(word: str, item: str, names: tuple[str, ...]) -> dict[str, Range]:
    """The name that an item of a clause lists, with its values: twice the same where it takes one."""
    name, sign, value = (part.strip() for part in item.partition("="))
    if name not in names:
        raise ValueError(f"expected a name of the formula ({', '.join(names[:MOST_PARAMETERS])})")
    low, is_range, high = value.partition(":")
    if word in _CLAUSES[:2]:
        if sign:
            raise ValueError(f"{word} lists names alone")
        return {name: (0.0, 0.0)}
    if word == "fix" or (word == "start" and not is_range):
        number, around = _number(value, math.nan), NEAR if word == "start" else 1.0
        return {name: (number / around, number * around)}
    ends = _number(low, -math.inf), _number(high, math.inf)
    good = ends != (-math.inf, math.inf) if word == "bounds" else ends[0] > 0 and ends[1] < math.inf
    if not is_range or not ends[0] < ends[1] or not good:
        raise ValueError("expected '=' and LOW:HIGH, where one side may be left out, the low one first")
    return {name: ends}


def _number(shown: str, missing: float) -> float:
    try:
        value = float(shown or missing)
    except ValueError:
        value = math.nan
    if math.isnan(value) or (shown and math.isinf(value)):
        raise ValueError("expected a finite number")
    return value
