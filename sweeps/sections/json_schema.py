"""The JSON Schema of a sweep file: a trainer, or plugins, may declare fields that only the file knows."""

import json
from typing import Any

from scalevec.sweeps.sections.examples import with_examples
from scalevec.sweeps.sections.foreign_sweep import foreign_model
from scalevec.sweeps.sections.schema import Sweep
from scalevec.sweeps.sections.trainer import PLAIN_TYPES

Schema = dict[str, Any]

_VALUE: Schema = {"type": ["number", "string", "boolean"]}
_VALUES: Schema = {"anyOf": [_VALUE, {"items": _VALUE, "type": "array"}]}
_OF_A_TRAINER = {
    "ForeignFields": _VALUE,
    "ForeignRungFields": _VALUE,
    "ForeignLists": _VALUES,
    "ForeignTune": _VALUES,
}
"""What a trainer's own fields may be, by definition."""
_OF_A_PLUGIN = {
    **dict.fromkeys(("TrialFields", "OptimizerFields", "ScheduleFields"), _VALUE),
    **dict.fromkeys(("FieldLists", "Tune"), _VALUES),
    **dict.fromkeys(("StrategyFields", "Compare"), False),
}
"""What further options of plugins may be, by definition."""
_NAMED_BY_PLUGINS = ("name", "optimizer", "schedule", "reparameterization", "law")


def sweep_schema() -> Schema:
    """The schema of a sweep of ours, with or without plugins, or of a trainer's."""
    ours = Sweep.model_json_schema()
    plugins, trainer = _with_plugins(ours), _with_trainer()
    properties = ours["properties"]
    differing = [name for name in properties if plugins["properties"][name] != properties[name]]
    sections = [name for name in properties if name in ("ladder", *differing)]
    of_plugins, of_a_trainer, as_they_are = (
        {"properties": {name: form["properties"][name] for name in sections}}
        for form in (plugins, trainer, ours)
    )
    schema = {
        **ours,
        "$defs": trainer["$defs"] | plugins["$defs"] | ours["$defs"],
        "properties": properties
        | {name: {"description": properties[name]["description"]} for name in sections},
        "if": {"required": ["trainer"]},
        "then": of_a_trainer,
        "else": {"if": {"required": ["plugins"]}, "then": of_plugins, "else": as_they_are},
    }
    return with_examples(schema)


def _with_trainer() -> Schema:
    schema = foreign_model(PLAIN_TYPES).model_json_schema()
    for name, values in _OF_A_TRAINER.items():
        schema["$defs"][name]["additionalProperties"] = values
    return schema


def _with_plugins(ours: Schema) -> Schema:
    """``ours`` with definitions of other names that take the options and names of plugins."""
    text = json.dumps(ours)
    for name in _OF_A_PLUGIN:
        text = text.replace(f'"#/$defs/{name}"', f'"#/$defs/{name}WithPlugins"')
    schema: Schema = json.loads(text)
    for name, options in _OF_A_PLUGIN.items():
        definition = schema["$defs"].pop(name)
        schema["$defs"][f"{name}WithPlugins"] = definition | {"additionalProperties": options}
        for field in _NAMED_BY_PLUGINS:
            definition["properties"].get(field, {}).pop("enum", None)
    return schema
