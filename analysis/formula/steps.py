"""The steps in which a formula is computed, each on earlier ones and held once, and their derivatives."""

import math
from dataclasses import dataclass, field

Step = tuple[str, float | str | int, int]
"""An operation and what it is of: a number, a name, or the places of one or two earlier steps."""


@dataclass
class FormulaSteps:
    """Operations in the order in which they are computed; the same one is held once."""

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

    def is_zero(self, index: int) -> bool:
        """Whether the step at ``index`` is the number zero."""
        return self.steps[index][:2] == ("number", 0.0)

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
