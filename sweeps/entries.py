"""What the sections of a sweep file share: the trial fields, alone and in lists, as pydantic models."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from model.config import ConfigurationError
from model.strategies import PRESETS as STRATEGIES
from model.strategies import ScaleVectorStrategy
from sweeps.axes import beyond
from sweeps.errors import not_among, refused, shown
from sweeps.fields import (
    FIELD_CHOICES,
    FIELD_TYPES,
    NUMERIC_FIELDS,
    STRATEGY_CHOICES,
    STRATEGY_TYPES,
    TRIAL_FIELDS,
    WARMUP_FRACTION,
)

T = TypeVar("T")
_LARGEST_INTEGER = 2**62


def problem(message: str, *path: str | int) -> PydanticCustomError:
    """The error of a validator: ``message`` about the part at ``path`` below the validated value."""
    return PydanticCustomError("sweep", "{message}", {"message": message, "path": path})


def as_problem(error: ConfigurationError, given: Mapping[str, Any]) -> PydanticCustomError:
    """``error`` at its field if the field is ``given``, else at the section."""
    name = error.field.removeprefix("scale_vectors.")
    return problem(refused(error.value, error.allowed), *([name] if name in given else []))


class Section(BaseModel):
    """A mapping of the sweep file: unknown keys are refused and nothing is converted by guessing."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _distinct(items: tuple[T, ...]) -> tuple[T, ...]:
    """Refuse an empty list and a value that stands in it twice."""
    if not items:
        raise problem(refused([], "a list of at least one value"))
    first: dict[T, int] = {}
    for position, item in enumerate(items):
        if item in first:
            raise problem(
                f"{shown(label_of(item))} stands in the list twice, first at [{first[item]}]", position
            )
        first[item] = position
    return items


