"""``--where 'excluded == 0 and loss < 4'``: a small safe expression on columns, never Python's eval."""

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import HAS_RESULT, refuse_twins
from scalevec.analysis.data.values import is_blank, number, status
from scalevec.analysis.errors import DataError, FormulaError, nearest
from scalevec.analysis.formula.formula import names_in, read

LONGEST_EXPRESSION = 2_000
ALLOWED = (
    "comparisons, in (...), and, or, not, numbers, strings, column names (in backticks where they are "
    "not plain), parentheses, + - * /"
)
_OPERATIONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def select(table: pd.DataFrame, expression: str | None) -> pd.DataFrame:
    """The rows of ``table`` for which ``expression`` holds (all, if it is None), with the index they had.

    Trials without a result stay where the expression asks for a value that only a result gives: a plan does
    not shrink by what is not known yet. Raises :class:`DataError` for anything but the constructs of
    :data:`ALLOWED`, an unknown column, a comparison of text with a number, an expression that is neither true
    nor false, or no row left.
    """
    if not isinstance(table, pd.DataFrame):
        kind = type(table).__name__
        raise DataError(
            f"{kind} is no table; scalevec.read_table makes one of a file, pandas.DataFrame of rows"
        )
    if expression is None:
        return table
    rows = table[_is_chosen(table, expression)]
    if rows.empty:
        raise DataError(f"where {expression!r} leaves none of the {len(table)} rows")
    return rows


def rows_left_out(table: pd.DataFrame, expression: str, arms: Sequence[str]) -> int:
    """How many rows of ``arms`` (of the table, if it names none) ``expression`` leaves out."""
    out = ~_is_chosen(table, expression)
    if "arm" in table.columns:
        out &= table["arm"].astype(str).isin(arms)
    return int(out.sum())


def _is_chosen(table: pd.DataFrame, expression: str) -> "pd.Series[bool]":
    """Whether each row stays: ``expression`` holds, or asks for what a trial without a result cannot tell."""
    chosen = holds(table, expression)
    if "status" not in table.columns:
        return chosen
    named = list(names_in(read(expression, is_formula=False)))
    words = table["status"].map(lambda word: "completed" if is_blank(word) else status(word) or word)
    return chosen | (table[named].isna().any(axis=1) & ~words.isin(HAS_RESULT))


def holds(table: pd.DataFrame, expression: str) -> "pd.Series[bool]":
    """For each row of ``table`` whether ``expression`` holds. Raises :class:`DataError`."""
    evaluator = _Evaluator(table, expression)
    return evaluator.evaluated(evaluator.truth)


def computed(table: pd.DataFrame, expression: str) -> "pd.Series[Any]":
    """The value of ``expression``, a column or arithmetic on columns, for each row of ``table``.

    Raises :class:`DataError`.
    """
    evaluator = _Evaluator(table, expression, "map")
    values = evaluator.evaluated(lambda node: pd.Series(evaluator.value(node), table.index))
    is_word = evaluator.words.notna()
    return values.astype(object).mask(is_word, evaluator.words) if is_word.any() else values


