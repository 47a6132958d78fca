"""The registries with what plugins declare beside what is ours: read from their text, run in workers alone.

``scalevec.plugins`` documents the decorators; their arguments, and the defaults of options, are literals. An
entry of the same module is replaced, one of any other is taken: a name means one thing in a process.
"""

import ast
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from scalevec.analysis.formula.formula import parsed
from scalevec.analysis.registry import LAWS, LawEntry
from scalevec.model.fields import OptionSpec, Range
from scalevec.model.optimization import (
    OPTIMIZERS,
    OPTIONS,
    SCHEDULES,
    RegisteredOptimizer,
    RegisteredSchedule,
)
from scalevec.model.strategies import CHOICES, REPARAMETERIZATIONS, Reparameterization
from scalevec.sweeps.fields import FIELD_HELP, FIELD_TYPES, TRIAL_FIELDS
from scalevec.sweeps.plugins.locate import Plugin, PluginError

_REGISTRIES: dict[str, dict[str, Any]] = {
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "reparameterization": REPARAMETERIZATIONS,
    "law": LAWS,
}
KINDS = tuple(_REGISTRIES)
DOOR = "scalevec.plugins"
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
    # A later function of its name takes the place of one that is declared.
    last = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for kind, call, function in _declarations(tree):
        try:
            name, entry = _entry(plugin, kind, call, function)
            if name in declared[kind]:
                raise ValueError(f"{name!r} is declared twice")
            if function is not None and last[function.name] is not function:
                raise ValueError(f"{function.name} is defined again at line {last[function.name].lineno}")
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
    words = [_literal(argument) for argument in call.args]
    given = {str(keyword.arg): _literal(keyword.value) for keyword in call.keywords}
    if kind == "law":
        return _law(*words, **given)
    if function is None:
        raise ValueError("stands above a function")
    _require_two_arguments(function)
    factory = f"{plugin.module}:{function.name}"
    if kind == "reparameterization":
        return _arithmetic(factory, plugin, *words, **given)
    options = _options(plugin, function, given.pop("allowed", None) or {})
    return (_optimizer if kind == "optimizer" else _schedule)(factory, options, plugin, *words, **given)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(f"{ast.unparse(node)} is computed; write its value") from None


def _require_two_arguments(function: ast.FunctionDef) -> None:
    """Raise ``ValueError`` where ``function`` cannot be called with two arguments and its options."""
    of = function.args
    most = len(of.posonlyargs) + len(of.args)
    if not most - len(of.defaults) <= 2 <= (2 if of.vararg else most):
        raise ValueError(f"{function.name}({ast.unparse(of)}) takes no two arguments before its options")


def _law(name: str, formula: str, *, source: str) -> tuple[str, LawEntry]:
    parsed(formula)
    return name, LawEntry(formula, source)


def _arithmetic(
    factory: str, plugin: Plugin, name: str, *, beta: float, alpha: float
) -> tuple[str, Reparameterization]:
    return name, Reparameterization(factory, float(beta), float(alpha), plugin.identity)


def _schedule(
    factory: str, options: dict[str, OptionSpec], plugin: Plugin, name: str
) -> tuple[str, RegisteredSchedule]:
    return name, RegisteredSchedule(factory, options, plugin=plugin.identity)


def _optimizer(
    factory: str,
    options: dict[str, OptionSpec],
    plugin: Plugin,
    name: str,
    *,
    state: float = 2,
    matrices_only: bool = False,
) -> tuple[str, RegisteredOptimizer]:
    if isinstance(state, bool) or not isinstance(state, int | float) or not 0 <= state < math.inf:
        raise ValueError(f"state is {state!r}; allowed: a number of zero or more")
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
        value = _literal(default)
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"option {parameter.arg} is {value!r}; allowed: a number, true, false or text")
        if isinstance(parameter.annotation, ast.Name) and parameter.annotation.id == "float":
            if isinstance(value, str):
                raise ValueError(f"option {parameter.arg} is {value!r}; allowed: a number")
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


_owners: dict[tuple[str, str], str] = {}
"""The module of each kind and name that a plugin has brought."""


def register(plugin: Plugin) -> set[str]:
    """Make known what ``plugin`` declares; return the names of its options.

    Raises:
        PluginError: A name is taken, or an option's type differs from that of another of its name.
    """
    options: set[str] = set()
    declared = declared_in(plugin)
    for kind, registry in _REGISTRIES.items():
        for entry in declared[kind].values():
            of_entry = getattr(entry, "options", {})
            _add_options(plugin.module, kind, of_entry)
            options |= of_entry.keys()
        _add(plugin.module, kind, registry, declared[kind])
    return options


def is_of_plugin(kind: str, name: str) -> bool:
    """Whether a plugin has brought what has this name."""
    return (kind, name) in _owners


def _add(module: str, kind: str, registry: dict[str, Any], entries: Mapping[str, Any]) -> None:
    for name in entries:
        ours = name in registry or name in CHOICES.get(kind, ())
        owner = _owners.get((kind, name), "scalevec" if ours else module)
        if owner != module:
            raise PluginError(f"{module}: {kind} {name!r} is the name of one of {owner}; give it another")
    brought = {name for (of_kind, name), owner in _owners.items() if of_kind == kind and owner == module}
    for name in brought - entries.keys():
        del registry[name], _owners[kind, name]
    registry.update(entries)
    _owners.update(dict.fromkeys(((kind, name) for name in entries), module))


_WORDS_OF_SECTIONS = frozenset(
    (
        *("name", "preset", "plugin", "options", "rungs", "seeds", "extend", "larger_rungs", "check_carried"),
        *("given", "label", "lists", "grids", "choices", "resolved", "batch_unit", "copy", "dict", "json"),
    )
)
"""What the sections of a sweep file that hold options use otherwise."""


def _add_options(module: str, part: str, options: Mapping[str, OptionSpec]) -> None:
    for name, spec in options.items():
        is_ours = name in TRIAL_FIELDS and ".options." not in TRIAL_FIELDS[name]
        means_else = is_ours and name not in OPTIONS
        if name in _WORDS_OF_SECTIONS or name.startswith(("_", "model_")) or means_else:
            raise PluginError(f"{module}: option {name!r} means something else in a sweep file; rename it")
        field = TRIAL_FIELDS.setdefault(name, f"{part}.options.{name}")
        kind = FIELD_TYPES.setdefault(name, type(spec.default))
        if kind is not type(spec.default) or not field.startswith(f"{part}."):
            raise PluginError(
                f"{module}: option {name!r} is {type(spec.default).__name__} of the {part}, elsewhere "
                f"{getattr(kind, '__name__', kind)} at {field}; give it another name"
            )
        FIELD_HELP.setdefault(name, spec.help)
