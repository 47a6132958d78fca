"""The section ``compare`` of a sweep file: the options of ``scalevec.analysis`` under their own names."""

import dataclasses
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import AfterValidator, Field, model_validator

from scalevec.analysis.errors import DataError
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.registry import LAWS
from scalevec.sweeps.errors import not_among
from scalevec.sweeps.options import X_OF_COLUMN, analysis_options
from scalevec.sweeps.sections.entries import Given, Integer, Items, Number, ValidatedAs, fields_model, problem

_TYPES: dict[Any, Any] = {
    str: str,
    int: Integer,
    float: Number,
    tuple[str, ...]: Items[str],
    tuple[int, ...]: Items[Integer],
}


class CompareSection(Given):
    """The question asked of the finished trials; options of the command line stand over these."""

    reference: str | None = None
    """The arm that the others are compared with; without it ``baseline``, else the first arm."""

    @model_validator(mode="after")
    def _check(self) -> "CompareSection":
        try:
            self.options()
        except DataError as error:
            name, _, message = str(error).partition(" is ")
            raise problem(message, name) from None
        return self

    def options(self) -> AnalysisOptions:
        """Return the options that the file gives, defaults for the others. Raises ``DataError``."""
        return AnalysisOptions(**analysis_options(self.given()))


def _field(option: dataclasses.Field[Any], hint: Any) -> tuple[Any, Any]:
    """The type and default of ``option`` for a model of pydantic."""
    choices = [*option.metadata["choices"], *(X_OF_COLUMN if option.name == "x" else ())]
    extra: dict[str, Any] | None = {"enum": choices} if choices else None
    field = Field(default=option.default, description=option.metadata["help"], json_schema_extra=extra)
    if not choices:
        kinds = [_TYPES.get(kind, kind) for kind in get_args(hint) or (hint,)]
        return (kinds[0] | None if type(None) in get_args(hint) else _TYPES[hint]), field

    def check(value: str) -> str:
        allowed = LAWS if option.name == "law" else choices  # plugins bring further laws
        if value not in allowed:
            raise problem(not_among(value, allowed, f"unknown {option.name}"))
        return value

    return Annotated[str, AfterValidator(check)], field


_HINTS = get_type_hints(AnalysisOptions)
NO_OPTIONS = fields_model(
    "Compare",
    CompareSection,
    {
        option.name: _field(option, _HINTS[option.name])
        for option in dataclasses.fields(AnalysisOptions)
        if option.name != "interval"  # a comparison chooses the method of its intervals itself
    },
)()
Compare = Annotated[CompareSection, ValidatedAs(type(NO_OPTIONS))]
