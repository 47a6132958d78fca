"""The dataclass fields from which a trial is described, and the checks that they share.

A *semantic* field is part of a trial's identity: change it and the trained bits change. A field that
is introduced after results exist is declared with :func:`added_field`; it stays out of the identity at the
value that it had implicitly before, so that old results keep their name.
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

Range = tuple[str, Callable[[float], bool]]
"""What is allowed, in words, and whether a number is."""
POSITIVE: Range = ("a positive number", lambda value: 0 < value < math.inf)
ZERO_OR_MORE: Range = ("zero or more", lambda value: 0 <= value < math.inf)
BELOW_ONE: Range = ("a number in [0, 1)", lambda value: 0 <= value < 1)
UP_TO_ONE: Range = ("a number in [0, 1]", lambda value: 0 <= value <= 1)
ABOVE_ZERO_UP_TO_ONE: Range = ("a number in (0, 1]", lambda value: 0 < value <= 1)

_OMIT_AT_DEFAULT = "omit_from_identity_at_default"


class ConfigurationError(ValueError):
    """A field has a value that cannot work; says which field, the value, and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} is {value!r}; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


class PlainValues(dict[str, Any]):
    """Plain values by name, as plugins and trainers declare them; nobody changes them: they have a hash."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@dataclasses.dataclass(frozen=True)
class PluginSource:
    """The plugin that a part of a trial needs.

    module: what the sweep file names. source: SHA-256 of all files of its package (64 hex digits), or
    ``code_version N`` where the owner of the code says what counts as the same.
    """

    module: str
    source: str


def added_field(default: T) -> T:
    """A field that did not exist when the first results were kept: out of the identity at ``default``."""
    return dataclasses.field(default=default, metadata={_OMIT_AT_DEFAULT: True})


def require(condition: bool, field: str, value: object, allowed: str) -> None:
    """Raise :class:`ConfigurationError` unless ``condition`` holds."""
    if not condition:
        raise ConfigurationError(field, value, allowed)


def require_in(allowed: Range, field: str, value: Any) -> None:
    """Raise :class:`ConfigurationError` unless ``value`` is in the range that is ``allowed``."""
    require(allowed[1](value), field, value, allowed[0])


def require_choice(field: str, value: object, choices: typing.Iterable[str]) -> None:
    """Raise :class:`ConfigurationError` unless ``value`` is one of ``choices``."""
    names = sorted(choices)
    require(value in names, field, value, ", ".join(names))


@dataclasses.dataclass(frozen=True)
class OptionSpec:
    """An option of an optimizer or a schedule."""

    default: float | int | bool | str
    """The value where none is given; its type is that of the option."""
    help: str
    allowed: Range | None = None
    """Of an option that is a number."""
    choices: tuple[str, ...] = ()
    """Of an option that is a name."""

    def check(self, name: str, value: Any) -> None:
        """Raise ``ConfigurationError`` for a ``value`` that the option ``name`` cannot have."""
        if self.allowed is not None:
            require_in(self.allowed, name, value)
        if self.choices:
            require_choice(name, value, self.choices)


def is_left_out(field: "dataclasses.Field[Any]", value: object) -> bool:
    """Whether the identity leaves ``field`` out at ``value``: a later field at its default."""
    return _OMIT_AT_DEFAULT in field.metadata and bool(value == field.default)


# Both are computed again at each call.
fields_of: Callable[[Any], tuple["dataclasses.Field[Any]", ...]] = functools.cache(dataclasses.fields)
_hints_of: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)


def to_dict(config: Any, *, identity: bool = False) -> dict[str, Any]:
    """A configuration dataclass as plain JSON values; ``identity`` drops later fields at their default."""
    values = ((field, getattr(config, field.name)) for field in fields_of(type(config)))
    kept = ((field.name, value) for field, value in values if not (identity and is_left_out(field, value)))
    return {name: _plain(value, identity) for name, value in kept}


def _plain(value: Any, identity: bool) -> Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value, identity=identity)
    if isinstance(value, tuple):
        return [_plain(item, identity) for item in value]
    return dict(value) if isinstance(value, PlainValues) else value


def from_dict(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build the configuration dataclass ``cls`` from plain values, the inverse of :func:`to_dict`.

    Raises :class:`ConfigurationError` for an unknown or a missing field or a value of the wrong type.
    """
    prefix = f"{where}." if where else ""
    require(isinstance(values, Mapping), where or cls.__name__, values, "a mapping of fields")
    known = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name in values:
        require(name in known, f"{prefix}{name}", values[name], "no such field; fields: " + ", ".join(known))
    hints = _hints_of(cls)
    arguments = {name: _coerce(hints[name], value, prefix + name) for name, value in values.items()}
    for name, field in known.items():
        if name not in arguments and field.default is field.default_factory is dataclasses.MISSING:
            raise ConfigurationError(prefix + name, None, "a value (the field has no default)")
    return cls(**arguments)


def _coerce(hint: Any, value: Any, where: str) -> Any:
    """``value`` as the type that ``hint`` names, refusing what would have to be guessed."""
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type[Any], hint), value, where)
    if hint is PlainValues:
        require(isinstance(value, dict), where, value, "a mapping of plain values")
        return PlainValues(value)
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        return None if value is None else _coerce(options[0], value, where)
    if origin is tuple:
        require(isinstance(value, (list, tuple)), where, value, "a list")
        return tuple(_coerce(typing.get_args(hint)[0], item, where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    is_number_like_bool = isinstance(value, bool) and hint is not bool
    require(
        isinstance(value, hint) and not is_number_like_bool, where, value, f"a value of type {hint.__name__}"
    )
    return value
