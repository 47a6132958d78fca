"""A law as its user writes it, ``E + A/N^alpha``: a small grammar, never Python's, and exact derivatives.

Sums, products, powers and a few functions become a list of steps, each on earlier ones and each held once, so
that the first and second derivatives share what they have in common. Nothing here needs numpy.

    formula: sum {";" ("columns" | "positive") name {"," name} | ";" "start" name "=" number {"," ...}}
    sum: product {("+" | "-") product};  product: signed {("*" | "/") signed};  signed: ["-" | "+"] power
    power: atom ["^" signed];  atom: number | name | function "(" sum {"," sum} ")" | "(" sum ")"
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scalevec.analysis.errors import DataError

LONGEST_FORMULA = 500
DEEPEST = 30
MOST_PARAMETERS = 12
FUNCTIONS = {"exp": 1, "log": 1, "sqrt": 1, "sigmoid": 1, "min": 2, "max": 2}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<sign>\S))"
)
_CLAUSES = ("columns", "positive", "start")

Step = tuple[str, float | str | int, int]
"""An operation and what it is of: a number, a name, or the places of one or two earlier steps."""


@dataclass
class FormulaSteps:
    """FormulaSteps in the order in which they are computed; the same step is held once."""

    steps: list[Step] = field(default_factory=list)
    places: dict[Step, int] = field(default_factory=dict)

    def _put(self, operation: str, first: float | str | int, second: int = -1) -> int:
        step = (operation, first, second)
        if step not in self.places:
            self.places[step] = len(self.steps)
            self.steps.append(step)
        return self.places[step]

    def is_a(self, index: int, operation: str) -> bool:
        """Whether the step at ``index`` is an ``operation``."""
        return self.steps[index][0] == operation

    def _value(self, index: int) -> float | None:
        operation, value, _ = self.steps[index]
        return float(value) if operation == "number" else None

    def number(self, value: float) -> int:
        """A number. All of these methods return the place of their step."""
        return self._put("number", value)

    def name(self, name: str) -> int:
        """A column or a parameter."""
        return self._put("name", name)

    def add(self, a: int, b: int) -> int:
        """a + b."""
        left, right = self._value(a), self._value(b)
        if left is not None and right is not None:
            return self.number(left + right)
        if left == 0:
            return b
        return a if right == 0 else self._put("+", min(a, b), max(a, b))

    def times(self, a: int, b: int) -> int:
        """a b."""
        left, right = self._value(a), self._value(b)
        if left is not None and right is not None:
            return self.number(left * right)
        if right is not None:
            return self.times(b, a)
        if left is not None:
            if left == 0 or left == 1:
                return b if left else a
            operation, first, second = self.steps[b]
            inner = self._value(int(first)) if operation == "*" else None
            return self._put("*", a, b) if inner is None else self.times(self.number(left * inner), second)
        if self.is_a(a, "exp") and self.is_a(b, "exp"):
            return self.exp(self.add(int(self.steps[a][1]), int(self.steps[b][1])))
        return self._put("*", min(a, b), max(a, b))

    def minus(self, a: int) -> int:
        """-a."""
        return self.times(self.number(-1.0), a)

    def power(self, a: int, b: int) -> int:
        """a^b; where b is no number, exp(b log a)."""
        exponent, base = self._value(b), self._value(a)
        if exponent == 0:
            return self.number(1.0)
        if exponent == 1:
            return a
        if exponent is None or self.is_a(a, "exp"):
            return self.exp(self.times(b, self.log(a)))
        if base is not None and (base > 0 or (base < 0 and exponent % 1 == 0)):
            try:
                return self.number(base**exponent)
            except OverflowError:
                return self.number(math.inf)
        return self._put("^", a, b)

    def exp(self, a: int) -> int:
        """exp a."""
        return self.number(1.0) if self._value(a) == 0 else self._put("exp", a)

    def log(self, a: int) -> int:
        """log a; of a product with an exponential their sum."""
        operation, first, second = self.steps[a]
        if operation == "exp":
            return int(first)
        if operation == "number" and float(first) > 0:
            return self.number(math.log(float(first)))
        if operation == "*":
            for factor, other in ((int(first), second), (second, int(first))):
                if self.is_a(factor, "exp"):
                    return self.add(int(self.steps[factor][1]), self.log(other))
        return self._put("log", a)

    def call(self, function: str, *of: int) -> int:
        """One of :data:`FUNCTIONS`, or ``step``, which is one from zero on."""
        if function == "sqrt":
            return self.power(of[0], self.number(0.5))
        if function == "min":
            return self.minus(self.call("max", *map(self.minus, of)))
        if function in ("exp", "log"):
            return self.exp(of[0]) if function == "exp" else self.log(of[0])
        return self._put(function, *of)

    def again(self, operation: str, first: float | str | int, second: int) -> int:
        """The step (operation, first, second), simplified."""
        if operation in ("number", "name"):
            return self._put(operation, first)
        a = int(first)
        by_sign: dict[str, Callable[[int, int], int]] = {"+": self.add, "*": self.times, "^": self.power}
        if operation in by_sign:
            return by_sign[operation](a, second)
        return self.call(operation, a, second) if operation == "max" else self.call(operation, a)

    def replaced(self, root: int, values: Mapping[str, int], into: "FormulaSteps") -> int:
        """The step ``root`` in ``into``, where names stand for the steps ``values`` of it."""
        new: list[int] = []
        for operation, first, second in self.steps[: root + 1]:
            if operation == "name" and str(first) in values:
                new.append(values[str(first)])
            elif operation in ("number", "name"):
                new.append(into.again(operation, first, second))
            else:
                new.append(into.again(operation, new[int(first)], new[second] if second >= 0 else -1))
        return new[root]

    def needed(self, *roots: int) -> list[int]:
        """The places that ``roots`` are computed from, and their own, in order."""
        wanted = set(roots)
        for index in range(max(roots), -1, -1):
            operation, first, second = self.steps[index]
            if index in wanted and operation not in ("number", "name"):
                wanted |= {int(first), second} - {-1}
        return sorted(wanted)

    def derivative(self, root: int, name: str) -> int:
        """d root / d name."""
        zero = self.number(0.0)
        slopes: dict[int, int] = {}
        for index in self.needed(root):
            operation, first, second = self.steps[index]
            if operation in ("number", "name"):
                slopes[index] = self.number(float(operation == "name" and first == name))
                continue
            a, b = slopes[int(first)], slopes.get(second, zero)
            slopes[index] = zero if a == b == zero else self._slope(index, a, b)
        return slopes[root]

    def _slope(self, index: int, da: int, db: int) -> int:
        operation, first, b = self.steps[index]
        a = int(first)
        if operation == "+":
            return self.add(da, db)
        if operation == "*":
            return self.add(self.times(a, db), self.times(b, da))
        if operation == "^":
            less = self.power(a, self.number(float(self.steps[b][1]) - 1))
            return self.times(self.times(b, less), da)
        if operation == "exp":
            return self.times(index, da)
        if operation == "log":
            return self.times(self.power(a, self.number(-1.0)), da)
        if operation == "sigmoid":
            rest = self.call("sigmoid", self.minus(a))
            return self.times(self.times(index, rest), da)
        if operation == "max":
            above = self.call("step", self.add(a, self.minus(b)))
            below = self.add(self.number(1.0), self.minus(above))
            return self.add(self.times(above, da), self.times(below, db))
        return self.number(0.0)


@dataclass(frozen=True)
class Formula:
    """A parsed formula: ``root`` is its last step, ``names`` its names in the order of the text.

    ``marks`` are the places in the text of its steps; ``columns`` is None where the text does not list them,
    ``positive`` those parameters that are above zero, ``start`` where the search for the others begins.
    """

    text: str
    steps: FormulaSteps
    root: int
    names: tuple[str, ...]
    marks: Mapping[int, int]
    columns: tuple[str, ...] | None
    positive: tuple[str, ...] | None
    start: Mapping[str, float]

    @property
    def body(self) -> str:
        """The formula without its clauses."""
        return self.text.split(";", 1)[0].strip()

    def refuse(self, position: int, why: str) -> DataError:
        """The error ``why`` with the place in the text."""
        return refusal(self.text, position, why)


def refusal(text: str, position: int, why: str) -> DataError:
    """The error ``why``, with a caret below the place in the text."""
    first = max(0, position - 60)
    shown = "".join(c if c.isprintable() else "?" for c in text[first : position + 60])
    return DataError(f"formula, character {position + 1}: {why}\n  {shown}\n  {' ' * (position - first)}^")


def parsed(text: str) -> Formula:
    """Return the formula that ``text`` writes.

    Raises :class:`DataError` with the place in the text for anything else, and for one that is too long.
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
        clauses: dict[str, dict[str, float]] = {}
        while self._takes(";"):
            kind, word, position = self._next()
            if word not in _CLAUSES or word in clauses:
                raise refusal(self.text, position, f"expected one of {', '.join(_CLAUSES)}, each once")
            clauses[word] = self._clause(word == "start")
        kind, word, position = self.tokens[self.at]
        if kind != "end":
            raise refusal(self.text, position, f"{word!r} is not expected here; is an operator missing?")
        if not math.isfinite(self._constant(root)):
            raise refusal(self.text, 0, "it is no finite number")
        columns, positive = (tuple(clauses[name]) if name in clauses else None for name in _CLAUSES[:2])
        names = tuple(self.names)
        return Formula(
            self.text, self.steps, root, names, self.marks, columns, positive, clauses.get("start", {})
        )

    def _constant(self, root: int) -> float:
        operation, value, _ = self.steps.steps[root]
        return float(value) if operation == "number" else 0.0

    def _clause(self, with_values: bool) -> dict[str, float]:
        """The names that a clause lists, with their values."""
        given: dict[str, float] = {}
        while True:
            kind, name, position = self._next()
            if kind != "name" or name not in self.names or name in given:
                raise refusal(self.text, position, "expected a name of the formula, each once")
            given[name] = self._start() if with_values else 0.0
            if not self._takes(","):
                return given

    def _start(self) -> float:
        if not self._takes("="):
            raise refusal(self.text, self.tokens[self.at][2], "expected '=' and a number")
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

    def _sum(self) -> int:
        self.depth += 1
        if self.depth > DEEPEST:
            raise refusal(self.text, self.tokens[self.at][2], f"nested more than {DEEPEST} deep")
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
        self.depth += 1
        if self.depth > DEEPEST:
            raise refusal(self.text, self.tokens[self.at][2], f"nested more than {DEEPEST} deep")
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
