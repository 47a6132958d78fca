"""What the sections of a sweep file share: the trial fields, alone and in lists, as pydantic models.

The models of trial fields are made from ``sweeps.fields``, so that a new option of an optimizer or a schedule
is a field here without a line here.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    GetPydanticSchema,
    ModelWrapValidatorHandler,
    Strict,
    StringConstraints,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import no_info_before_validator_function

from scalevec.model.config import ConfigurationError
from scalevec.model.optimization import OPTIMIZERS, OPTIONS, SCHEDULES
from scalevec.model.strategies import PRESETS as STRATEGIES
from scalevec.model.strategies import ScaleVectorStrategy
from scalevec.sweeps.axes import beyond
from scalevec.sweeps.errors import not_among, refused, shown, unknown
from scalevec.sweeps.fields import STRATEGY_CHOICES, STRATEGY_HELP, STRATEGY_TYPES

T = TypeVar("T")
_LARGEST_INTEGER = 2**62
PROBLEM, UNKNOWN_KEY = "sweep", "unknown_key"
"""Kinds of errors whose ``ctx`` has our own message, and where it belongs below the value."""


def problem(message: str, *path: str | int) -> PydanticCustomError:
    """The error of a validator: ``message`` about the part at ``path`` below the validated value."""
    return PydanticCustomError(PROBLEM, "{message}", {"message": message, "path": path})


def as_problem(error: ConfigurationError, section: "Given") -> PydanticCustomError:
    """``error`` at its field below ``section``, as far as the file gives that."""
    path: list[str] = []
    part: Any = section
    for name in error.field.removeprefix("scale_vectors.").split("."):
        if not isinstance(part, Given) or name not in part.model_fields_set:
            break
        path.append(name)
        part = getattr(part, name)
    return problem(refused(error.value, error.allowed), *path)


class Section(BaseModel):
    """A mapping of the sweep file: unknown keys are refused and nothing is converted by guessing."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def keys_of(cls, _given: Mapping[str, Any]) -> list[str]:
        """The keys that the mapping may have."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @model_validator(mode="wrap")
    @classmethod
    def _name_known_keys(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Say of an unknown key which ones there are: pydantic tells only that it is one."""
        try:
            return handler(value)
        except ValidationError as error:
            lines = [cls._line(value, details) for details in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(cls.__name__, lines) from None

    @classmethod
    def _line(cls, value: Any, details: Any) -> InitErrorDetails:
        kind, path, context = details["type"], details["loc"], details.get("ctx", {})
        if kind == "extra_forbidden":
            kind = UNKNOWN_KEY
            context = {"message": unknown(path[-1], cls.keys_of(value), "unknown key"), "path": ()}
        if kind in (PROBLEM, UNKNOWN_KEY):
            kind = PydanticCustomError(kind, "{message}", context)
        return InitErrorDetails(type=kind, loc=path, input=details["input"], ctx=context)


def validated_as(kind: Any) -> GetPydanticSchema:
    """``Annotated[T, validated_as(kind)]``: a type checker sees T, pydantic validates ``kind``."""
    return GetPydanticSchema(lambda _, handler: handler.generate_schema(kind))


def _listed(value: Any) -> Any:
    return value if value is None or isinstance(value, list | tuple) else [value]


def _item_or_list(schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    of_list = handler(schema)
    return {"anyOf": [of_list["items"], of_list]}


_ONE_ALONE = GetPydanticSchema(
    lambda source, handler: no_info_before_validator_function(_listed, handler(source)), _item_or_list
)
Several = Annotated[tuple[T, ...], Strict(False), _ONE_ALONE]
"""A list, for which one item alone may stand: ``seeds: 3`` is ``[3]``."""


def _distinct(items: tuple[T, ...]) -> tuple[T, ...]:
    """Refuse an empty list and a value that stands in it twice."""
    if not items:
        raise problem(refused([], "a list of at least one value"))
    first: dict[T, int] = {}
    for position, item in enumerate(items):
        if item in first:
            name = getattr(item, "name", label_of(item))
            raise problem(f"{shown(name)} stands in the list twice, first at [{first[item]}]", position)
        first[item] = position
    return items


def one_of(names: Iterable[str], what: str) -> AfterValidator:
    """Refuse a text that is none of ``names``; ``what`` says what is wrong then."""

    def check(value: str) -> str:
        if value not in names:
            raise problem(not_among(value, names, what))
        return value

    return AfterValidator(check)


Items = Annotated[Several[T], AfterValidator(_distinct)]
"""A list of at least one value, all different, or one value alone."""
Number = Annotated[float, AfterValidator(lambda value: value + 0.0)]
"""A finite number; -0.0 becomes 0.0, which is another text in an identity but the same number."""
Positive = Annotated[Number, Field(gt=0)]
Integer = Annotated[int, Field(ge=-_LARGEST_INTEGER, le=_LARGEST_INTEGER)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
LABEL_PATTERN = r"^[A-Za-z0-9._+-]{1,40}$"
Label = Annotated[str, StringConstraints(pattern=LABEL_PATTERN)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


TYPES: dict[Any, Any] = {float: Number, int: Integer, bool: bool, str: str, tuple[str, ...]: Several[str]}
"""The type of a field, as a dataclass has it -> as a section does."""


def label_of(value: Any) -> Any:
    """A value as a setting shows it: plain values as they are, mappings by what they change."""
    return value.label if isinstance(value, Named) else value


def resolved(value: Any) -> Any:
    """A value as a trial holds it."""
    return value.resolved() if isinstance(value, Strategy) else value


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

    @classmethod
    def keys_of(cls, given: Mapping[str, Any]) -> list[str]:
        """The keys that the mapping may have: of a named optimizer or schedule its own options alone."""
        named = str(given.get("name"))
        entry = OPTIMIZERS.get(named) or SCHEDULES.get(named)
        known = super().keys_of(given)
        return [name for name in known if not entry or name not in OPTIONS or name in entry.options]


class Strategy(Named):
    """Scale vectors: a preset, its fields changed one by one."""

    @model_validator(mode="after")
    def _check(self) -> "Strategy":
        preset = self.given().get("preset", "baseline")
        if preset not in STRATEGIES:
            raise problem(not_among(preset, STRATEGIES, "unknown preset"))
        try:
            self.resolved()
        except ConfigurationError as error:
            raise as_problem(error, self) from None
        return self

    def resolved(self) -> ScaleVectorStrategy:
        """The strategy: the preset (``baseline`` if none is named) with the given fields changed."""
        given = self.given()
        return replace(STRATEGIES[given.pop("preset", "baseline")], **given)


class TuneLists(Given):
    """What is tuned, and where; the fields that are tuned follow from the table of trial fields."""

    rungs: Items[str] | None = None
    """Rungs at which every arm is tuned; all where none is named."""
    seeds: Items[Seed] = (100,)
    """Seeds of the tuning trials, none of which is compared."""
    extend: Annotated[int, Field(ge=0, le=20)] = 2
    """How many times a grid may grow by a step where the optimum lies at its edge."""
    larger_rungs: Literal["grid", "predicted"] = "grid"
    """Whether tuned rungs above the two smallest get the whole grid too, or start with three values.

    ``predicted``: what the law of the smaller rungs predicts and a step to each side, extended at an edge as
    far as the grid and its extensions would reach. Each such rung waits for the smaller ones.
    """
    share: Literal["reference"] | None = None
    """``reference``: the fields are tuned for the reference arm alone, and all arms take its values."""
    check_carried: Literal[True, False, "all"] = False
    """Whether the reference arm's carried learning rate is checked at its largest rung, a step to each side.

    ``all`` checks that of every arm.

    Where a side is better the rate counts as censored. That costs three trials there for each tuning seed and
    setting, so it is not done unasked.
    """

    def lists(self) -> dict[str, tuple[Any, ...]]:
        """The tuned fields with their values, in the order of the file."""
        return {name: values for name, values in self.given().items() if name not in TuneLists.model_fields}

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


class ListsOfFields(Given):
    """Trial fields with a list of values each."""

    def choices(self) -> dict[str, list[tuple[Any, Any]]]:
        """The given lists; of each item its value in a trial and how a setting shows it."""
        return {
            name: [(resolved(item), label_of(item)) for item in getattr(self, name)] for name in self.given()
        }


S = TypeVar("S", bound=Section)
_OWN = "A field of the trainer."


def fields_model(name: str, base: type[S], fields: dict[str, Any]) -> type[S]:
    """Return ``base`` with further ``fields``: name -> type and default."""
    # It has no source in which docstrings of attributes could be looked for, and looking takes a while.
    options = {"use_attribute_docstrings": False}
    return create_model(name, __base__=base, __cls_kwargs__=options, **fields)


def optional_fields(
    types: Mapping[str, Any], help: Mapping[str, str], choices: Mapping[str, Any]
) -> dict[str, Any]:
    """Fields for :func:`fields_model` that may be left out but not left empty."""
    return {
        name: (
            TYPES[kind],
            Field(
                default=None,
                description=help.get(name, _OWN),
                json_schema_extra=_known(kind, choices[name]) if name in choices else None,
            ),
        )
        for name, kind in types.items()
    }


def _known(kind: Any, names: Iterable[str]) -> dict[str, Any]:
    """The part of a JSON Schema that lists the allowed ``names``, of a list those of its items."""
    allowed_names: dict[str, Any] = {"enum": list(names)}
    if kind != tuple[str, ...]:
        return allowed_names
    return {"anyOf": [allowed_names, {"type": "array", "items": allowed_names}]}


def lists_of(types: Mapping[str, Any], help: Mapping[str, str]) -> dict[str, Any]:
    """Fields for :func:`fields_model` that hold lists of values."""
    list_of: Any = Items  # the table of types is no type to a checker
    return {
        name: (list_of[TYPES[kind]], Field(default=None, description=help.get(name, _OWN)))
        for name, kind in types.items()
    }


def by_name(key: str, model: type[Section]) -> BeforeValidator:
    """Let a plain name stand for the mapping that holds only this name under ``key``."""

    def named(value: Any) -> Any:
        if not isinstance(value, (str, dict)):
            raise problem(refused(value, "a name, or a mapping of fields"))
        return {key: value} if isinstance(value, str) else value

    return BeforeValidator(named, json_schema_input_type=str | model)


_STRATEGY = fields_model(
    "StrategyFields",
    Strategy,
    optional_fields({"preset": str, **STRATEGY_TYPES}, STRATEGY_HELP, STRATEGY_CHOICES),
)
StrategyEntry = Annotated[Strategy, validated_as(_STRATEGY), by_name("preset", _STRATEGY)]
TYPES[ScaleVectorStrategy] = StrategyEntry
