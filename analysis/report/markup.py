"""Text as markup of a page: powers of ten, formulas as MathML."""

import ast
import re

from markupsafe import Markup, escape

from scalevec.analysis.formula.formula import read
from scalevec.analysis.tables.render import POWER_OF_TEN

_GREEK = dict(zip(("alpha", "beta", "gamma", "delta", "eta", "lambda"), "αβγδηλ", strict=True))
_STRENGTH: dict[type[ast.operator], int] = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2}
_SIGN: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "−", ast.Mult: "\N{INVISIBLE TIMES}"}


def powers(text: object) -> Markup:
    """``3.629e+11`` as 3.63 × 10 with a raised 11; everything else is escaped."""
    return Markup(POWER_OF_TEN.sub(_power, str(escape(text))))


def _power(number: re.Match[str]) -> str:
    factor, sign = f"{float(number[1]):.3g}", "−" if number[2] == "-" else ""
    return f"{'' if factor == '1' else f'{factor} × '}10<sup>{sign}{number[3]}</sup>"


def formula(text: str) -> Markup:
    """A formula such as ``L = E + A/N^alpha`` as MathML; as code where it is written otherwise."""
    law, *clauses = text.split(";")
    try:
        sides = [_mathml(read(part)) for part in law.split(" = ")]
    except (ValueError, KeyError, TypeError):
        return _tag("code", text)
    shown = _tag("mrow", _tag("mo", "=").join(sides))
    after = f"; {';'.join(clauses).strip()}" if clauses else ""
    return Markup('<math alttext="{}">{}</math>{}').format(law.strip(), shown, after)


def _mathml(node: ast.expr, within: int = 0) -> Markup:
    """``node`` in parentheses where it binds less than what it is ``within``."""
    match node:
        case ast.BinOp(left, ast.Div(), right):
            return _tag("mfrac", *(_tag("mrow", _mathml(part)) for part in (left, right)))
        case ast.BinOp(left, ast.Pow(), right):
            return _tag("msup", *(_tag("mrow", _mathml(*part)) for part in ((left, 3), (right,))))
        case ast.BinOp(left, operator, right):
            strength, sign = _STRENGTH[type(operator)], _SIGN[type(operator)]
            last = _mathml(right, strength + (sign == "−"))
            inner = _mathml(left, strength) + _tag("mo", sign) + last
            return inner if strength >= within else _bracketed(inner)
        case ast.UnaryOp(ast.USub(), operand):
            return _tag("mo", "−") + _mathml(operand, 2)
        case ast.Call(ast.Name(name), arguments):
            inner = _tag("mo", ",").join(_mathml(argument) for argument in arguments)
            return _tag("mi", name) + _bracketed(inner)
        case ast.Name(written):
            name, _, below = _GREEK.get(written, written).partition("_")
            shown = _tag("mi", name)
            return _tag("msub", shown, _tag("mi", below.replace("_", " "))) if below else shown
        case ast.Constant(value):
            return _tag("mn", value)
    raise TypeError(f"{ast.dump(node)} is no part of a formula")


def _tag(name: str, *parts: object) -> Markup:
    return Markup(f"<{name}>{{}}</{name}>").format(Markup("").join(map(escape, parts)))


def _bracketed(inner: Markup) -> Markup:
    return _tag("mrow", _tag("mo", "("), inner, _tag("mo", ")"))
