"""Arithmetic over the fields of a trial, ``12 * layers * width ** 2``, written as formulas of laws are."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from scalevec.analysis.errors import FormulaError
from scalevec.analysis.formula.formula import names_in as names_of
from scalevec.analysis.formula.formula import read
from scalevec.model.fields import ConfigurationError

LARGEST = 1e18
MOST_EXPONENT = 16
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
ALLOWED = "numbers, fields and + - * / // ** ( )"


def names_in(formula: str) -> list[str]:
    """The fields that ``formula`` names, each once. Raises ``ConfigurationError`` for what is no formula."""
    return list(names_of(_parsed(formula)))


def value_of(formula: str, fields: Mapping[str, Any]) -> int:
    """N (matrix parameters) that ``formula`` gives for ``fields``, rounded.

    Raises ``ConfigurationError`` where a field is missing or no number, or N would not be 1 to 1e18.
    """
    try:
        value = _value(formula, _parsed(formula), fields)
        fits = 1 <= value <= LARGEST
    except (ArithmeticError, TypeError, RecursionError):
        value, fits = formula, False
    if not fits:
        raise ConfigurationError("n_params", value, f"a formula that gives 1 to {LARGEST:g}")
    whole: int = round(value)
    return whole


def _parsed(formula: str) -> ast.expr:
    """Its tree, which holds nothing but what is allowed."""
    try:
        tree = read(formula)
    except FormulaError:
        tree = ast.Constant(None)
    if not all(map(_is_allowed, ast.walk(tree))):
        raise ConfigurationError("n_params", formula, ALLOWED)
    return tree


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    return isinstance(node, (ast.Name, ast.Load, ast.UnaryOp, ast.USub, ast.BinOp, *_BINARY))


def _value(formula: str, node: ast.AST, fields: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(name) if type(fields.get(name)) not in (int, float):
            raise ConfigurationError("n_params", formula, f"fields with a number; {name} has none here")
        case ast.Name(name):
            return fields[name]
        case ast.Constant(value):
            return value
        case ast.UnaryOp(_, inner):
            return -_value(formula, inner, fields)
        case ast.BinOp(left, kind, right):
            first, second = _value(formula, left, fields), _value(formula, right, fields)
            if isinstance(kind, ast.Pow) and (abs(second) > MOST_EXPONENT or abs(first) > LARGEST):
                raise ConfigurationError("n_params", formula, f"exponents up to {MOST_EXPONENT}")
            return _BINARY[type(kind)](first, second)
