"""Text as markup of a page: powers of ten, fewer digits, formulas as MathML, words linked to the glossary."""

import ast
import math
import re
from collections.abc import Mapping

from markupsafe import Markup, escape

from scalevec.analysis.formula.expressions import read
from scalevec.analysis.report.glossary import MEANINGS

_EXPONENT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-])0*(\d+)(?![\w.])")
_DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]|e[+-])")
_COMMON = ("cell", "cluster", "look", "pair", "prediction", "rung", "setting", "trunk", "tuned")
"""Words that stand everywhere and are linked where a template says so."""
_RARE = sorted({*MEANINGS} - {*_COMMON}, key=len, reverse=True)
_WORD = re.compile(rf"\b({'|'.join(map(re.escape, _RARE))})\b", re.IGNORECASE)
_GREEK = dict(zip(("alpha", "beta", "gamma", "delta", "eta", "lambda"), "αβγδηλ", strict=True))
_NO_TEXT = re.compile(
    r"(<(?:script\b.*?</script|style\b.*?</style|svg\b.*?</svg|title\b.*?</title|[^>]*)>)", re.DOTALL
)
_DIGITS = 3
"""Significant digits of a number on the page."""


def powers(text: object) -> Markup:
    """``3.6e+11`` as 3.6 × 10 with a raised 11 and three digits at most; everything else is escaped."""
    return Markup(_EXPONENT.sub(_power, str(escape(text))))


def _power(number: re.Match[str]) -> str:
    sign = "−" if number[2] == "-" else ""
    factor = number[1] if len(number[1]) <= _DIGITS + 1 else f"{float(number[1]):.{_DIGITS}g}"
    return f"{'' if factor == '1' else f'{factor} × '}10<sup>{sign}{number[3]}</sup>"


def short(text: object) -> str:
    """``text`` with decimal fractions of three digits; from 1 to 10, where losses are, to a thousandth."""
    return _DECIMAL.sub(_shorter, str(text))


def _shorter(number: re.Match[str]) -> str:
    value, decimals = float(number[0]), len(number[0].partition(".")[2])
    if value == 0:
        return number[0]
    wanted = _DIGITS if 1 <= value < 10 else max(0, _DIGITS - 1 - math.floor(math.log10(value)))
    return number[0] if decimals <= wanted else f"{value:.{wanted}f}"


class Words:
    """The words of a page that are explained at its end; ``used`` are those that were linked."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def linked(self, text: object) -> Markup:
        """``text`` as markup, with a link to the meaning of each known word where it first stands."""
        seen: set[str] = set()

        def link(match: re.Match[str]) -> str:
            word = next(word for word in _RARE if word.lower() == match[0].lower())
            is_first = word not in seen
            seen.add(word)
            return str(self.term(word, match[0])) if is_first else match[0]

        return Markup(_WORD.sub(link, str(powers(text))))

    def term(self, word: str, shown: str = "") -> Markup:
        """``shown`` (by default ``word``) with a link to the meaning of ``word``."""
        self.used.add(word)
        return Markup('<a class="term" href="#{}">{}</a>').format(anchor(word), shown or word)

    def meanings(self) -> dict[str, str]:
        """The linked words with their meanings, in alphabetical order."""
        return {word: MEANINGS[word] for word in sorted(self.used, key=str.lower)}


def with_whole_names(page: str, names: Mapping[str, str]) -> str:
    """``page`` with the whole of each short one of ``names`` shown where a reader hovers over it."""
    if not names:
        return page
    titles = {str(escape(short)): f'<abbr title="{escape(name)}">' for name, short in names.items()}
    pattern = re.compile("|".join(map(re.escape, titles)))
    parts = _NO_TEXT.split(page)
    parts[::2] = [pattern.sub(lambda m: f"{titles[m[0]]}{m[0]}</abbr>", part) for part in parts[::2]]
    return "".join(parts)


def anchor(word: str) -> str:
    """The id of a word's meaning."""
    return f"word-{word.lower().replace(' ', '-')}"


def formula(text: str) -> Markup:
    """A formula such as ``L = E + A/N^alpha`` as MathML; as code where it is written otherwise."""
    law, *clauses = text.split(";")
    try:
        sides = [_mathml(read(part)) for part in law.split(" = ")]
    except (ValueError, KeyError, TypeError):
        return Markup("<code>{}</code>").format(text)
    shown = Markup("<mo>=</mo>").join(sides)
    after = Markup("; {}").format(";".join(clauses).strip()) if clauses else Markup("")
    return Markup('<math alttext="{}"><mrow>{}</mrow></math>{}').format(law.strip(), shown, after)


_STRENGTH: dict[type[ast.operator], int] = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 4, ast.Pow: 3}
_SIGN: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "−", ast.Mult: "\N{INVISIBLE TIMES}"}


def _mathml(node: ast.expr, within: int = 0) -> Markup:
    """``node`` in parentheses where it binds less than what it is ``within``."""
    match node:
        case ast.BinOp(left, ast.Div(), right):
            parts = (Markup("<mrow>{}</mrow>").format(_mathml(part)) for part in (left, right))
            return Markup("<mfrac>{}{}</mfrac>").format(*parts)
        case ast.BinOp(left, ast.Pow(), right):
            base = Markup("<mrow>{}</mrow>").format(_mathml(left, 5))
            return Markup("<msup>{}<mrow>{}</mrow></msup>").format(base, _mathml(right))
        case ast.BinOp(left, operator, right):
            strength = _STRENGTH[type(operator)]
            sign = Markup("<mo>{}</mo>").format(_SIGN[type(operator)])
            inner = _mathml(left, strength) + sign + _mathml(right, strength + (sign == "−"))
            return inner if strength >= within else _bracketed(inner)
        case ast.UnaryOp(ast.USub(), operand):
            return Markup("<mo>−</mo>") + _mathml(operand, 2)
        case ast.Call(ast.Name(name), arguments):
            inner = Markup("<mo>,</mo>").join(_mathml(argument) for argument in arguments)
            return Markup("<mi>{}</mi>").format(name) + _bracketed(inner)
        case ast.Name(name):
            name = _GREEK.get(name, name)
            first, _, below = name.partition("_")
            if below:
                return Markup("<msub><mi>{}</mi><mi>{}</mi></msub>").format(first, below.replace("_", " "))
            return Markup("<mi>{}</mi>").format(name)
        case ast.Constant(value):
            return Markup("<mn>{}</mn>").format(value)
    raise TypeError(f"{ast.dump(node)} is no part of a formula")


def _bracketed(inner: Markup) -> Markup:
    return Markup("<mrow><mo>(</mo>{}<mo>)</mo></mrow>").format(inner)
