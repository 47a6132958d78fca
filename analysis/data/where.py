"""``--where 'excluded == 0 and loss < 4'``: a small safe expression on columns, never Python's eval."""

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import refuse_twins
from scalevec.analysis.errors import DataError, nearest

LONGEST_EXPRESSION = 2_000
ALLOWED = "comparisons, and, or, not, numbers, strings, column names, parentheses, + - * /"
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def select(table: pd.DataFrame, expression: str | None) -> pd.DataFrame:
    """The rows of ``table`` for which ``expression`` holds (all, if it is None), with a fresh index.

    Raises :class:`DataError` for anything but the constructs of :data:`ALLOWED`, an unknown column, a
    comparison of text with a number, an expression that is neither true nor false, or no row left.
    """
    if expression is None:
        return table
    rows = table[holds(table, expression)].reset_index(drop=True)
    if rows.empty:
        raise DataError(f"where {expression!r} leaves none of the {len(table)} rows")
    return rows


def rows_left_out(table: pd.DataFrame, expression: str | None, arms: Sequence[str]) -> int:
    """How many rows of ``arms`` (of the table, if it names none) ``expression`` leaves out."""
    if expression is None:
        return 0
    out = ~holds(table, expression)
    if "arm" in table.columns:
        out &= table["arm"].astype(str).isin(arms)
    return int(out.sum())


def holds(table: pd.DataFrame, expression: str) -> "pd.Series[bool]":
    """For each row of ``table`` whether ``expression`` holds. Raises :class:`DataError`."""
    refuse_twins(table)
    return _Evaluator(table, expression).evaluate()


class _Evaluator:
    def __init__(self, table: pd.DataFrame, expression: str) -> None:
        self.table = table
        self.expression = expression

    def evaluate(self) -> "pd.Series[bool]":
        if len(self.expression) > LONGEST_EXPRESSION:
            raise self._refuse(f"it has {len(self.expression)} characters; allowed: {LONGEST_EXPRESSION}")
        try:
            tree = ast.parse(self.expression.strip(), mode="eval")
            with np.errstate(divide="ignore", invalid="ignore"):
                return self._truth(tree.body)
        except ArithmeticError as error:
            raise self._refuse(f"its arithmetic fails ({error})") from error
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, DataError):
                raise
            raise self._refuse(f"it is not an expression; allowed: {ALLOWED}") from error

    def _refuse(self, reason: str) -> DataError:
        return DataError(f"where {self.expression[:80]!r}: {reason}")

    def _truth(self, node: ast.expr) -> "pd.Series[bool]":
        value = self._value(node)
        if not (isinstance(value, pd.Series) and pd.api.types.is_bool_dtype(value)):
            raise self._refuse(f"{ast.unparse(node)!r} is neither true nor false; compare it with a value")
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
            case ast.Name():
                return self._column(node.id)
            case ast.Constant(value=bool() | int() | float() | str()):
                return node.value
        raise self._refuse(f"{ast.unparse(node)[:60]!r} is not allowed; allowed: {ALLOWED}")

    def _column(self, name: str) -> Any:
        if name not in self.table.columns:
            raise self._refuse(f"no column {name!r}; {nearest(name, self.table.columns)}")
        column = self.table[name]
        # A missing value compares as false, which NaN does and pandas' own NA does not.
        is_nullable = isinstance(column.dtype, pd.api.extensions.ExtensionDtype)
        return column if _is_text(column) or not is_nullable else column.astype(float)

    def _number(self, node: ast.expr) -> Any:
        value = self._value(node)
        if _is_text(value):
            raise self._refuse(f"{ast.unparse(node)!r} is text; arithmetic takes numbers")
        return value * 1.0

    def _compare(self, node: ast.Compare) -> "pd.Series[bool]":
        values = [self._value(part) for part in (node.left, *node.comparators)]
        result = pd.Series(True, self.table.index)
        for operation, left, right in zip(node.ops, values, values[1:], strict=False):
            if type(operation) not in _COMPARISONS:
                raise self._refuse(f"{ast.unparse(node)!r} is not allowed; allowed: {ALLOWED}")
            if _is_text(left) != _is_text(right):
                raise self._refuse(f"{ast.unparse(node)!r} compares text with a number")
            result &= np.asarray(_COMPARISONS[type(operation)](left, right), dtype=bool)
        return result


def _is_text(value: Any) -> bool:
    if isinstance(value, pd.Series):
        return not (pd.api.types.is_numeric_dtype(value) or pd.api.types.is_bool_dtype(value))
    return isinstance(value, str)
