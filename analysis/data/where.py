"""``--where 'excluded == 0 and loss < 4'``: a small safe expression on columns, never Python's eval."""

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import HAS_RESULT, refuse_twins
from scalevec.analysis.data.values import number
from scalevec.analysis.errors import DataError, FormulaError, nearest
from scalevec.analysis.formula.expressions import read

LONGEST_EXPRESSION = 2_000
ALLOWED = (
    "comparisons, in (...), and, or, not, numbers, strings, column names (in backticks where they are "
    "not plain), parentheses, + - * /"
)
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUALITIES = (ast.Eq, ast.NotEq)
_MEMBERSHIPS = (ast.In, ast.NotIn)
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
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
    if expression is None:
        return table
    rows = table[_is_chosen(table, expression)]
    if rows.empty:
        raise DataError(f"where {expression!r} leaves none of the {len(table)} rows")
    return rows


def rows_left_out(table: pd.DataFrame, expression: str | None, arms: Sequence[str]) -> int:
    """How many rows of ``arms`` (of the table, if it names none) ``expression`` leaves out."""
    if expression is None:
        return 0
    out = ~_is_chosen(table, expression)
    if "arm" in table.columns:
        out &= table["arm"].astype(str).isin(arms)
    return int(out.sum())


def _is_chosen(table: pd.DataFrame, expression: str) -> "pd.Series[bool]":
    """Whether each row stays: ``expression`` holds, or asks for what a trial without a result cannot tell."""
    refuse_twins(table)
    evaluator = _Evaluator(table, expression)
    chosen = evaluator.evaluate()
    if "status" not in table.columns:
        return chosen
    unknown = table[sorted(evaluator.named)].isna().any(axis=1) & ~table["status"].isin(HAS_RESULT)
    return chosen | (unknown & table["status"].notna())


def holds(table: pd.DataFrame, expression: str) -> "pd.Series[bool]":
    """For each row of ``table`` whether ``expression`` holds. Raises :class:`DataError`."""
    refuse_twins(table)
    return _Evaluator(table, expression).evaluate()


def computed(table: pd.DataFrame, expression: str) -> "pd.Series[Any]":
    """The value of ``expression``, a column or arithmetic on columns, for each row of ``table``.

    Raises :class:`DataError`.
    """
    refuse_twins(table)
    return _Evaluator(table, expression, "map").values()


