"""Read a sweep file's YAML as plain data that remembers the line of every field.

ruamel.yaml composes the tree of nodes; this module turns it into dictionaries, lists and scalars. Keys are
always text, so that an arm may be called ``on``. Refused are tags that would construct an object, repeated
keys, and input that is small as a file and huge as data: deep nesting, aliases that multiply.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.tag import Tag

from scalevec.sweeps.errors import Path, Problem, SweepError, dotted, shown

LARGEST_FILE = 256 * 1024
"""Bytes; a sweep file of a thousand arms is smaller."""
DEEPEST = 20
MOST_VALUES = 50_000
"""Values in the file with every alias written out."""

_TOO_LARGE = f"more than {LARGEST_FILE} bytes: not a sweep file"
_LONGEST_MESSAGE = 200
_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (re.compile(r"~|null|Null|NULL|"), lambda text: None),  # noqa: ARG005 (one signature)
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    # Python refuses to convert thousands of digits: longer integers are read as floating-point numbers.
    "int": (re.compile(r"[-+]?[0-9](_?[0-9]){0,39}"), lambda text: int(text.replace("_", ""))),
    "float": (
        re.compile(
            r"[-+]?(\.[0-9]+|[0-9](_?[0-9])*(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
            r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
        ),
        lambda text: float(re.sub(r"\.(?=[iInN])|_", "", text)),
    ),
    "str": (re.compile(r".*", re.DOTALL), str),
}
"""Tag -> how a scalar without quotes is written that has it (YAML 1.2, and ``_`` in numbers), its value."""


class _PlainScalars(VersionedResolver):
    """Gives scalars without quotes the tags of ``_SCALARS``, whatever version a ``%YAML`` directive names.

    ruamel's own resolver takes ``.5e3`` for text and ``1__0`` for a number, and fails on ``%YAML 1.3``.
    """

    def resolve(self, kind: type[Node], value: str, implicit: tuple[bool, bool]) -> Tag:
        """Return the tag of a node that has none."""
        if kind is ScalarNode and implicit[0]:
            tags = (tag for tag, (pattern, _) in _SCALARS.items() if pattern.fullmatch(value))
            return Tag(suffix=_TAG + next(tags))
        tag: Tag = super().resolve(kind, value, implicit)
        return tag


@dataclass(frozen=True)
class SweepSource:
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
        """A problem at ``path``; a position in a list that the file writes as its one item is left out."""
        data, written = self.data, list[str | int]()
        for part in path:
            is_item_itself = isinstance(part, int) and data is not None and not isinstance(data, list)
            if not is_item_itself:
                written.append(part)
                data = data[part] if tuple(written) in self.lines else None
        return Problem(self.name, self.line(tuple(written)), dotted(tuple(written)), message)


def read_file(path: FilePath) -> SweepSource:
    """Read the file at ``path``. Raises :class:`SweepError` for what is not a readable YAML file."""
    name = str(path)
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a FIFO would wait for ever
            raise ValueError("it is no regular file")
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise SweepError([Problem(name, 1, "", _TOO_LARGE)])
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


def read_text(text: str, name: str, folder: FilePath) -> SweepSource:
    """Read YAML ``text``. Raises :class:`SweepError` for anything but one document of plain values."""
    if len(text) > LARGEST_FILE:
        raise SweepError([Problem(name, 1, "", _TOO_LARGE)])
    yaml: Any = YAML(typ="safe", pure=True)
    yaml.Resolver = _PlainScalars
    yaml.max_depth = DEEPEST + 1  # the root is at depth 1
    yaml.composer.warn_double_anchors = False
    reader = _NodeReader(name)
    try:
        root = yaml.compose(text)
        data = None if root is None else reader.value((), root)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"the character {shown(chr(int(error.character)))} is not allowed in YAML"
        raise SweepError([Problem(name, line, "", message)]) from None
    except MaxDepthExceededError as error:
        message = f"nested more than {DEEPEST} deep"
        raise SweepError([Problem(name, error.problem_mark.line + 1, "", message)]) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)[:_LONGEST_MESSAGE]
        raise SweepError([Problem(name, mark.line + 1 if mark else 1, "", f"not YAML: {message}")]) from None
    except SweepError:
        raise
    except (ValueError, OverflowError, AssertionError) as error:
        # ruamel.yaml lets chr(), int() and assertions fail on escapes and versions that are out of range.
        raise SweepError([Problem(name, yaml.reader.line + 1, "", f"not YAML: {error}")]) from None
    return SweepSource(name, text, data, folder, reader.lines)


class _NodeReader:
    """Turns nodes into plain data, each use of an alias by itself, in bounds of depth and size."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Path, int] = {}
        self._n_values = 0

    def _refuse(self, path: Path, node: Node, message: str) -> NoReturn:
        raise SweepError([Problem(self.name, node.start_mark.line + 1, dotted(path), message)])

    def value(self, path: Path, node: Node) -> Any:
        """Return the data of ``node``, which stands at ``path``."""
        self.lines.setdefault(path, node.start_mark.line + 1)
        self._n_values += 1
        if len(path) > DEEPEST:  # an alias for what stands around it comes here too
            self._refuse(path[:1], node, f"nested more than {DEEPEST} deep")
        if self._n_values > MOST_VALUES:
            self._refuse(path, node, f"more than {MOST_VALUES} values, counting every use of an alias")
        if isinstance(node, SequenceNode):
            self._check_tag(path, node, ("seq",))
            return [self.value((*path, position), item) for position, item in enumerate(node.value)]
        if isinstance(node, MappingNode):
            self._check_tag(path, node, ("map",))
            return self._mapping(path, node)
        return self._scalar(path, node)

    def _mapping(self, path: Path, node: Node) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._refuse(path, key_node, "a key that is not plain text")
            self._check_tag(path, key_node, tuple(_SCALARS))
            key = self._text(path, key_node)
            if key == "<<" and key_node.style is None:
                self._refuse((*path, key), key_node, "merge keys are not read; write the fields out")
            if key in values:
                first = self.lines[(*path, key)]
                self._refuse((*path, key), key_node, f"given twice; the first is in line {first}")
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            values[key] = self.value((*path, key), value_node)
        return values

    def _scalar(self, path: Path, node: Node) -> Any:
        self._check_tag(path, node, tuple(_SCALARS))
        tag = str(node.tag).removeprefix(_TAG)
        pattern, value_of = _SCALARS[tag]
        if not pattern.fullmatch(node.value):
            self._refuse(path, node, f"{shown(node.value)} is not of the type that its tag names")
        return self._text(path, node) if tag == "str" else value_of(node.value)

    def _check_tag(self, path: Path, node: Node, allowed: tuple[str, ...]) -> None:
        if node.tag not in [_TAG + name for name in allowed]:
            written = str(node.tag).replace(_TAG, "!!")
            self._refuse(
                path, node, f"the tag {shown(written)} is refused; a sweep file holds plain values only"
            )

    def _text(self, path: Path, node: Node) -> str:
        text: str = node.value
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._refuse(path, node, f"{shown(text)} holds half a character (a lone surrogate)")
        return text
