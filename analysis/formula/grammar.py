"""A law as its user writes it, ``E + A/N^alpha``: a small grammar, never Python's, and exact derivatives.

Sums, products, powers and a few functions become a list of steps, each on earlier ones and each held once, so
that the first and second derivatives share what they have in common. Nothing here needs numpy.

    formula: sum {";" clause};  clause: ("columns" | "positive") name {"," name}
        | ("start" | "fix") name "=" number {"," ...} | "bounds" name "=" [number] ":" [number] {"," ...}
    sum: product {("+" | "-") product};  product: signed {("*" | "/") signed};  signed: ["-" | "+"] power
    power: atom ["^" signed];  atom: number | name | function "(" sum {"," sum} ")" | "(" sum ")"
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from scalevec.analysis.errors import FormulaError
from scalevec.analysis.formula.steps import FormulaSteps

LONGEST_FORMULA = 500
DEEPEST = 30
MOST_PARAMETERS = 12
FUNCTIONS = {"exp": 1, "log": 1, "sqrt": 1, "sigmoid": 1, "min": 2, "max": 2}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<sign>\S))"
)
_CLAUSES = ("columns", "positive", "start", "fix", "bounds")
Range = tuple[float, float]
"""Between what a parameter lies; an open side is infinite."""


@dataclass(frozen=True)
class Formula:
    """A parsed formula: ``root`` is its last step, ``names`` its names in the order of the text.

    ``marks`` are the places in the text of its steps; ``columns`` is None where the text does not list them,
    ``positive`` those parameters that are above zero, ``start`` where the search for the others begins;
    ``fix`` has the values of those that are not fitted, ``bounds`` those between which others lie.
    """

    text: str
    steps: FormulaSteps
    root: int
    names: tuple[str, ...]
    marks: Mapping[int, int]
    columns: tuple[str, ...] | None
    positive: tuple[str, ...] | None
    start: Mapping[str, float]
    fix: Mapping[str, float]
    bounds: Mapping[str, Range]

    @property
    def body(self) -> str:
        """The formula without its clauses."""
        return self.text.split(";", 1)[0].strip()

    def refuse(self, position: int, why: str) -> FormulaError:
        """The error ``why`` with the place in the text."""
        return refusal(self.text, position, why)


def refusal(text: str, position: int, why: str) -> FormulaError:
    """The error ``why``, with a caret below the place in the text."""
    first = max(0, position - 60)
    shown = "".join(c if c.isprintable() else "?" for c in text[first : position + 60])
    message = f"formula, character {position + 1}: {why}\n  {shown}\n  {' ' * (position - first)}^"
    return FormulaError(message, why)


def parsed(text: str) -> Formula:
    """Return the formula that ``text`` writes.

    Raises :class:`FormulaError` with the place in the text for anything else, and for one that is too long.
    """
    if len(text) > LONGEST_FORMULA:
        raise refusal(text, LONGEST_FORMULA, f"it has {len(text)} characters; allowed: {LONGEST_FORMULA}")
    return _Parser(text).formula()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            (str(match.lastgroup), match[str(match.lastgroup)], match.start(str(match.lastgroup)))
            for match in _TOKEN.finditer(text)
        ]
        self.tokens.append(("end", "", len(text)))
        self.at, self.depth, self.unmarked = 0, 0, 0
        self.steps, self.names, self.marks = FormulaSteps(), dict[str, int](), dict[int, int]()

    def formula(self) -> Formula:
        root = self._sum()
        clauses: dict[str, dict[str, Range]] = {}
        while self._takes(";"):
            kind, word, position = self._next()
            if word not in _CLAUSES:
                raise refusal(self.text, position, f"expected one of {', '.join(_CLAUSES)}")
            # A clause that comes later, from the command line, stands over one before.
            clauses.setdefault(word, {}).update(self._clause(word))
        kind, word, position = self.tokens[self.at]
        if kind != "end":
            raise refusal(self.text, position, f"{word!r} is not expected here; is an operator missing?")
        if not math.isfinite(self._constant(root)):
            raise refusal(self.text, 0, "it is no finite number")
        columns, positive = (tuple(clauses[name]) if name in clauses else None for name in _CLAUSES[:2])
        names = tuple(self.names)
        start, fix = (
            {of: low for of, (low, _) in clauses.get(name, {}).items()} for name in ("start", "fix")
        )
        bounds = {name: ends for name, ends in clauses.get("bounds", {}).items() if name not in fix}
        return Formula(self.text, self.steps, root, names, self.marks, columns, positive, start, fix, bounds)

    def _constant(self, root: int) -> float:
        operation, value, _ = self.steps.steps[root]
        return float(value) if operation == "number" else 0.0

    def _clause(self, word: str) -> dict[str, Range]:
        """The names that a clause lists, with their values: twice the same where it takes one."""
        given: dict[str, Range] = {}
        while True:
            kind, name, position = self._next()
            if kind != "name" or name not in self.names or name in given:
                shown = ", ".join(list(self.names)[:MOST_PARAMETERS])
                raise refusal(self.text, position, f"expected a name of the formula ({shown}), each once")
            given[name] = (0.0, 0.0) if word in _CLAUSES[:2] else self._given(word == "bounds")
            if not self._takes(","):
                return given

    def _given(self, is_range: bool) -> Range:
        position = self.tokens[self.at][2]
        wanted = "LOW:HIGH, where one side may be left out" if is_range else "a number"
        if not self._takes("="):
            raise refusal(self.text, position, f"expected '=' and {wanted}")
        if not is_range:
            return (value := self._number(), value)
        low = -math.inf if self.tokens[self.at][1] == ":" else self._number()
        if not self._takes(":"):
            raise refusal(self.text, self.tokens[self.at][2], f"expected {wanted}")
        kind, word, _ = self.tokens[self.at]
        high = self._number() if kind == "number" or word == "-" else math.inf
        if not low < high or (low, high) == (-math.inf, math.inf):
            raise refusal(self.text, position, f"expected {wanted}, the low one first")
        return low, high

    def _number(self) -> float:
        sign = -1.0 if self._takes("-") else 1.0
        kind, word, position = self._next()
        if kind != "number" or not math.isfinite(float(word)):
            raise refusal(self.text, position, "expected a finite number")
        return sign * float(word)

    def _next(self) -> tuple[str, str, int]:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def _takes(self, *signs: str) -> str:
        """The next token if it is one of ``signs``, which is then behind us."""
        kind, word, _ = self.tokens[self.at]
        if kind != "sign" or word not in signs:
            return ""
        self.at += 1
        return word

    def _marked(self, step: int, position: int) -> int:
        # All steps since the last mark are of what stands here: those of its parts are marked already.
        for new in range(self.unmarked, len(self.steps.steps)):
            self.marks[new] = position
        self.unmarked = len(self.steps.steps)
        return step

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise refusal(self.text, self.tokens[self.at][2], f"nested more than {DEEPEST} deep")

    def _sum(self) -> int:
        self._deeper()
        result = self._product()
        while sign := self._takes("+", "-"):
            position = self.tokens[self.at - 1][2]
            part = self._product()
            result = self._marked(
                self.steps.add(result, part if sign == "+" else self.steps.minus(part)), position
            )
        self.depth -= 1
        return result

    def _product(self) -> int:
        result = self._signed()
        while sign := self._takes("*", "/"):
            position = self.tokens[self.at - 1][2]
            part = self._signed()
            if sign == "/":
                if self.steps.steps[part] == ("number", 0.0, -1):
                    raise refusal(self.text, position, "division by zero")
                part = self._marked(self.steps.power(part, self.steps.number(-1.0)), position)
            result = self._marked(self.steps.times(result, part), position)
        return result

    def _signed(self) -> int:
        self._deeper()
        if sign := self._takes("-", "+"):
            inner = self._signed()
            result = self.steps.minus(inner) if sign == "-" else inner
        else:
            result = self._atom()
            if self._takes("^"):
                position = self.tokens[self.at - 1][2]
                result = self._marked(self.steps.power(result, self._signed()), position)
        self.depth -= 1
        return result

    def _atom(self) -> int:
        kind, word, position = self._next()
        if kind == "number":
            return self.steps.number(float(word))
        if kind == "name" and self._takes("("):
            return self._call(word, position)
        if kind == "name":
            self.names.setdefault(word, position)
            return self._marked(self.steps.name(word), position)
        if word == "(":
            inner = self._sum()
            self._close(position)
            return inner
        raise refusal(self.text, position, "expected a number, a name, a function or '('")

    def _call(self, function: str, position: int) -> int:
        if function not in FUNCTIONS:
            raise refusal(self.text, position, f"no function {function!r}; allowed: {', '.join(FUNCTIONS)}")
        arguments = [self._sum()]
        while self._takes(","):
            arguments.append(self._sum())
        self._close(position)
        if len(arguments) != FUNCTIONS[function]:
            raise refusal(self.text, position, f"{function} takes {FUNCTIONS[function]} value(s)")
        return self._marked(self.steps.call(function, *arguments), position)

    def _close(self, opened: int) -> None:
        if not self._takes(")"):
            position = self.tokens[self.at][2]
            raise refusal(self.text, position, f"expected ')' for the '(' of character {opened + 1}")
