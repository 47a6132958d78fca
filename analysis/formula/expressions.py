"""Expressions of users, read by Python's parser and looked at, never run: formulas, ``where``, MathML.

A formula is arithmetic as papers write it: ``^`` is a power, ``[]`` are parentheses, ``G C^a`` a product.
Names that Python would not take (``lambda``, a column in backticks) are read like any other.
"""

import ast
import keyword
import re

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
