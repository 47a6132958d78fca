"""The documents in files of text, JSON lines, Parquet and token ids, compressed or not."""

import codecs
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from scalevec.model.data import CorpusConfig, CorpusError

Blocks = Sequence[bytes] | Iterator[bytes]
"""A document as consecutive blocks of its bytes: a large file is never held whole."""
BLOCK = 1 << 20
"""Bytes that are read at once."""
COMPRESSED = (".gz", ".zst")
"""The endings of files that :func:`opened` decompresses."""
LONGEST_LINE = 1 << 28
"""Bytes; a longer one is no JSON line but a whole file, which would not fit into memory."""
RECORDS_AT_ONCE = 256
"""Of a Parquet file; its pages are read one after the other."""
DTYPES = {"uint16": "<u2", "uint32": "<u4"}
"""What a shard may hold, by name: little-endian ids without a header."""
LONGEST_DOCUMENT = 1 << 18
"""Tokens; a longer run without a separator counts as several documents."""

Ids = np.ndarray[tuple[int], np.dtype[np.integer[Any]]]


class NotTextError(CorpusError):
    """A file holds other bytes than UTF-8 text without NUL."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of the file at ``path``; those of ``.gz`` and ``.zst`` are decompressed as they are read.

    Raises :class:`CorpusError`, while it is open too, where it cannot be read or is damaged.
    """
    try:
        with _open(path) as file:
            yield file
    except OSError as error:
        is_arrow = error.errno is None  # which says so of a broken page or stream
        raise damaged(path, error) if is_arrow else unreadable(path, error) from error


def _open(path: Path) -> BinaryIO:
    if path.suffix not in COMPRESSED:
        return path.open("rb")
    import pyarrow

    return io.BufferedReader(pyarrow.input_stream(str(path), compression="detect"), BLOCK)


def damaged(path: Path, error: object) -> CorpusError:
    """What is said of a file whose format is broken."""
    fault = " ".join(str(error).split())
    return CorpusError(f"corpus file {str(path)!r} is damaged: {fault}; fetch it again or leave it out")


def unreadable(path: object, error: OSError) -> CorpusError:
    """What is said of a file that the system does not give."""
    return CorpusError(f"corpus file {str(path)!r} cannot be read: {error.strerror or error}")


