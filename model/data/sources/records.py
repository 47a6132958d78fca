"""Sources whose files hold one document a record: JSON lines and Parquet."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scalevec.model.data.sources.files import BLOCK, Blocks, CorpusError, damaged, opened

LONGEST_LINE = 1 << 28
"""Bytes; a longer one is no JSON line but a whole file, which would not fit into memory."""
RECORDS_AT_ONCE = 256
"""Of a Parquet file; its pages are read one after the other."""


def jsonl(
    path: Path, field: str, *, nul_separates: bool, start: int = 0, stop: int | None = None
) -> Iterator[Blocks]:
    """The text in ``field`` of each line's JSON object; blank lines hold none, null is an empty document.

    nul_separates: the byte 0 ends a document, so that no text may hold it.
    start, stop: only the lines that begin at one of these bytes (without ``stop`` to the end).
    Raises :class:`CorpusError` with the file and the line of what is none.
    """
    for line in _lines(path, start, stop):
        if len(line.content) == LONGEST_LINE:
            raise CorpusError(f"{line.where()}: longer than {LONGEST_LINE:,} bytes; this is no JSON line")
        if not line.content.isspace():
            text = _text_of(line, field)
            yield (_encoded(text, partial(_field_of, line, field), nul_separates=nul_separates),)


def _field_of(line: "_JSONLine", field: str) -> str:
    return f"{line.where()}: the field {field!r}"


@dataclass(frozen=True)
class _JSONLine:
    """A line that begins at byte ``position``: the ``number``-th from byte ``start`` on."""

    path: Path
    start: int
    number: int
    position: int
    content: bytes

    def where(self) -> str:
        """The file and the number of the line in it; lines before ``start`` are counted only now."""
        before = 0
        with opened(self.path) as file:
            while file.tell() < self.start and (block := file.read(min(BLOCK, self.start - file.tell()))):
                before += block.count(b"\n")
        return f"{self.path}:{before + self.number}"


def _lines(path: Path, start: int, stop: int | None) -> Iterator[_JSONLine]:
    with opened(path) as file:
        if start:  # the line that is under way belongs to the extent before this one
            file.seek(start - 1)
            while (rest := file.readline(BLOCK)) and not rest.endswith(b"\n"):
                pass
            start = file.tell()
        number, position = 0, start
        while (stop is None or position < stop) and (line := file.readline(LONGEST_LINE)):
            number += 1
            yield _JSONLine(path, start, number, position, line)
            position += len(line)


def _text_of(line: _JSONLine, field: str) -> Any:
    """What ``field`` holds in one line."""
    try:
        record = json.loads(line.content.decode("utf-8-sig" if line.position == 0 else "utf-8"))
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{line.where()}: not UTF-8 text: {error.reason} at byte {line.position + error.start} "
            "of the file; convert it or leave it out"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CorpusError(
            f"{line.where()}: not JSON: {error}; a JSON object is needed on every line"
        ) from error
    if not isinstance(record, dict):
        raise CorpusError(
            f"{line.where()}: {_kind(record)}; a JSON object with the field {field!r} is needed"
        )
    if field not in record:
        fields = ", ".join(record) or "none"
        raise CorpusError(f"{line.where()}: no field {field!r}; its fields: {fields}")
    return record[field]


def _kind(value: object) -> str:
    names = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null" if value is None else "an object")


def _encoded(text: Any, what: Callable[[], str], *, nul_separates: bool) -> bytes:
    """``text`` as UTF-8; ``what`` names it.

    Raises :class:`CorpusError` unless it is text or nothing, and may be stored.
    """
    if text is None:
        return b""
    if not isinstance(text, str):
        raise CorpusError(f"{what()} holds {_kind(text)}; text is needed")
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(f"{what()} holds half a character (a lone surrogate) at {error.start}") from error
    if nul_separates and (position := content.find(b"\0")) >= 0:
        raise CorpusError(
            f"{what()} holds a NUL byte at byte {position}, which separates documents of bytes; take it out, "
            "or take another tokenizer"
        )
    return content


def parquet(path: Path, field: str, *, nul_separates: bool) -> Iterator[Blocks]:
    """The text in the column ``field`` of each row; null is an empty document.

    nul_separates: the byte 0 ends a document, so that no text may hold it.
    Raises :class:`CorpusError` for a file that is none or has no such column of text.
    """
    import pyarrow
    from pyarrow.parquet import ParquetFile

    row = 0

    def named() -> str:
        return f"{path}: row {row}: the column {field!r}"

    try:
        with opened(path) as source, ParquetFile(source, buffer_size=BLOCK, pre_buffer=False) as file:
            _check_column(path, file.schema_arrow, field)
            for batch in file.iter_batches(batch_size=RECORDS_AT_ONCE, columns=[field], use_threads=False):
                for value in batch.column(0):
                    row += 1
                    yield (_encoded(value.as_py(), named, nul_separates=nul_separates),)
    except UnicodeDecodeError as error:
        fault = f"{error.reason} at byte {error.start} of its text"
        raise CorpusError(
            f"{path}: row {row}: not UTF-8 text: {fault}; convert it or leave it out"
        ) from error
    except pyarrow.ArrowException as error:
        raise damaged(path, error) from error


def _check_column(path: Path, schema: Any, field: str) -> None:
    import pyarrow.types as types

    columns = ", ".join(f"{column.name} ({column.type})" for column in schema) or "none"
    if schema.names.count(field) != 1:
        raise CorpusError(f"corpus file {str(path)!r} has no column {field!r}; its columns: {columns}")
    kind = schema.field(field).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise CorpusError(
            f"corpus file {str(path)!r}: the column {field!r} holds {kind}; text is needed. "
            f"Columns: {columns}"
        )
