"""Formulas at numbers or arrays, with exact first and second derivatives by their parameters.

A :class:`Jet` computes its value and its derivatives when they are asked for, from those of its parts, so
that nothing is computed twice and a value alone costs no derivatives.
"""

import ast
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Slopes = Mapping[str, Any]
"""Parameter -> derivative by it; one that is zero everywhere is left out."""
Bends = Mapping[tuple[str, str], Any]
"""(parameter, parameter), in the order of their names -> second derivative."""


class Jet:
    """A value with its derivatives, which broadcast against each other."""

    value: Any
    first: Slopes
    second: Bends
    is_constant = False

    def __getattr__(self, name: str) -> Any:
        """Compute what was not asked for before; ``cached_property`` takes a lock each time."""
        if name not in ("value", "first", "second"):
            raise AttributeError(name)
        result = self.__dict__[name] = getattr(self, f"_{name}")()
        return result


class Constant(Jet):
    """A number or a column."""

    is_constant = True

    def __init__(self, value: Any) -> None:
        self.value, self.first, self.second = value, {}, {}


class Parameter(Jet):
    """What derivatives are by."""

    def __init__(self, name: str, value: Any) -> None:
        self.value, self.first, self.second = value, {name: 1.0}, {}


class _Sum(Jet):
    def __init__(self, a: Jet, b: Jet) -> None:
        self.a, self.b = a, b

    def _value(self) -> Any:
        return self.a.value + self.b.value

    def _first(self) -> Slopes:
        return _added(self.a.first, self.b.first)

    def _second(self) -> Bends:
        return _added(self.a.second, self.b.second)


class _Product(Jet):
    def __init__(self, a: Jet, b: Jet) -> None:
        self.a, self.b = a, b

    def _value(self) -> Any:
        return self.a.value * self.b.value

    def _first(self) -> Slopes:
        return _added(_scaled(self.a.first, self.b.value), _scaled(self.b.first, self.a.value))

    def _second(self) -> Bends:
        own = _added(_scaled(self.a.second, self.b.value), _scaled(self.b.second, self.a.value))
        return _added(own, _crossed(self.a.first, self.b.first))


class _Function(Jet):
    """A function of another: ``slope`` and ``bend`` are its derivatives by its argument and own value."""

    def __init__(self, of: Jet, function: Callable[[Any], Any], slope: Any, bend: Any) -> None:
        self.of, self.function, self.slope, self.bend = of, function, slope, bend

    def _value(self) -> Any:
        return self.function(self.of.value)

    def _first(self) -> Slopes:
        return _scaled(self.of.first, self.slope(self.of.value, self.value))

    def _second(self) -> Bends:
        x, v, slopes = self.of.value, self.value, self.of.first
        bent = self.first if self.bend is self.slope else _scaled(slopes, self.bend(x, v))
        outer = {(i, j): _times(bent[j], slopes[i]) for i in slopes for j in slopes if i <= j}
        return _added(_scaled(self.of.second, self.slope(x, v)), outer)


class _Exp(_Function):
    def __init__(self, of: Jet) -> None:
        super().__init__(of, np.exp, _own_value, _own_value)


def _own_value(_x: Any, value: Any) -> Any:
    return value


def _times(a: Any, b: Any) -> Any:
    """a b, without a multiplication by one."""
    if isinstance(a, float) and a == 1:
        return b
    return a if isinstance(b, float) and b == 1 else a * b