def text_blocks(path: Path) -> Iterator[bytes]:
    """The file at ``path`` in blocks. Raises :class:`NotTextError`; NUL separates the documents of bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    position, at_end = 0, False
    with opened(path) as file:
        while not at_end:
            block = file.read(BLOCK)
            at_end = not block
            if (nul := block.find(b"\0")) >= 0:
                raise _not_text(path, f"a NUL byte at byte {position + nul}")
            begun = len(decoder.getstate()[0])  # of a character that straddles two blocks
            try:
                decoder.decode(block, final=at_end)
            except UnicodeDecodeError as error:
                raise _not_text(path, f"{error.reason} at byte {position - begun + error.start}") from error
            position += len(block)
            yield block


def _not_text(path: Path, fault: str) -> NotTextError:
    return NotTextError(f"corpus file {str(path)!r} is not UTF-8 text: {fault}; convert it or leave it out")


def jsonl(config: CorpusConfig, path: Path) -> Iterator[Blocks]:
    """The text in the field of each line's JSON object; blank lines hold none, null is an empty document.

    Raises :class:`CorpusError` with the file and the line of what is none.
    """
    number = position = 0
    with opened(path) as file:
        while line := file.readline(LONGEST_LINE):
            number += 1
            where = f"{path}:{number}"
            if len(line) == LONGEST_LINE:
                raise CorpusError(f"{where}: longer than {LONGEST_LINE:,} bytes; this is no JSON line")
            if not line.isspace():
                text = _text_of(line, config.field, where, position)
                yield (_encoded(config, text, f"{where}: the field {config.field!r}"),)
            position += len(line)


def _text_of(line: bytes, field: str, where: str, position: int) -> Any:
    """What ``field`` holds in the line ``where``, which begins at byte ``position`` of its file."""
    try:
        record = json.loads(line.decode("utf-8-sig" if position == 0 else "utf-8"))
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{where}: not UTF-8 text: {error.reason} at byte {position + error.start} "
            "of the file; convert it or leave it out"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where}: not JSON: {error}; a JSON object is needed on every line") from error
    if not isinstance(record, dict):
        raise CorpusError(f"{where}: {_kind(record)}; a JSON object with the field {field!r} is needed")
    if field not in record:
        raise CorpusError(f"{where}: no field {field!r}; its fields: {', '.join(record) or 'none'}")
    return record[field]


def _kind(value: object) -> str:
    names = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null" if value is None else "an object")


def _encoded(config: CorpusConfig, text: Any, what: str) -> bytes:
    """``text`` as UTF-8; ``what`` names it.

    Raises :class:`CorpusError` unless it is text or nothing, and may be stored.
    """
    if text is None:
        return b""
    if not isinstance(text, str):
        raise CorpusError(f"{what} holds {_kind(text)}; text is needed")
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(f"{what} holds half a character (a lone surrogate) at {error.start}") from error
    if config.tokenizer == "bytes" and (position := content.find(b"\0")) >= 0:
        raise CorpusError(
            f"{what} holds a NUL byte at byte {position}, which separates documents of bytes; take it out, "
            "or take another tokenizer"
        )
    return content


def parquet(config: CorpusConfig, path: Path) -> Iterator[Blocks]:
    """The text in the column that ``config`` names of each row; null is an empty document.

    Raises :class:`CorpusError` for a file that is none or has no such column of text.
    """
    import pyarrow
    from pyarrow.parquet import ParquetFile

    row, field = 0, config.field
    try:
        with opened(path) as source, ParquetFile(source, buffer_size=BLOCK, pre_buffer=False) as file:
            _check_column(path, file.schema_arrow, field)
            for batch in file.iter_batches(batch_size=RECORDS_AT_ONCE, columns=[field], use_threads=False):
                for value in batch.column(0):
                    row += 1
                    what = f"{path}: row {row}: the column {field!r}"
                    yield (_encoded(config, value.as_py(), what),)
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


def shards(config: CorpusConfig, path: Path) -> Iterator[Blocks]:
    """The documents between separators as ids of the type that the corpus will hold.

    Raises :class:`CorpusError` for a file that ends within an id, or holds one outside the vocabulary.
    """
    dtype, stored = np.dtype(DTYPES[config.dtype]), config.stored_type
    begun: Ids = np.zeros(0, dtype)
    continued = False  # a document of which pieces were given already
    for ids in _id_blocks(config, path, dtype):
        *ended, rest = np.split(ids, np.flatnonzero(ids == config.separator_id) + 1)
        for part in ended:
            document = np.concatenate([begun, part[:-1]])
            if len(document) or not continued:
                yield from _in_pieces(document, stored)
            begun, continued = begun[:0], False
        begun = np.concatenate([begun, rest])
        whole = len(begun) // LONGEST_DOCUMENT * LONGEST_DOCUMENT
        if whole:
            yield from _in_pieces(begun[:whole], stored)
            begun, continued = begun[whole:], True
    if len(begun):
        yield from _in_pieces(begun, stored)


def _in_pieces(ids: Ids, stored: str) -> Iterator[Blocks]:
    """``ids`` as documents of the greatest length and what is left; one without content if there are none."""
    for start in range(0, max(len(ids), 1), LONGEST_DOCUMENT):
        yield (ids[start : start + LONGEST_DOCUMENT].astype(stored).tobytes(),)


def _id_blocks(config: CorpusConfig, path: Path, dtype: "np.dtype[Any]") -> Iterator[Ids]:
    """The ids of the file at ``path`` in blocks, each checked."""
    position = 0
    with opened(path) as file:
        while block := file.read(BLOCK):
            require_whole_ids(path, position * dtype.itemsize + len(block), dtype)
            ids = np.frombuffer(block, dtype)
            check_ids(path, ids, config.vocabulary_size, position)
            position += len(ids)
            yield ids


def require_whole_ids(path: Path, size: int, dtype: "np.dtype[Any]") -> None:
    """Raise :class:`CorpusError` where a file of ``size`` bytes ends within an id."""
    if size % dtype.itemsize:
        raise CorpusError(
            f"corpus file {str(path)!r} has {size:,} bytes, which is no whole number of "
            f"{dtype.itemsize}-byte token ids ({dtype.name}); it is damaged or of another type"
        )


def check_ids(path: Path, ids: Ids, vocabulary_size: int, position: int) -> None:
    """Raise :class:`CorpusError` unless each of ``ids``, which begin at token ``position``, is a token."""
    outside = np.flatnonzero((ids < 0) | (ids >= vocabulary_size))
    if len(outside):
        raise CorpusError(
            f"corpus file {str(path)!r} holds the token id {ids[outside[0]]} at token "
            f"{position + outside[0]:,}; allowed: ids below the vocabulary size {vocabulary_size:,}. "
            "It is damaged, of another type, or made with another tokenizer"
        )