class _Evaluator:
    def __init__(self, table: pd.DataFrame, expression: str, what: str = "where") -> None:
        self.table = table
        self.expression = expression
        self.what = what
        self.named: set[str] = set()
        self.words = pd.Series(None, table.index, dtype=object)
        """By row the text that stands in the place of a number, if any does."""

    def evaluate(self) -> "pd.Series[bool]":
        return self._of_tree(self._truth)

    def values(self) -> "pd.Series[Any]":
        values = self._of_tree(lambda node: pd.Series(self._value(node), self.table.index))
        is_word = self.words.notna()
        return values.astype(object).mask(is_word, self.words) if is_word.any() else values

    def _of_tree(self, meaning: "Callable[[ast.expr], pd.Series[Any]]") -> "pd.Series[Any]":
        if len(self.expression) > LONGEST_EXPRESSION:
            raise self._refuse(f"it has {len(self.expression)} characters; allowed: {LONGEST_EXPRESSION}")
        try:
            tree = read(self.expression, is_formula=False)
            with np.errstate(divide="ignore", invalid="ignore"):
                return meaning(tree)
        except ArithmeticError as error:
            raise self._refuse(f"its arithmetic fails ({error})") from error
        except TypeError as error:
            raise self._refuse(f"its values cannot be compared ({error})") from error
        except (FormulaError, RecursionError, MemoryError) as error:
            raise self._refuse(f"it is not an expression; allowed: {ALLOWED}") from error

    def _shown(self, node: ast.expr) -> str:
        """The text of ``node`` as it was written."""
        return ast.unparse(node)[:60]

    def _refuse(self, reason: str) -> DataError:
        return DataError(f"{self.what} {self.expression[:80]!r}: {reason}")

    def _truth(self, node: ast.expr) -> "pd.Series[bool]":
        value = self._value(node)
        if not (isinstance(value, pd.Series) and pd.api.types.is_bool_dtype(value)):
            raise self._refuse(f"{self._shown(node)!r} is neither true nor false; compare it with a value")
        return value.astype(bool)

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.BoolOp():
                parts = [self._truth(part) for part in node.values]
                combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
                return pd.Series(combine.reduce([part.to_numpy() for part in parts]), self.table.index)
            case ast.UnaryOp(op=ast.Not()):
                return ~self._truth(node.operand)
            case ast.UnaryOp(op=ast.USub()):
                return -self._number(node.operand)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return _ARITHMETIC[type(node.op)](self._number(node.left), self._number(node.right))
            case ast.Compare():
                return self._compare(node)
            case ast.Name(name):
                return self._column(name)
            case ast.Constant(value=bool() | int() | float() | str()):
                return node.value
        raise self._refuse(f"{self._shown(node)!r} is not allowed; allowed: {ALLOWED}")

    def _column(self, name: str) -> Any:
        if name not in self.table.columns:
            raise self._refuse(f"no column {name!r}; {nearest(name, self.table.columns)}")
        self.named.add(name)
        column = self.table[name]
        if _is_text(column):
            # Dates, lists and what else is neither a number nor true or false are compared as their text.
            return column.astype(object).where(column.notna(), None).map(str, na_action="ignore")
        # A missing value compares as false, which NaN does and pandas' own NA does not.
        is_nullable = isinstance(column.dtype, pd.api.extensions.ExtensionDtype)
        return column.astype(float) if is_nullable else column

    def _number(self, node: ast.expr) -> Any:
        value = self._as_number(self._value(node))
        if _is_text(value):
            raise self._refuse(f"{self._shown(node)!r} is text; arithmetic takes numbers")
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

    def _compare(self, node: ast.Compare) -> "pd.Series[bool]":
        result = pd.Series(True, self.table.index)
        parts = [node.left, *node.comparators]
        for operation, left, right in zip(node.ops, parts, parts[1:], strict=False):
            result &= np.asarray(self._compared(node, operation, left, right), dtype=bool)
        return result

    def _compared(self, node: ast.Compare, operation: ast.cmpop, left: ast.expr, right: ast.expr) -> Any:
        if isinstance(operation, _MEMBERSHIPS):
            is_listed = self._is_member(node, left, right)
            return is_listed if isinstance(operation, ast.In) else ~is_listed
        if type(operation) not in _COMPARISONS:
            raise self._refuse(f"{self._shown(node)!r} is not allowed; allowed: {ALLOWED}")
        values = [self._value(left), self._value(right)]
        if _is_text(values[0]) != _is_text(values[1]):
            values = [self._as_number(value) for value in values]
        if _is_text(values[0]) != _is_text(values[1]):
            raise self._refuse(f"{self._shown(node)!r} compares text with a number")
        if _is_text(values[0]) and not isinstance(operation, _EQUALITIES):
            raise self._refuse(
                f"{self._shown(node)!r} orders text or dates; < and > take numbers, == takes text"
            )
        return _COMPARISONS[type(operation)](values[0], values[1])

    def _is_member(self, node: ast.Compare, left: ast.expr, right: ast.expr) -> "pd.Series[bool]":
        """Whether ``left`` is one of the values that ``right`` lists."""
        if not isinstance(right, ast.Tuple | ast.List | ast.Set):
            raise self._refuse(f"{self._shown(right)!r} is no list; allowed: in ('a', 'b') or in (1, 2)")
        value, members = self._value(left), [self._value(member) for member in right.elts]
        if any(isinstance(member, pd.Series) for member in members):
            raise self._refuse(f"{self._shown(right)!r} lists columns; allowed: values")
        if not any(map(_is_text, members)):
            value = self._as_number(value)
        if any(_is_text(member) != _is_text(value) for member in members):
            raise self._refuse(f"{self._shown(node)!r} compares text with a number")
        is_listed = pd.Series(False, self.table.index)
        for member in members:
            is_listed |= np.asarray(operator.eq(value, member), dtype=bool)
        return is_listed


def _is_text(value: Any) -> bool:
    if isinstance(value, pd.Series):
        return not (pd.api.types.is_numeric_dtype(value) or pd.api.types.is_bool_dtype(value))
    return isinstance(value, str)
