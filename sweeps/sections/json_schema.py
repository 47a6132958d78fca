"""The JSON Schema of a sweep file: a trainer, or plugins, may declare fields that only the file knows."""

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from scalevec.sweeps.sections.sweep_model import sweep_model

Schema = dict[str, Any]

_VALUE: Schema = {"type": ["number", "string", "boolean"]}
_VALUES: Schema = {"anyOf": [_VALUE, {"items": _VALUE, "type": "array"}]}
_OPEN = {
    **dict.fromkeys(("TrialFields", "OptimizerFields", "ScheduleFields", "RungOptions"), _VALUE),
    **dict.fromkeys(("FieldLists", "Tune"), _VALUES),
    **dict.fromkeys(("StrategyFields", "Compare"), False),
}
"""What further fields may be where a trainer or plugins declare some, by definition."""
_NAMED_BY_PLUGINS = ("name", "optimizer", "schedule", "reparameterization", "law")


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 (one signature)
        """Return that a field has no title: it would be its name once more."""
        return False


def sweep_schema() -> Schema:
    """The schema of a sweep of ours, and where the file names a trainer or plugins the open one."""
    ours = sweep_model({}).model_json_schema(schema_generator=_Untitled)
    opened, properties = _opened(ours), ours["properties"]
    differing = [name for name in properties if opened["properties"][name] != properties[name]]
    forms = (
        {"properties": {name: form["properties"][name] for name in differing}} for form in (opened, ours)
    )
    shown = {name: {"description": properties[name]["description"]} for name in differing}
    return {
        **ours,
        "$defs": opened["$defs"] | ours["$defs"],
        "properties": properties | shown,
        "if": {"anyOf": [{"required": ["trainer"]}, {"required": ["plugins"]}]},
        **dict(zip(("then", "else"), forms, strict=True)),
    }


def _opened(ours: Schema) -> Schema:
    """``ours`` with definitions of other names that take further fields and names."""
    text = json.dumps(ours)
    for name in _OPEN:
        text = text.replace(f'"#/$defs/{name}"', f'"#/$defs/{name}Open"')
    schema: Schema = json.loads(text)
    for name, further in _OPEN.items():
        definition = schema["$defs"].pop(name)
        schema["$defs"][f"{name}Open"] = definition | {"additionalProperties": further}
        for field in _NAMED_BY_PLUGINS:
            definition["properties"].get(field, {}).pop("enum", None)
    return schema
