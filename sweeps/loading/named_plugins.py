"""The plugins that a sweep file names, found and registered before its other sections can be checked."""

from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from scalevec.sweeps.errors import Path, Problem, SweepError
from scalevec.sweeps.plugins.locate import Plugin, PluginError, find
from scalevec.sweeps.plugins.registered import owner_of, register
from scalevec.sweeps.sections.schema import Sweep
from scalevec.sweeps.yaml_source import SweepSource

KEY = "plugins"


def plugins_of(source: SweepSource) -> tuple[tuple[Plugin, ...], frozenset[str]]:
    """Return the plugins of a file, which are known from now on, and the names of their options.

    None where what names them is refused with the other sections. Raises ``SweepError`` for one that cannot
    be used.
    """
    annotation: Any = Sweep.model_fields[KEY].rebuild_annotation()
    try:
        entries = TypeAdapter(annotation).validate_python(source.data.get(KEY)) or ()
    except ValidationError:
        return (), frozenset()
    plugins, options, problems = list[Plugin](), set[str](), list[Problem]()
    for position, entry in enumerate(entries):
        try:
            plugins.append(find(entry.module, source.folder, entry.code_version))
            options |= register(plugins[-1])
        except (PluginError, OSError) as error:
            problems.append(source.problem((KEY, position), str(error)))
    if problems:
        raise SweepError(problems)
    return tuple(plugins), frozenset(options)


def of_other_plugins(sweep: Sweep) -> Iterator[tuple[Path, str]]:
    """Names of plugins that this sweep does not name, though another one of the process did."""
    ours = {plugin.module for plugin in sweep.found_plugins}
    for kind, path, name in _names(sweep):
        owner = owner_of(kind, name)
        if owner is not None and owner not in ours:
            yield path, f"{name!r} is of the plugin {owner}; name it under plugins"


def _names(sweep: Sweep) -> Iterator[tuple[str, Path, str]]:
    yield "law", ("compare", "law"), sweep.compare.options().law
    if sweep.trainer is not None:  # its fields are its own
        return
    for kind, entries in (("optimizer", sweep.optimizers), ("schedule", sweep.schedules)):
        for position, entry in enumerate(entries or ()):
            yield kind, (f"{kind}s", position), entry.given()["name"]
        sections = [(("trial",), sweep.trial), *((("arms", arm), given) for arm, given in sweep.arms.items())]
        for path, fields in sections:
            if kind in fields.given():
                yield kind, (*path, kind), fields.given()[kind]
            if kind == "optimizer" and "scale_vectors" in fields.given():
                vectors = fields.given()["scale_vectors"]
                yield "reparameterization", (*path, "scale_vectors"), vectors.reparameterization
        for section, lists in (("grid", sweep.grid), ("zip", sweep.zip)):
            for name in lists.given().get(kind, ()):
                yield kind, (section, kind), name
