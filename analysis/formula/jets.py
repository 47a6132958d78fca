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

Rule = Callable[["Jet"], Any]
Curve = Callable[[Any, Any], Any]


class Jet:
    """A value with its derivatives, which broadcast against each other.

    Each is told by a function of the jet, which is called once. ``parts`` are the factors of a product, and
    what an exponential is of.
    """

    value: Any
    first: Slopes
    second: Bends

    def __init__(
        self, value: Rule, first: Rule, second: Rule, parts: "tuple[Jet, ...]" = (), *, varies: bool = True
    ) -> None:
        self.rules = {"value": value, "first": first, "second": second}
        self.parts, self.is_constant = parts, not varies

    def __getattr__(self, name: str) -> Any:
        """Compute what was not asked for before; ``cached_property`` takes a lock each time."""
        if name not in ("value", "first", "second"):
            raise AttributeError(name)
        result = self.__dict__[name] = self.rules[name](self)
        return result

    @property
    def is_exponential(self) -> bool:
        """Whether the only part is its logarithm."""
        return len(self.parts) == 1


def constant(value: Any) -> Jet:
    """A number or a column."""
    return Jet(lambda _: value, lambda _: {}, lambda _: {}, varies=False)


def parameter(name: str, value: Any) -> Jet:
    """What derivatives are by."""
    return Jet(lambda _: value, lambda _: {name: 1.0}, lambda _: {})


def _function(
    of: Jet, value: Callable[[Any], Any], slope: Curve, bend: Curve | None, parts: tuple[Jet, ...] = ()
) -> Jet:
    """A function of another jet; ``slope`` and ``bend`` are its derivatives by its argument and own value.

    Without ``bend`` both are the same.
    """

    def first(jet: Jet) -> Slopes:
        return _scaled(of.first, slope(of.value, jet.value))

    def second(jet: Jet) -> Bends:
        bent = _scaled(of.first, bend(of.value, jet.value)) if bend else jet.first
        outer = {(i, j): _times(bent[j], of.first[i]) for i in bent for j in bent if i <= j}
        return _added(_scaled(of.second, slope(of.value, jet.value)), outer)

    return Jet(lambda _: value(of.value), first, second, parts)


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
    if a.is_constant and b.is_constant:
        return constant(a.value + b.value)
    return Jet(
        lambda _: a.value + b.value, lambda _: _added(a.first, b.first), lambda _: _added(a.second, b.second)
    )


def times(a: Jet, b: Jet) -> Jet:
    """a b."""
    if b.is_constant:
        a, b = b, a
    if a.is_constant and b.is_constant:
        return constant(a.value * b.value)
    if a.is_constant and b.parts and b.parts[0].is_constant:
        return times(constant(a.value * b.parts[0].value), b.parts[1])
    if a.is_exponential and b.is_exponential:
        return exp(add(a.parts[0], b.parts[0]))

    def second(_: Jet) -> Bends:
        curvature = _added(_scaled(a.second, b.value), _scaled(b.second, a.value))
        return _added(curvature, _crossed(a.first, b.first))

    return Jet(
        lambda _: a.value * b.value,
        lambda _: _added(_scaled(a.first, b.value), _scaled(b.first, a.value)),
        second,
        (a, b),
    )


def minus(a: Jet) -> Jet:
    """-a."""
    return times(constant(-1.0), a)


def power(a: Jet, b: Jet) -> Jet:
    """a^b; where b is no number, exp(b log a)."""
    if not b.is_constant or np.ndim(b.value) or a.is_exponential:
        return exp(times(b, log(a)))
    n = float(b.value)
    if n == 1:
        return a
    if a.is_constant:
        return constant(1.0 / a.value if n == -1 else np.power(a.value, n))
    return _function(
        a, lambda x: x**n, lambda x, _: n * x ** (n - 1), lambda x, _: n * (n - 1) * x ** (n - 2)
    )


def exp(a: Jet) -> Jet:
    """exp a."""
    return constant(np.exp(a.value)) if a.is_constant else _function(a, np.exp, lambda _, v: v, None, (a,))


def log(a: Jet) -> Jet:
    """log a; of a product with an exponential their sum."""
    if a.is_exponential:
        return a.parts[0]
    if a.is_constant:
        return constant(np.log(a.value))
    if any(part.is_exponential for part in a.parts):
        return add(log(a.parts[0]), log(a.parts[1]))
    return _function(a, np.log, lambda x, _: 1 / x, lambda x, _: -1 / x**2)


def sigmoid(a: Jet) -> Jet:
    """1/(1 + exp -a)."""
    return _function(
        a,
        lambda x: np.exp(-np.logaddexp(0.0, -x)),
        lambda _, v: v * (1 - v),
        lambda _, v: v * (1 - v) * (1 - 2 * v),
    )


def largest(a: Jet, b: Jet) -> Jet:
    """The larger of both."""
    above = np.asarray(a.value >= b.value, dtype=float)
    return add(times(constant(above), a), times(constant(1 - above), b))


_OPERATORS: dict[type[ast.operator], Callable[[Jet, Jet], Jet]] = {
    ast.Add: add,
    ast.Sub: lambda a, b: add(a, minus(b)),
    ast.Mult: times,
    ast.Div: lambda a, b: times(a, power(b, constant(np.float64(-1)))),
    ast.Pow: power,
}
_FUNCTIONS: dict[str, Callable[..., Jet]] = {
    "exp": exp,
    "log": log,
    "sqrt": lambda a: power(a, constant(np.float64(0.5))),
    "sigmoid": sigmoid,
    "max": largest,
    "min": lambda a, b: minus(largest(minus(a), minus(b))),
}


def evaluate(node: ast.expr, names: Mapping[str, Jet]) -> Jet:
    """What ``node``, of a formula that was read, is where its names are ``names``."""
    match node:
        case ast.Name(name):
            return names[name]
        case ast.Constant(int() | float() as value):
            return constant(np.float64(value))
        case ast.UnaryOp(sign, operand):
            inner = evaluate(operand, names)
            return minus(inner) if isinstance(sign, ast.USub) else inner
        case ast.BinOp(left, operator, right):
            return _OPERATORS[type(operator)](evaluate(left, names), evaluate(right, names))
        case ast.Call(ast.Name(name), arguments):
            return _FUNCTIONS[name](*(evaluate(argument, names) for argument in arguments))
    raise TypeError(f"{ast.dump(node)} is no part of a formula")
