"""The section ``compare`` of a sweep file: the options of ``scalevec.analysis`` under their own names."""

import dataclasses
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema, model_validator

from scalevec.analysis.errors import DataError, FormulaError
from scalevec.analysis.formula.formula import read
from scalevec.analysis.options import AnalysisOptions, is_formula, law_text, require_law
from scalevec.analysis.registry import LAWS
from scalevec.sweeps.errors import not_among, refused
from scalevec.sweeps.fields import analysis_options
from scalevec.sweeps.plugins.registered import is_of_plugin
from scalevec.sweeps.sections.entries import (
    TYPES,
    Given,
    Integer,
    Items,
    Number,
    Section,
    Several,
    fields_model,
    one_of,
    problem,
    validated_as,
)

_TYPES = TYPES | {tuple[str, ...]: Items[str], tuple[int, ...]: Items[Integer]}


def _condition(value: str) -> str:
    try:
        read(value, is_formula=False)
    except FormulaError:
        raise problem(refused(value, """a condition on columns, as "rung == 'tiny-25k'\"""")) from None
    return value


Condition = Annotated[str, Field(min_length=1), AfterValidator(_condition)]


def _two_numbers(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise problem(refused(value, "two numbers, [low, high]"))
    return value


class PredictionEntry(Section):
    """What is expected of a difference before there is a result: its sign, or its value with an interval."""

    arm: str
    """The arm whose loss is predicted."""
    reference: str | None = None
    """The arm that it is compared with; the sweep's own reference where none is named."""
    where: Condition | None = None
    """The cells that are meant, as "rung == 'tiny-25k'"; all cells of both arms without it."""
    sign: Literal["lower", "higher"] | None = None
    """Whether the arm's loss will be lower or higher than the reference's, on average over the cells."""
    difference: Number | None = None
    """The mean difference, arm minus reference, that will be seen, in nats/token; needs ``interval``."""
    interval: Annotated[tuple[Number, Number], Strict(False), BeforeValidator(_two_numbers)] | None = None
    """In which the mean difference will be seen, its noise included, in nats/token."""

    @model_validator(mode="after")
    def _check_prediction(self) -> "PredictionEntry":
        if (self.sign is None) == (self.difference is None):
            given = "both" if self.sign else "neither of them"
            raise problem(f"{given} given of sign and difference; allowed: one of the two")
        if (self.interval is None) != (self.difference is None):
            raise problem("difference and interval belong together; allowed: both, or sign without them")
        if self.interval and self.difference is not None:
            low, high = self.interval
            if not low <= self.difference <= high or low == high:
                allowed = f"two numbers [low, high] with the difference, {self.difference:g}, between them"
                raise problem(refused(list(self.interval), allowed), "interval")
        return self


class CompareSection(Given):
    """The question asked of the finished trials; options of the command line stand over these."""

    reference: str | None = None
    """The arm that the others are compared with; without it ``baseline``, else the first arm."""
    predict: Annotated[Several[PredictionEntry], Field(min_length=1)] | None = None
    """Differences that are predicted; kept with their time when the sweep first runs."""

    def predictions(self, reference: str) -> list[dict[str, Any]]:
        """The predictions as plain data, each with its ``reference`` (the sweep's where it names none)."""
        entries = (entry.model_dump(mode="json", exclude_none=True) for entry in self.predict or ())
        return [{"reference": reference, **entry} for entry in entries]

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


def _law(value: str) -> str:
    if value not in LAWS and not is_formula(value):  # plugins bring further laws
        raise problem(not_among(value, LAWS, "unknown law"))
    try:
        require_law(value)
    except DataError as error:
        raise problem(str(error)) from None
    # As a formula, so that results are read where the plugin is not.
    return law_text(value) if is_of_plugin("law", value.partition(";")[0].strip()) else value


def _field(option: dataclasses.Field[Any], hint: Any) -> tuple[Any, Any]:
    """The type and default of ``option`` for a model of pydantic."""
    choices = option.metadata["choices"]
    extra: dict[str, Any] = {"enum": list(choices)} if choices else {}
    field = Field(default=option.default, description=option.metadata["help"], json_schema_extra=extra)
    if option.name == "where":
        return Condition | None, field
    if not choices:
        kinds = [_TYPES.get(kind, kind) for kind in get_args(hint) or (hint,)]
        return (kinds[0] | None if type(None) in get_args(hint) else _TYPES[hint]), field

    if option.name == "law":
        shown = {"anyOf": [{"type": "string", **extra}, {"type": "string", "pattern": "[-+*/^(=;]"}]}
        field = Field(default=option.default, description=option.metadata["help"])
        return Annotated[str, AfterValidator(_law), WithJsonSchema(shown)], field
    return Annotated[str, one_of(choices, f"unknown {option.name}")], field


_HINTS = get_type_hints(AnalysisOptions)
NO_OPTIONS = fields_model(
    "Compare",
    CompareSection,
    {
        option.name: _field(option, _HINTS[option.name])
        for option in dataclasses.fields(AnalysisOptions)
        # A comparison chooses the method of its intervals itself.
        if option.name != "interval"
    },
)()
Compare = Annotated[CompareSection, validated_as(type(NO_OPTIONS))]