Items = Annotated[tuple[T, ...], Strict(False), AfterValidator(_distinct)]
Number = Annotated[float, AfterValidator(lambda value: value + 0.0)]
"""A finite number; -0.0 becomes 0.0, which is another text in an identity but the same number."""
Integer = Annotated[int, Field(ge=-_LARGEST_INTEGER, le=_LARGEST_INTEGER)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
LABEL_PATTERN = r"^[A-Za-z0-9._+-]{1,40}$"
Label = Annotated[str, StringConstraints(pattern=LABEL_PATTERN)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]

_TYPES: dict[Any, Any] = {
    float: Number,
    int: Integer,
    bool: bool,
    str: str,
    tuple[str, ...]: Annotated[tuple[str, ...], Strict(False)],
}


def _optional(types: Mapping[str, Any], choices: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Definitions for ``create_model``: fields that may be left out but not left empty."""
    return {name: (_TYPES[kind], _field(name, choices)) for name, kind in types.items()}


def _field(name: str, choices: Mapping[str, tuple[str, ...]]) -> Any:
    extra: Any = {"enum": list(choices[name])} if name in choices else None
    return Field(default=None, json_schema_extra=extra)


def label_of(value: Any) -> Any:
    """A value as a setting shows it: plain values as they are, mappings by what they change."""
    return value.label if isinstance(value, Named) else value


def resolved(value: Any) -> Any:
    """A value as a trial holds it."""
    return value.resolved() if isinstance(value, _Strategy) else value


def _name_as(key: str) -> Callable[[Any], Any]:
    """Lets a plain name stand for the mapping that holds only this name under ``key``."""

    def named(value: Any) -> Any:
        if not isinstance(value, (str, dict)):
            raise problem(refused(value, "a name, or a mapping of fields"))
        return {key: value} if isinstance(value, str) else value

    return named


class Given(Section):
    """Fields that may be left out; only those that the file gives count."""

    def given(self) -> dict[str, Any]:
        """The fields that the file gives, with their values."""
        names = [name for name in type(self).model_fields if name in self.model_fields_set]
        return {name: resolved(getattr(self, name)) for name in names}


class Named(Given):
    """Fields around a name."""

    @property
    def label(self) -> str:
        """The name and what is changed about it: ``adamw(beta2=0.99)``."""
        given = self.given()
        name = str(given.pop("name", given.pop("preset", "custom")))
        options = ",".join(f"{option}={value}" for option, value in sorted(given.items()))
        return f"{name}({options})" if options else name


class _Strategy(Named):
    @model_validator(mode="after")
    def _check(self) -> "_Strategy":
        preset = self.given().get("preset", "baseline")
        if preset not in STRATEGIES:
            raise problem(not_among(preset, STRATEGIES, "unknown preset"))
        try:
            self.resolved()
        except ConfigurationError as error:
            raise as_problem(error, self.given()) from None
        return self

    def resolved(self) -> ScaleVectorStrategy:
        """The strategy: the preset (``baseline`` if none is named) with the given fields changed."""
        given = self.given()
        return replace(STRATEGIES[given.pop("preset", "baseline")], **given)


def _fields_of(part: str) -> dict[str, Any]:
    """The types of the trial fields that belong to ``part`` (optimizer or schedule), its name left out."""
    names = [name for name, place in TRIAL_FIELDS.items() if place.startswith(f"{part}.") and name != part]
    return {name: FIELD_TYPES[name] for name in names}


_WARMUP = {WARMUP_FRACTION: FIELD_TYPES[WARMUP_FRACTION]}

if TYPE_CHECKING:
    StrategyFields = _Strategy
    OptimizerFields = Named
    ScheduleFields = Named
else:
    StrategyFields = create_model(
        "StrategyFields", __base__=_Strategy, **_optional({"preset": str, **STRATEGY_TYPES}, STRATEGY_CHOICES)
    )
    OptimizerFields = create_model(
        "OptimizerFields", __base__=Named, name=(str, ...), **_optional(_fields_of("optimizer"), {})
    )
    ScheduleFields = create_model(
        "ScheduleFields", __base__=Named, name=(str, ...), **_optional(_fields_of("schedule") | _WARMUP, {})
    )

StrategyEntry = Annotated[
    StrategyFields, BeforeValidator(_name_as("preset"), json_schema_input_type=str | StrategyFields)
]
OptimizerEntry = Annotated[
    OptimizerFields, BeforeValidator(_name_as("name"), json_schema_input_type=str | OptimizerFields)
]
ScheduleEntry = Annotated[
    ScheduleFields, BeforeValidator(_name_as("name"), json_schema_input_type=str | ScheduleFields)
]
_TYPES[ScaleVectorStrategy] = StrategyEntry


class TuneLists(Given):
    """What is tuned, and where; the fields that are tuned follow from the table of trial fields."""

    rungs: Items[str] | None = None
    seeds: Items[Seed] = (100,)
    extend: Annotated[int, Field(ge=0, le=20)] = 2
    check_carried: bool = False
    """Whether the reference arm's carried learning rate is checked at its largest rung, a step to each side.

    Where a side is better the rate counts as censored. That costs three trials there for each tuning seed and
    setting, so it is not done unasked.
    """

    def lists(self) -> dict[str, tuple[Any, ...]]:
        """The tuned fields with their values, in the order of the file."""
        return {name: values for name, values in self.given().items() if name in NUMERIC_FIELDS}

    @cached_property
    def grids(self) -> dict[str, tuple[Any, ...]]:
        """The tuned fields with their values, ascending."""
        return {name: tuple(sorted(values)) for name, values in self.lists().items()}

    @cached_property
    def batch_unit(self) -> int:
        """Tokens that each batch to be tried divides, those of an extended grid too; 1 if none is tuned.

        With budgets in whole units, trials of different batches train on the same number of tokens.
        """
        tried = list(self.grids.get("batch_tokens", ()))
        for _ in range(self.extend if tried else 0):
            tried.append(round(beyond("batch_tokens", tried, tried[-1]) or tried[-1]))
        return math.lcm(*tried)


class _Lists(Given):
    def choices(self) -> dict[str, list[tuple[Any, Any]]]:
        """The given lists; of each item its value in a trial and how a setting shows it."""
        return {
            name: [(resolved(item), label_of(item)) for item in getattr(self, name)] for name in self.given()
        }


def _lists(names: Iterable[str]) -> dict[str, Any]:
    list_of: Any = Items  # the table of types is no type to a checker
    return {name: (list_of[_TYPES[FIELD_TYPES[name]]], Field(default=None)) for name in names}


if TYPE_CHECKING:
    TrialFields = Given
    FieldLists = _Lists
    Tune = TuneLists
else:
    TrialFields = create_model("TrialFields", __base__=Given, **_optional(FIELD_TYPES, FIELD_CHOICES))
    FieldLists = create_model("FieldLists", __base__=_Lists, **_lists(FIELD_TYPES))
    Tune = create_model("Tune", __base__=TuneLists, **_lists(NUMERIC_FIELDS))
