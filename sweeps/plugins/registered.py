"""The registries with what plugins declare beside what is ours.

An entry of the same module is replaced, one of any other is taken: a name means one thing in a process.
"""

from collections.abc import Mapping
from typing import Any

from scalevec.analysis.registry import LAWS
from scalevec.model.fields import OptionSpec
from scalevec.model.optimization import OPTIMIZERS, OPTIONS, SCHEDULES
from scalevec.model.strategies import CHOICES, REPARAMETERIZATIONS
from scalevec.sweeps.fields import FIELD_HELP, FIELD_TYPES, TRIAL_FIELDS
from scalevec.sweeps.plugins.declared import declared_in
from scalevec.sweeps.plugins.locate import Plugin, PluginError

_REGISTRIES: dict[str, dict[str, Any]] = {
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "reparameterization": REPARAMETERIZATIONS,
    "law": LAWS,
}
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