class _Evaluator:
    def __init__(self, table: pd.DataFrame, expression: str, what: str = "where") -> None:
        refuse_twins(table)
        self.table = table
        self.expression = expression
        self.what = what
        self.words = pd.Series(None, table.index, dtype=object)
        """By row the text that stands in the place of a number, if any does."""

    def evaluated(self, meaning: "Callable[[ast.expr], pd.Series[Any]]") -> "pd.Series[Any]":
        """What ``meaning`` makes of the whole expression."""
        if len(self.expression) > LONGEST_EXPRESSION:
            raise self._refuse(f"it has {len(self.expression)} characters; allowed: {LONGEST_EXPRESSION}")
        try:
            tree = read(self.expression, is_formula=False)
            with np.errstate(divide="ignore", invalid="ignore"):
                return meaning(tree)
        except (ArithmeticError, TypeError) as error:
            raise self._refuse(f"its arithmetic fails ({error})") from error
        except (FormulaError, RecursionError, MemoryError) as error:
            raise self._refuse(f"it is not an expression; allowed: {ALLOWED}") from error

    def truth(self, node: ast.expr) -> "pd.Series[bool]":
        """By row whether ``node`` holds."""
        value = self.value(node)
        if not (isinstance(value, pd.Series) and pd.api.types.is_bool_dtype(value)):
            raise self._refuse("is neither true nor false; compare it with a value", node)
        return value.astype(bool)

    def value(self, node: ast.expr) -> Any:
        """The value of ``node``: a column, or one number or text."""
        match node:
            case ast.BoolOp():
                parts = [self.truth(part) for part in node.values]
                combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
                return pd.Series(combine.reduce([part.to_numpy() for part in parts]), self.table.index)
            case ast.UnaryOp(op=ast.Not()):
                return ~self.truth(node.operand)
            case ast.UnaryOp(op=ast.USub()):
                return -self._number(node.operand)
            case ast.BinOp() if type(node.op) in _OPERATIONS:
                return _OPERATIONS[type(node.op)](self._number(node.left), self._number(node.right))
            case ast.Compare():
                sides = [node.left, *node.comparators]
                holds = np.ones(len(self.table), bool)
                for operation, left, right in zip(node.ops, sides, sides[1:], strict=False):
                    holds = holds & np.asarray(self._compared(node, operation, left, right), dtype=bool)
                return pd.Series(holds, self.table.index)
            case ast.Name():
                return self._column(node.id)
            case ast.Constant(value=bool() | int() | float() | str()):
                return node.value
        raise self._refuse(f"is not allowed; allowed: {ALLOWED}", node)

    def _refuse(self, reason: str, node: ast.expr | None = None) -> DataError:
        shown = f"{ast.unparse(node)[:60]!r} " if node else ""
        return DataError(f"{self.what} {self.expression[:80]!r}: {shown}{reason}")

    def _column(self, name: str) -> Any:
        if name not in self.table.columns:
            near = nearest(name, self.table.columns)
            raise self._refuse(f"no column {name!r}; {near}; text stands in quotes")
        column = self.table[name]
        if _is_text(column):
            # Dates, lists and what else is neither a number nor true or false are compared as their text.
            return column.astype(object).where(column.notna(), None).map(str, na_action="ignore")
        # A missing value compares as false, which NaN does and pandas' own NA does not.
        is_nullable = isinstance(column.dtype, pd.api.extensions.ExtensionDtype)
        return column.astype(float) if is_nullable else column

    def _number(self, node: ast.expr) -> Any:
        value = self._as_number(self.value(node))
        if _is_text(value):
            raise self._refuse("is text; arithmetic takes numbers", node)
        return value * 1.0

    def _as_number(self, value: Any) -> Any:
        """A column of numbers with a word in the place of some: NaN there; anything else as it is."""
        if not (isinstance(value, pd.Series) and _is_text(value)):
            return value
        read = [number(cell) if isinstance(cell, str) else None for cell in value]
        if all(cell is None for cell in read):
            return value
        is_word = value.notna() & np.array([cell is None for cell in read])
        self.words = self.words.mask(is_word, value)
        return pd.Series(read, value.index, dtype=float)

    def _compared(self, node: ast.Compare, operation: ast.cmpop, left: ast.expr, right: ast.expr) -> Any:
        if isinstance(operation, ast.In | ast.NotIn):
            members = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else []
            if not members or any(isinstance(part, ast.Name) for part in members):
                raise self._refuse("is no list of values; allowed: in ('a', 'b') or in (1, 2)", right)
            is_listed = np.any([self._compared(node, ast.Eq(), left, member) for member in members], axis=0)
            return is_listed if isinstance(operation, ast.In) else ~is_listed
        if type(operation) not in _OPERATIONS:
            raise self._refuse(f"is not allowed; allowed: {ALLOWED}", node)
        values = [self.value(left), self.value(right)]
        if _is_text(values[0]) != _is_text(values[1]):
            values = [self._as_number(value) for value in values]
        if _is_text(values[0]) != _is_text(values[1]):
            raise self._refuse("compares text with a number", node)
        if _is_text(values[0]) and not isinstance(operation, ast.Eq | ast.NotEq):
            raise self._refuse("orders text or dates; < and > take numbers, == takes text", node)
        return _OPERATIONS[type(operation)](*values)


def _is_text(value: Any) -> bool:
    if isinstance(value, pd.Series):
        return not (pd.api.types.is_numeric_dtype(value) or pd.api.types.is_bool_dtype(value))
    return isinstance(value, str)
