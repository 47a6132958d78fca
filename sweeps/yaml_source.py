"""Reads a sweep file's YAML as plain data and remembers the line of every field.

Differences to PyYAML's own reading: keys are always text; only ``true`` and ``false`` are booleans (an arm
may be called ``on``); ``8e-3`` is a number; tags that would construct an object, repeated keys, deep nesting
and aliases that multiply are refused.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, NoReturn

import yaml

from sweeps.errors import Path, Problem, SweepError, dotted, shown

LARGEST_FILE = 256 * 1024
"""Bytes; a sweep file of a thousand arms is smaller."""
DEEPEST = 20
MOST_VALUES = 50_000
"""Values in the file with every alias written out."""

_TAG = "tag:yaml.org,2002:"
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9](_?[0-9])*")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9](_?[0-9])*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MOST_DIGITS = 40
"""Of an integer; longer ones are read as floating-point numbers (Python refuses to convert thousands)."""


@dataclass(frozen=True)
class Source:
    """A sweep file as read: its plain data, and where each part of it stands."""

    name: str
    text: str
    data: Any
    folder: FilePath
    """Relative files of the corpus are looked up here."""
    lines: dict[Path, int] = field(repr=False)

    def line(self, path: Path) -> int:
        """The line of ``path``, or of the nearest part of the file around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def problem(self, path: Path, message: str) -> Problem:
        """A problem at ``path``."""
        return Problem(self.name, self.line(path), dotted(path), message)


def read_file(path: FilePath) -> Source:
    """Read the file at ``path``. Raises :class:`SweepError` for what is not a readable YAML file."""
    name = str(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise SweepError([Problem(name, 1, "", f"more than {LARGEST_FILE} bytes: not a sweep file")])
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise SweepError([Problem(name, 1, "", "no such file")]) from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SweepError([Problem(name, line, "", "not UTF-8 text")]) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SweepError([Problem(name, 1, "", f"cannot be read: {reason}")]) from None
    return read_text(text, name, path.parent)


def read_text(text: str, name: str, folder: FilePath) -> Source:
    """Read YAML ``text``. Raises :class:`SweepError` for anything but one document of plain values."""
    reader = _Reader(name)
    try:
        data = reader.document(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"the character {shown(chr(int(error.character)))} is not allowed in YAML"
        raise SweepError([Problem(name, line, "", message)]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        raise SweepError([Problem(name, mark.line + 1 if mark else 1, "", f"not YAML: {message}")]) from None
    except (ValueError, OverflowError) as error:
        if isinstance(error, SweepError):
            raise
        # PyYAML lets chr() and int() fail on escapes and versions that are out of range.
        raise SweepError([Problem(name, reader.line, "", f"not YAML: {error}")]) from None
    return Source(name, text, data, folder, reader.lines)


class _Reader:
    """Turns PyYAML's events into plain data; its depth and its size are bounded whatever the input."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.line = 1
        self.lines: dict[Path, int] = {}
        self._n_values = 0
        self._anchors: dict[str, tuple[Any, int, int]] = {}

    def document(self, text: str) -> Any:
        self._events: Any = yaml.SafeLoader(text)
        self._next()  # the stream's start
        if isinstance(self._next(), yaml.StreamEndEvent):
            return None
        data, _ = self._value((), self._next())
        self._next()  # the document's end
        if not isinstance(self._next(), yaml.StreamEndEvent):
            self._refuse((), "a second document begins; a sweep file holds one")
        return data

    def _next(self) -> Any:
        event = self._events.get_event()
        self.line = event.start_mark.line + 1
        return event

    def _refuse(self, path: Path, message: str) -> NoReturn:
        raise SweepError([Problem(self.name, self.line, dotted(path), message)])

    def _value(self, path: Path, event: Any) -> tuple[Any, int]:
        """The value that ``event`` begins, and how many levels deep it is."""
        self.lines.setdefault(path, self.line)
        if len(path) > DEEPEST:
            self._refuse(path[:1], f"nested more than {DEEPEST} deep")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(path, str(event.anchor))
        before = self._n_values
        self._count(path, 1)
        if isinstance(event, yaml.ScalarEvent):
            value, depth = self._scalar(path, event), 0
        elif isinstance(event, yaml.SequenceStartEvent):
            value, depth = self._sequence(path, event)
        else:
            value, depth = self._mapping(path, event)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._n_values - before, depth)
        return value, depth

    def _alias(self, path: Path, anchor: str) -> tuple[Any, int]:
        if anchor not in self._anchors:
            self._refuse(path, f"the alias *{anchor} stands for nothing above it, or for itself")
        value, size, depth = self._anchors[anchor]
        if len(path) + depth > DEEPEST:
            self._refuse(path[:1], f"nested more than {DEEPEST} deep")
        self._count(path, size)
        return value, depth

    def _count(self, path: Path, size: int) -> None:
        self._n_values += size
        if self._n_values > MOST_VALUES:
            self._refuse(path, f"more than {MOST_VALUES} values, counting every use of an alias")

    def _check_tag(self, path: Path, tag: str | None, allowed: tuple[str, ...]) -> None:
        if tag is not None and tag != "!" and tag not in [_TAG + name for name in allowed]:
            written = tag.replace(_TAG, "!!")
            self._refuse(path, f"the tag {shown(written)} is refused; a sweep file holds plain values only")

    def _sequence(self, path: Path, event: Any) -> tuple[list[Any], int]:
        self._check_tag(path, event.tag, ("seq",))
        items: list[Any] = []
        deepest = 0
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            item, depth = self._value((*path, len(items)), event)
            items.append(item)
            deepest = max(deepest, depth)
        return items, deepest + 1

    def _mapping(self, path: Path, event: Any) -> tuple[dict[str, Any], int]:
        self._check_tag(path, event.tag, ("map",))
        values: dict[str, Any] = {}
        deepest = 0
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(path, event)
            if key in values:
                first = self.lines[(*path, key)]
                self._refuse((*path, key), f"given twice; the first is in line {first}")
            self.lines[(*path, key)] = self.line
            values[key], depth = self._value((*path, key), self._next())
            deepest = max(deepest, depth)
        return values, deepest + 1

    def _key(self, path: Path, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._refuse(path, "a key that is not plain text")
        self._check_tag(path, event.tag, ("str",))
        return self._text(path, event.value)

    def _text(self, path: Path, text: str) -> str:
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._refuse(path, f"{shown(text)} holds half a character (a lone surrogate)")
        return text

    def _scalar(self, path: Path, event: Any) -> Any:
        self._check_tag(path, event.tag, ("str", "int", "float", "bool", "null"))
        is_text = event.tag == _TAG + "str" or (event.tag is None and event.style is not None)
        value = self._text(path, event.value) if is_text or event.tag == "!" else _plain(event.value)
        if event.tag not in (None, "!", _TAG + "str") and _TAG + _kind(value) != event.tag:
            self._refuse(path, f"{shown(event.value)} is not of the type that its tag names")
        return value


def _plain(text: str) -> Any:
    """The value of a scalar without quotes."""
    if _NULL.fullmatch(text):
        return None
    if _BOOLEAN.fullmatch(text):
        return text.lower() == "true"
    if len(text) <= _MOST_DIGITS and _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    if _NOT_FINITE.fullmatch(text):
        return float(text.lower().replace(".", ""))
    return text


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "bool", int: "int", float: "float", str: "str"}[type(value)]
