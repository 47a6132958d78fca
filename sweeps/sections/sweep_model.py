"""The models of whole sweep files, whose sections take the trial fields that the file may give.

Those are ours with the options of the file's plugins, or those that its trainer declares.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import Field
from pydantic.json_schema import GenerateJsonSchema

from scalevec.sweeps.fields import (
    FIELD_CHOICES,
    FIELD_HELP,
    FIELD_TYPES,
    OF_STRATEGY,
    STRATEGY_HELP,
    TRIAL_FIELDS,
    WARMUP_FRACTION,
    tunable_fields,
)
from scalevec.sweeps.sections import entries
from scalevec.sweeps.sections.rungs import Rung
from scalevec.sweeps.sections.schema import Sweep
from scalevec.sweeps.sections.trainer import KINDS, RESERVED, ForeignRung, types_of

_HELP = FIELD_HELP | {OF_STRATEGY + name: text for name, text in STRATEGY_HELP.items()}
_ITEMS: Any = entries.Items  # what is made here is no type to a checker


def sweep_model(data: Mapping[str, Any], options: frozenset[str] = frozenset()) -> type[Sweep]:
    """The model that reads ``data``; its plugins have the ``options``."""
    if "trainer" not in data:
        return _our_model(options)
    given = data.get("fields")
    declared = given if isinstance(given, dict) else {}
    known = {
        name: kind
        for name, kind in declared.items()
        if isinstance(name, str) and name.isidentifier() and name not in RESERVED and str(kind) in KINDS
    }
    return _foreign_model(types_of(known))


@cache
def _our_model(_options: frozenset[str]) -> type[Sweep]:
    """A sweep of our own loop; the tables of fields hold the options by now."""
    return _sweep(_sections(FIELD_TYPES, tunable_fields(), FIELD_CHOICES))


def _foreign_model(types: dict[str, type]) -> type[Sweep]:
    """A sweep of a trainer whose trials have fields of these ``types`` and no others."""
    numeric = {name: kind for name, kind in types.items() if kind in (int, float)}
    rung = entries.fields_model("ForeignRungFields", ForeignRung, entries.optional_fields(types, _HELP, {}))
    ladder = {"ladder": (Annotated[tuple[Rung, ...], entries.validated_as(_ITEMS[rung])], ...)}
    return _sweep(_sections(types, numeric, {}) | ladder)


def _sections(
    types: Mapping[str, Any], tunable: Mapping[str, Any], choices: Mapping[str, Any]
) -> dict[str, Any]:
    """The sections that take fields of trials, each with its type and its default."""
    fields = entries.fields_model(
        "TrialFields", entries.Given, entries.optional_fields(types, _HELP, choices)
    )
    lists = entries.fields_model("FieldLists", entries.ListsOfFields, entries.lists_of(types, _HELP))
    tune = entries.fields_model("Tune", entries.TuneLists, entries.lists_of(tunable, _HELP))
    given: Any = Annotated[entries.Given, entries.validated_as(fields)]
    several = Annotated[entries.ListsOfFields, entries.validated_as(lists)]
    return {
        "trial": (given, fields()),
        "arms": (Annotated[dict[entries.Label, given], Field(min_length=1)], ...),
        "tune": (Annotated[entries.TuneLists, entries.validated_as(tune)] | None, None),
        "grid": (several, lists()),
        "zip": (several, lists()),
        "optimizers": (_ITEMS[_named("optimizer")] | None, None),
        "schedules": (_ITEMS[_named("schedule", WARMUP_FRACTION)] | None, None),
    }


def _named(part: str, *others: str) -> Any:
    """The type of an optimizer or a schedule: its name, or a mapping with the name and options."""
    names = [name for name, path in TRIAL_FIELDS.items() if path.startswith(f"{part}.") and name != part]
    types = {name: FIELD_TYPES[name] for name in (*names, *others)}
    known: Any = {"enum": list(FIELD_CHOICES[part])}
    name = {"name": (str, Field(description=FIELD_HELP[part], json_schema_extra=known))}
    options = entries.optional_fields(types, FIELD_HELP, FIELD_CHOICES)
    entry = entries.fields_model(f"{part.title()}Fields", entries.Named, name | options)
    return Annotated[entries.Named, entries.validated_as(entry), entries.by_name("name", entry)]


def _sweep(sections: Mapping[str, Any]) -> type[Sweep]:
    described = {
        name: (kind, Field(default=default, description=Sweep.model_fields[name].description))
        for name, (kind, default) in sections.items()
    }
    return entries.fields_model("Sweep", Sweep, described)


sweep_model({})  # before plugins add to the tables


_OF_FIELDS = ("trial", "ladder", "arms", "tune", "grid", "zip", "optimizers", "schedules", "compare")
"""The sections that take what a trainer or plugins declare: fields, options, names, laws."""


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 (one signature)
        """Return that a field has no title: it would be its name once more."""
        return False


def sweep_schema() -> dict[str, Any]:
    """The schema of a sweep of ours; where the file names a trainer or plugins, their sections are open."""
    ours = sweep_model({}).model_json_schema(schema_generator=_Untitled)
    closed = {name: ours["properties"][name] for name in _OF_FIELDS}
    shown = {name: {"description": section["description"]} for name, section in closed.items()}
    return {
        **ours,
        "properties": ours["properties"] | shown,
        "if": {"anyOf": [{"required": ["trainer"]}, {"required": ["plugins"]}]},
        "else": {"properties": closed},
    }
