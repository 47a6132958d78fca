"""What a plugin declares, read from its source text: its code runs in workers alone.

``scalevec.plugins`` documents the decorators; their arguments, and the defaults of options, are literals.
"""

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from scalevec.analysis.formula.formula import parsed
from scalevec.analysis.registry import LawEntry
from scalevec.model.fields import OptionSpec, Range
from scalevec.model.optimization import RegisteredOptimizer, RegisteredSchedule
from scalevec.model.strategies import Reparameterization
from scalevec.sweeps.plugins.locate import Plugin, PluginError

DOOR = "scalevec.plugins"
KINDS = ("optimizer", "schedule", "reparameterization", "law")
_NUMBER = r"\s*(-?(?:inf|[0-9.]+(?:e-?[0-9]+)?))\s*"
_INTERVAL = re.compile(rf"([\[(]){_NUMBER},{_NUMBER}([\])])")


def declared_in(plugin: Plugin) -> dict[str, dict[str, Any]]:
    """Return by each of KINDS what ``plugin`` declares, by its name in a sweep file.

    Raises ``PluginError`` with the line that cannot be read.
    """
    declared: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    try:
        tree = ast.parse(plugin.text)
    except (SyntaxError, ValueError) as error:
        raise PluginError(f"{plugin.module}: is no Python that can be read ({error})") from None
    for kind, call, function in _declarations(tree):
        try:
            name, entry = _entry(plugin, kind, call, function)
            declared[kind][_name(name)] = entry
        except (TypeError, ValueError) as error:
            raise PluginError(f"{plugin.module}, line {call.lineno}: {kind}: {error}") from None
    if not any(declared.values()):
        raise PluginError(f"{plugin.module}: declares none of {', '.join(KINDS)} (see docs/plugins.md)")
    return declared


def _declarations(tree: ast.Module) -> Iterator[tuple[str, ast.Call, ast.FunctionDef | None]]:
    """The calls of names of ``scalevec.plugins`` at the top of a module: decorators, and laws alone."""
    names = _names_of_the_door(tree)
    for node in tree.body:
        calls: list[ast.expr] = []
        if isinstance(node, ast.FunctionDef):
            calls = node.decorator_list
        elif isinstance(node, ast.Expr):
            calls = [node.value]
        for call in calls:
            if isinstance(call, ast.Call) and (kind := names.get(ast.unparse(call.func))):
                yield kind, call, node if isinstance(node, ast.FunctionDef) else None


def _names_of_the_door(tree: ast.Module) -> dict[str, str]:
    """How this module may write each of KINDS, by its imports."""
    names = {f"{DOOR}.{kind}": kind for kind in KINDS}
    for node in tree.body:
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            whole = f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
            written = alias.asname or alias.name
            names |= {
                written + name.removeprefix(whole): kind
                for name, kind in list(names.items())
                if name == whole or name.startswith(f"{whole}.")
            }
    return names


def _entry(plugin: Plugin, kind: str, call: ast.Call, function: ast.FunctionDef | None) -> tuple[str, Any]:
    words = [ast.literal_eval(argument) for argument in call.args]
    given = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    if kind == "law":
        return _law(*words, **given)
    if function is None:
        raise ValueError("stands above a function")
    builders: dict[str, Callable[..., tuple[str, Any]]] = {
        "optimizer": _optimizer,
        "schedule": _schedule,
        "reparameterization": _arithmetic,
    }
    return builders[kind](plugin, function, *words, **given)


def _law(name: str, formula: str, *, source: str) -> tuple[str, LawEntry]:
    parsed(formula)
    return name, LawEntry(formula, source)


def _arithmetic(
    plugin: Plugin, function: ast.FunctionDef, name: str, *, beta: float, alpha: float
) -> tuple[str, Reparameterization]:
    factory = f"{plugin.module}:{function.name}"
    return name, Reparameterization(factory, float(beta), float(alpha), plugin.identity)


def _schedule(
    plugin: Plugin, function: ast.FunctionDef, name: str, *, allowed: Mapping[str, Any] | None = None
) -> tuple[str, RegisteredSchedule]:
    factory, options = f"{plugin.module}:{function.name}", _options(plugin, function, allowed or {})
    return name, RegisteredSchedule(factory, options, plugin=plugin.identity)


def _optimizer(
    plugin: Plugin,
    function: ast.FunctionDef,
    name: str,
    *,
    allowed: Mapping[str, Any] | None = None,
    state: float = 2,
    matrices_only: bool = False,
) -> tuple[str, RegisteredOptimizer]:
    factory, options = f"{plugin.module}:{function.name}", _options(plugin, function, allowed or {})
    entry = RegisteredOptimizer(
        factory, options, matrices_only=matrices_only, state_per_parameter=state, plugin=plugin.identity
    )
    return name, entry


def _name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,39}", name):
        raise ValueError(f"name is {name!r}; allowed: up to 40 lower-case letters, digits, - and _")
    return name


def _options(plugin: Plugin, function: ast.FunctionDef, allowed: Mapping[str, Any]) -> dict[str, OptionSpec]:
    """The keyword-only parameters of ``function``, whose defaults are the options'."""
    options = {}
    parameters = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    for parameter, default in parameters:
        if default is None:
            raise ValueError(f"option {parameter.arg} of {function.name} has no default")
        value = ast.literal_eval(default)
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"option {parameter.arg} is {value!r}; allowed: a number, true, false or text")
        if isinstance(parameter.annotation, ast.Name) and parameter.annotation.id == "float":
            value = float(value)
        options[parameter.arg] = _spec(plugin, parameter.arg, value, allowed.get(parameter.arg))
    if unknown := sorted(allowed.keys() - options.keys()):
        raise ValueError(f"allowed names {unknown[0]!r}, which is no keyword-only parameter")
    return options


def _spec(plugin: Plugin, name: str, default: Any, allowed: Any) -> OptionSpec:
    about = f"Option of the plugin {plugin.module}."
    if allowed is None:
        return OptionSpec(default, about)
    if isinstance(allowed, str):
        spec = OptionSpec(default, about, _range(allowed))
    else:
        spec = OptionSpec(default, about, choices=tuple(map(str, allowed)))
    spec.check(name, default)
    return spec


def _range(text: str) -> Range:
    """The numbers of an interval such as ``[0, 1)``."""
    match = _INTERVAL.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no interval like [0, 1) or (0, inf)")
    left, low, high, right = match[1], float(match[2]), float(match[3]), match[4]

    def holds(value: float) -> bool:
        above = low <= value if left == "[" else low < value
        below = value <= high if right == "]" else value < high
        return above and below and math.isfinite(value)

    return f"a number in {text.strip()}", holds
