"""Sources whose files hold one document a record: JSON lines and Parquet."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scalevec.model.training.corpora.sources.files import BLOCK, Blocks, CorpusError, damaged, opened

LONGEST_LINE = 1 << 28
"""Bytes; a longer one is no JSON line but a whole file, which would not fit into memory."""
RECORDS_AT_ONCE = 256
"""Of a Parquet file; its pages are read one after the other."""


def jsonl(path: Path, field: str, *, nul_separates: bool) -> Iterator[Blocks]:
    """The text in ``field`` of each line's JSON object; blank lines hold none, null is an empty document.

    nul_separates: the byte 0 ends a document, so that no text may hold it.
    Raises :class:`CorpusError` with the file and the line of what is none.
    """
    with opened(path) as file:
        number = position = 0
        while line := file.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE:
                raise CorpusError(
                    f"{path}:{number}: longer than {LONGEST_LINE:,} bytes; this is no JSON line"
                )
            if not line.isspace():
                text = _text_of(line, f"{path}:{number}", position, field)
                yield (_encoded(text, f"{path}:{number}: the field {field!r}", nul_separates=nul_separates),)
            position += len(line)


def _text_of(line: bytes, where: str, position: int, field: str) -> Any:
    """What ``field`` holds in one line, which begins at byte ``position``."""
    try:
        record = json.loads(line.decode("utf-8-sig" if position == 0 else "utf-8"))
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{where}: not UTF-8 text: {error.reason} at byte {position + error.start} of the file; "
            "convert it or leave it out"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where}: not JSON: {error}; a JSON object is needed on every line") from error
    if not isinstance(record, dict):
        raise CorpusError(f"{where}: {_kind(record)}; a JSON object with the field {field!r} is needed")
    if field not in record:
        fields = ", ".join(record) or "none"
        raise CorpusError(f"{where}: no field {field!r}; its fields: {fields}")
    return record[field]


def _kind(value: object) -> str:
    names = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null" if value is None else "an object")


def _encoded(text: Any, what: str, *, nul_separates: bool) -> bytes:
    """``text`` as UTF-8. Raises :class:`CorpusError` unless it is text or nothing, and may be stored."""
    if text is None:
        return b""
    if not isinstance(text, str):
        raise CorpusError(f"{what} holds {_kind(text)}; text is needed")
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(f"{what} holds half a character (a lone surrogate) at {error.start}") from error
    if nul_separates and (position := content.find(b"\0")) >= 0:
        raise CorpusError(
            f"{what} holds a NUL byte at byte {position}, which separates documents of bytes; take it out, "
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
    try:
        with opened(path) as source, ParquetFile(source, buffer_size=BLOCK, pre_buffer=False) as file:
            _check_column(path, file.schema_arrow, field)
            for batch in file.iter_batches(batch_size=RECORDS_AT_ONCE, columns=[field], use_threads=False):
                for value in batch.column(0):
                    row += 1
                    what = f"{path}: row {row}: the column {field!r}"
                    yield (_encoded(value.as_py(), what, nul_separates=nul_separates),)
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