def _added(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> dict[Any, Any]:
    result = dict(a)
    for key, part in b.items():
        result[key] = result[key] + part if key in result else part
    return result


def _scaled(parts: Mapping[Any, Any], factor: Any) -> dict[Any, Any]:
    return {key: _times(part, factor) for key, part in parts.items()}


def _crossed(a: Slopes, b: Slopes) -> Bends:
    """The second derivatives of a product that come from first ones."""
    result: dict[tuple[str, str], Any] = {}
    for i, of_a in a.items():
        for j, of_b in b.items():
            part = _times(of_a, of_b) * (2.0 if i == j else 1.0)
            result = _added(result, {(min(i, j), max(i, j)): part})
    return result


def add(a: Jet, b: Jet) -> Jet:
    """a + b."""
    return Constant(a.value + b.value) if a.is_constant and b.is_constant else _Sum(a, b)


def times(a: Jet, b: Jet) -> Jet:
    """a b."""
    if b.is_constant:
        a, b = b, a
    if a.is_constant and b.is_constant:
        return Constant(a.value * b.value)
    if a.is_constant and isinstance(b, _Product) and b.a.is_constant:
        return _Product(Constant(a.value * b.a.value), b.b)
    return exp(add(a.of, b.of)) if isinstance(a, _Exp) and isinstance(b, _Exp) else _Product(a, b)


def minus(a: Jet) -> Jet:
    """-a."""
    return times(Constant(-1.0), a)


def power(a: Jet, b: Jet) -> Jet:
    """a^b; where b is no number, exp(b log a)."""
    if not b.is_constant or np.ndim(b.value) or isinstance(a, _Exp):
        return exp(times(b, log(a)))
    n = float(b.value)
    if n == 1:
        return a
    if a.is_constant:
        return Constant(1.0 / a.value if n == -1 else np.power(a.value, n))
    return _Function(
        a, lambda x: x**n, lambda x, _: n * x ** (n - 1), lambda x, _: n * (n - 1) * x ** (n - 2)
    )


def exp(a: Jet) -> Jet:
    """exp a."""
    return Constant(np.exp(a.value)) if a.is_constant else _Exp(a)


def log(a: Jet) -> Jet:
    """log a; of a product with an exponential their sum."""
    if isinstance(a, _Exp):
        return a.of
    if a.is_constant:
        return Constant(np.log(a.value))
    if isinstance(a, _Product) and (isinstance(a.a, _Exp) or isinstance(a.b, _Exp)):
        return add(log(a.a), log(a.b))
    return _Function(a, np.log, lambda x, _: 1 / x, lambda x, _: -1 / x**2)


def sigmoid(a: Jet) -> Jet:
    """1/(1 + exp -a)."""
    return _Function(
        a,
        lambda x: np.exp(-np.logaddexp(0.0, -x)),
        lambda _, v: v * (1 - v),
        lambda _, v: v * (1 - v) * (1 - 2 * v),
    )


def largest(a: Jet, b: Jet) -> Jet:
    """The larger of both."""
    above = np.asarray(a.value >= b.value, dtype=float)
    return add(times(Constant(above), a), times(Constant(1 - above), b))


_OPERATORS: dict[type[ast.operator], Callable[[Jet, Jet], Jet]] = {
    ast.Add: add,
    ast.Sub: lambda a, b: add(a, minus(b)),
    ast.Mult: times,
    ast.Div: lambda a, b: times(a, power(b, Constant(np.float64(-1)))),
    ast.Pow: power,
}
_FUNCTIONS: dict[str, Callable[..., Jet]] = {
    "exp": exp,
    "log": log,
    "sqrt": lambda a: power(a, Constant(np.float64(0.5))),
    "sigmoid": sigmoid,
    "max": largest,
    "min": lambda a, b: minus(largest(minus(a), minus(b))),
}


def evaluate(node: ast.expr, names: Mapping[str, Jet]) -> Jet:
    """What ``node``, of a formula that was read, is where its names are ``names``."""
    match node:
        case ast.Name(name):
            return names[name]
        case ast.Constant(value):
            return Constant(np.float64(value))
        case ast.UnaryOp(sign, operand):
            inner = evaluate(operand, names)
            return minus(inner) if isinstance(sign, ast.USub) else inner
        case ast.BinOp(left, operator, right):
            return _OPERATORS[type(operator)](evaluate(left, names), evaluate(right, names))
        case ast.Call(ast.Name(name), arguments):
            return _FUNCTIONS[name](*(evaluate(argument, names) for argument in arguments))
    raise TypeError(f"{ast.dump(node)} is no part of a formula")
