"""The model of a sweep file whose trials another's code trains: its fields are those that it declares."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from scalevec.sweeps.fields import FIELD_HELP
from scalevec.sweeps.sections.entries import (
    Given,
    Items,
    Label,
    ListsOfFields,
    TuneLists,
    ValidatedAs,
    fields_model,
    lists_of,
    optional_fields,
)
from scalevec.sweeps.sections.rungs import Rung
from scalevec.sweeps.sections.schema import Sweep
from scalevec.sweeps.sections.trainer import KINDS, RESERVED, ForeignRung, types_of


def sweep_model(data: Mapping[str, Any]) -> type[Sweep] | None:
    """The model that reads ``data`` with the fields of its trainer; None where it has no trainer."""
    if "trainer" not in data:
        return None
    given = data.get("fields")
    declared = given if isinstance(given, dict) else {}
    known = {
        name: kind
        for name, kind in declared.items()
        if isinstance(name, str) and name.isidentifier() and name not in RESERVED and kind in KINDS
    }
    return foreign_model(types_of(known))


def foreign_model(types: dict[str, type]) -> type[Sweep]:
    """A sweep whose trials have fields of these ``types`` and no others."""
    help = {name: FIELD_HELP.get(name, "A field of the trainer.") for name in types}
    numeric = {name: kind for name, kind in types.items() if kind in (int, float)}
    given = optional_fields(types, help, {})
    trial, rung = (
        fields_model("ForeignFields", Given, given),
        fields_model("ForeignRungFields", ForeignRung, given),
    )
    lists = fields_model("ForeignLists", ListsOfFields, lists_of(types, help))
    tune = fields_model("ForeignTune", TuneLists, lists_of(numeric, help))
    rungs: Any = Items  # what is made here is no type to a checker
    fields: Any = Annotated[Given, ValidatedAs(trial)]
    return fields_model(
        "ForeignSweep",
        Sweep,
        {
            "trial": (fields, trial()),
            "ladder": (Annotated[tuple[Rung, ...], ValidatedAs(rungs[rung])], Field()),
            "arms": (Annotated[dict[Label, fields], Field(min_length=1)], Field()),
            "tune": (Annotated[TuneLists, ValidatedAs(tune)] | None, None),
            "grid": (Annotated[ListsOfFields, ValidatedAs(lists)], lists()),
            "zip": (Annotated[ListsOfFields, ValidatedAs(lists)], lists()),
        },
    )
