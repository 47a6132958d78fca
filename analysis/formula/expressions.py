"""Expressions of users, read by Python's parser and looked at, never run: formulas, ``where``, MathML.

A formula is arithmetic as papers write it: ``^`` is a power, ``[]`` are parentheses, ``G C^a`` a product.
Names that Python would not take (``lambda``, a column in backticks) are read like any other.
"""

import ast
import keyword
import re
from dataclasses import dataclass
from typing import Any

from scalevec.analysis.errors import FormulaError

LONGEST_FORMULA = 500
DEEPEST = 30
_PART = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<quoted>`[^`]*`)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[^\W\d]\w*)|(?P<space>\s+)|(?P<sign>.)",
    re.DOTALL,
)
_SIGNS = {"^": "**", "[": "(", "]": ")"}


def refusal(text: str, position: int, why: str) -> FormulaError:
    """The error ``why``, with a caret below the place in the text."""
    first = max(0, position - 60)
    shown = "".join(c if c.isprintable() else "?" for c in text[first : position + 60])
    message = f"formula, character {position + 1}: {why}\n  {shown}\n  {' ' * (position - first)}^"
    return FormulaError(message, why, position)


@dataclass(frozen=True, eq=False)
class Expression:
    """An expression as Python reads it: ``tree``, and for each byte of what was parsed its ``places``."""

    text: str
    tree: ast.expr
    places: tuple[int, ...]

    def start(self, node: ast.expr) -> int:
        """Where ``node`` begins in the text."""
        return self.places[node.col_offset]

    def end(self, node: ast.expr) -> int:
        """Where ``node`` ends in the text."""
        return self.places[node.end_col_offset or node.col_offset]

    def operator(self, node: ast.BinOp) -> int:
        """Where the sign of ``node`` stands in the text."""
        position = self.end(node.left)
        while self.text[position] in ")] \t\n":
            position += 1
        return position

    def written(self, node: ast.expr) -> str:
        """``node`` as it stands in the text; a name in backticks without them."""
        shown = self.text[self.start(node) : self.end(node)].strip()
        return shown[1:-1] if isinstance(node, ast.Name) and shown.startswith("`") else shown

    def refuse(self, node: ast.expr, why: str) -> FormulaError:
        """The error ``why`` with the place of ``node``."""
        return refusal(self.text, self.start(node), why)


def read(text: str, *, is_formula: bool = True) -> Expression:
    """Return what ``text`` writes; only a formula has ``^``, ``[]`` and products without a sign.

    What the nodes may be is up to the reader. Raises :class:`FormulaError` with the place it cannot be read.
    """
    parts: list[str] = []
    places: list[int] = []
    product_from = -1
    for match in _PART.finditer(text):
        kind, part = str(match.lastgroup), match[0]
        if kind == "sign" and part == "#":
            raise refusal(text, match.start(), "'#' is not allowed")
        if kind == "quoted" or (kind == "name" and (keyword.iskeyword(part) or not part.isascii())):
            is_word = not is_formula and kind == "name" and keyword.iskeyword(part)
            part = part if is_word else f"_name_{len(parts)}_"
        elif kind == "space":
            part = " "
        elif is_formula and kind == "sign":
            part = _SIGNS.get(part, part)
        if is_formula and kind in ("name", "quoted") and product_from >= 0:
            parts[product_from] = "*"
        if kind == "space":
            product_from = len(parts) if product_from == -2 else -1
        else:
            product_from = -2 if kind in ("name", "number", "quoted") else -1
        parts.append(part)
        places += [match.start()] * len(part.encode("utf-8", "replace"))
    code = "".join(parts)
    lead = len(code) - len(code.lstrip())
    try:
        tree = ast.parse(code.strip(), mode="eval").body
    except SyntaxError as error:
        at = min(lead + max((error.offset or 1) - 1, 0), len(places))
        position = places[at] if at < len(places) else len(text)
        raise refusal(text, position, _why(error)) from None
    except (ValueError, RecursionError, MemoryError):
        raise refusal(text, 0, "it cannot be read") from None
    return Expression(text, tree, (*places[lead:], len(text.rstrip()), len(text)))


def _why(error: SyntaxError) -> str:
    message = str(error.msg)
    if "was never closed" in message or "unmatched" in message:
        return message
    return "expected a number, a name, a function or '(' here, or a sign before it"


def number_of(node: ast.expr) -> float | None:
    """The number that ``node`` writes, None where it is something else."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return float(value)
    return None


def terms_of(node: ast.expr) -> list[ast.expr]:
    """The parts of a sum, in order; a difference is one part."""
    match node:
        case ast.BinOp(left, ast.Add(), right):
            return [*terms_of(left), *terms_of(right)]
    return [node]


def names_in(expression: Expression) -> dict[str, int]:
    """The names of ``expression`` that are no functions, each with its first place in the text."""
    functions = {id(node.func) for node in ast.walk(expression.tree) if isinstance(node, ast.Call)}
    nodes: list[Any] = [
        node for node in ast.walk(expression.tree) if isinstance(node, ast.Name) and id(node) not in functions
    ]
    nodes.sort(key=expression.start)
    places: dict[str, int] = {}
    for node in nodes:
        places.setdefault(expression.written(node), expression.start(node))
    return places
