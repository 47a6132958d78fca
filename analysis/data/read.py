"""The rows of a table in a file, CSV, JSON lines or Parquet, packed or not: no cell is interpreted.

What a file holds is seen by how it begins: its name alone decides nothing that can be seen.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import plural

if TYPE_CHECKING:
    import pandas as pd

HEAD = 2**16
"""Bytes that are looked at."""
MARKS = {b"PAR1": ".parquet", b"SQLite format 3\0": ".db"}
"""How files of a kind begin, and the suffix that they have."""
SEPARATORS = {".csv": ",", ".tsv": "\t"}
_NAMED = (*SEPARATORS, ".jsonl", ".ndjson")
SUFFIXES = (*_NAMED, ".parquet")
_KEY = re.compile(r"\s*(#|---|%|-\s|\[|<|\{\s*$|\{\s*\w|[\w.\"'-]+\s*:(\s|$))")
"""How YAML, JSON and markup may begin, and no header of a table."""
LOG_LINE = re.compile(
    r"(?!\s*#)(?=.*(iter(ation)?|step|epoch)\b['\s:=]*\d)(?=.*loss\b['\s:=]*\d).*", re.IGNORECASE
)
"""A line of a training log, as text: both are told with their numbers."""
LARGEST_FILE_BYTES = 100_000_000
csv.field_size_limit(LARGEST_FILE_BYTES)
MOST_COLUMNS, MOST_CELLS = 10_000, 40_000_000
_DEEPEST = 8
"""Levels of a JSON object whose fields become columns."""
_COMMA = re.compile(r"([+-]?)(\d{1,3}(?:\.\d{3})+|\d+),(\d+(?:e[+-]?\d+)?\s*[kmbgt]?)", re.IGNORECASE)
_POINT = re.compile(r"[+-]?\d*\.\d+(?:e[+-]?\d+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,])\d{3}(\1\d{3})*")
"""Numbers as they are grouped, by commas or points."""
_LINES = "one JSON object on every line is needed; of a list: jq -c '.[]' FILE > NEW.jsonl"
_TOLD = re.compile(r"\s*sep=([,;|\t])\r?\n")
"""The first line in which Excel is told what separates columns."""
_INDEX = re.compile(r"__index_level_\d+__")
"""How pandas calls an index without a name: the numbers of rows."""


def _unpacked_zst(path: Path) -> Any:
    from pyarrow import input_stream

    return input_stream(str(path), compression="zstd")


PACKED: Mapping[str, tuple[bytes, Callable[[Path], Any]]] = {
    ".gz": (b"\x1f\x8b", gzip.open),
    ".bz2": (b"BZh", bz2.open),
    ".xz": (b"\xfd7zXZ\0", lzma.open),
    ".zst": (b"\x28\xb5\x2f\xfd", _unpacked_zst),
}
"""By suffix, how packed files begin and what opens them."""


def head_of(path: Path) -> tuple[bytes, str]:
    """Return how the content of ``path`` begins, unpacked, and the suffix of its packing, or none.

    Of what is no regular file or cannot be read it is empty: whoever reads it says why.
    """
    packed = ""
    try:
        if not path.is_file():
            return b"", packed
        with path.open("rb") as stream:
            head = stream.read(HEAD)
        packed = next((suffix for suffix, (mark, _) in PACKED.items() if head.startswith(mark)), "")
        with opened(path, packed) as stream:
            return stream.read(HEAD), packed
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
        return b"", packed


def opened(path: Path, packed: str) -> Any:
    """Return the open file ``path``, unpacked by the suffix of its packing."""
    return PACKED[packed][1](path) if packed else path.open("rb")


def encoding_of(head: bytes) -> str:
    """Return how the text that begins with ``head`` is encoded, by its mark."""
    return "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"


def text_of(head: bytes) -> str | None:
    """Return the whole lines of ``head`` as text; None for what is none."""
    text = head.decode(encoding_of(head), errors="ignore")
    text = text if len(head) < HEAD else text.rpartition("\n")[0]
    return None if "\0" in text or text.count("\x1b") or re.search(r"[\x01-\x08\x0e-\x1a]", text) else text


def kind_of(path: Path) -> tuple[str, str]:
    """Return the suffix of the kind of table that ``path`` holds, none for anything else, and its packing."""
    head, packed = head_of(path)
    marked = [suffix for mark, suffix in MARKS.items() if head.startswith(mark)]
    named = Path(path.stem if path.suffix.lower() in PACKED else path.name).suffix.lower()
    text = text_of(head)
    if marked or named in MARKS.values() or (named in _NAMED and text is not None):
        return (*marked, named)[0], packed
    return _table_in(text or ""), packed


def _table_in(text: str) -> str:
    lines = [line for line in text.splitlines()[:20] if line.strip()]
    if len(lines) < 2 or _KEY.match(lines[0]) or all(map(LOG_LINE.match, lines[:2])):
        return ""
    if all(map(_is_record, lines[:2])):
        return ".jsonl"
    return {"": "", "\t": ".tsv"}.get(_separator(lines), ".csv")


def _is_record(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def rows_of_file(path: Path) -> "pd.DataFrame":
    """The rows in ``path``: cells are text, or what JSON and Parquet hold. Raises :class:`DataError`."""
    if not path.is_file():
        is_pattern = not {"*", "?"}.isdisjoint(str(path))
        raise DataError(f"{path} is not a file" + "; without quotes the shell names the files" * is_pattern)
    suffix, packed = kind_of(path)
    if suffix not in SUFFIXES:
        raise DataError(f"{path} holds no table; allowed: {', '.join(SUFFIXES)}, also as {', '.join(PACKED)}")
    _require_size(str(path), path.stat().st_size)
    try:
        with opened(path, packed) as stream:
            content = stream.read(LARGEST_FILE_BYTES + 1)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    _require_size(str(path), len(content))
    if suffix == ".parquet":
        return _parquet(path, content)
    try:
        text = content.decode(encoding_of(content))
    except UnicodeDecodeError as error:
        encoding = error.encoding.removesuffix("-le").removesuffix("-be").upper()
        raise DataError(f"{path} cannot be read as {encoding} text: {error}; save it as UTF-8") from error
    return rows_of_text(str(path), text, suffix)


def _require_size(name: str, size: int) -> None:
    if size > LARGEST_FILE_BYTES:
        raise DataError(f"{name} has {size} bytes; allowed: up to {LARGEST_FILE_BYTES} (one row per trial)")


def rows_of_text(name: str, text: str, suffix: str) -> "pd.DataFrame":
    """The rows of ``text``, written as files with that ``suffix`` are. Raises :class:`DataError`."""
    _require_size(name, len(text))
    if suffix in SEPARATORS:
        return _separated(name, text, SEPARATORS[suffix])
    lines = enumerate(text.split("\n"), 1)
    return table_of(_record(name, number, line) for number, line in lines if line.strip())


def _separated(name: str, text: str, usual: str) -> "pd.DataFrame":
    text = _without_remarks(re.sub("\r\n?", "\n", text), usual)
    if told := _TOLD.match(text):
        text, usual = text[told.end() :], told[1]
    try:
        separator = _separator(text.lstrip().splitlines()[:2], usual) or usual
        header, *rows = filter(any, _reader(io.StringIO(text, newline=""), separator))
    except (csv.Error, ValueError) as error:
        why = error if isinstance(error, csv.Error) else "it is empty"
        raise DataError(f"{name} cannot be read as CSV: {why}") from error
    columns = [cell.strip() or f"Unnamed: {number}" for number, cell in enumerate(header)]
    titles = list(filter(str.strip, header))
    if len(titles) == 1 and (len(header) > 2 or (len(header) == 1 and re.search(r"[\s;|:,]", titles[0]))):
        raise DataError(
            f"{name} has one named column, {titles[0][:60]!r}: separate columns by commas, "
            "semicolons or tabs, and delete what stands above their names"
        )
    for number, cells in enumerate(rows, 1):
        if len(cells) != len(columns):
            raise DataError(
                f"{name}, row {number}: {plural(len(cells), 'cell')} under {plural(len(columns), 'column')}: "
                "a cut line, or a comma within a number? Write 3.51, or separate columns by semicolons"
            )
    import pandas as pd

    return pd.DataFrame(_with_points(name, columns, rows, separator), columns=columns, dtype=object)


def _without_remarks(text: str, usual: str) -> str:
    """``text`` without lines of ``#`` above the header and below the table; one as wide may be the header."""
    lines = re.sub(r"(\n#.*)+\s*\Z", "\n", text).split("\n")
    first = next((number for number, line in enumerate(lines) if not line.startswith("#")), 0)
    separator = _separator(lines[first : first + 2], usual) or usual
    widths = [len(next(_reader([line], separator), ())) for line in lines[: first + 1][-2:]]
    is_header = first and widths[0] == widths[1]
    return "\n".join(lines[first - bool(is_header) :])


def _reader(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    return csv.reader(lines, delimiter=separator, skipinitialspace=separator != "\t")


def _separator(lines: Sequence[str], usual: str = ",") -> str:
    """What stands between the columns: of those that give ``lines`` equally many, most of them; else ""."""
    widths = {"": 1}
    for separator in dict.fromkeys((usual, ",", ";", "\t", "|")):
        counts = {len(cells) for cells in _reader(lines, separator) if cells}
        widths[separator] = max(counts) if len(counts) == 1 else 0
    return max(widths, key=lambda separator: widths[separator])


def _with_points(
    name: str, columns: Sequence[str], rows: Sequence[list[str]], separator: str
) -> Sequence[list[str]]:
    """``rows`` with decimal points where the file has decimal commas; what may be either is refused.

    Raises :class:`DataError` for ``3,512`` where nothing else says what a comma is, for ``3.512`` beside
    decimal commas of other columns, and for a loss of ``3,512``: none has thousands of nats.
    """
    marked = {cell for row in rows for cell in row if "," in cell or "." in cell}
    commas = {cell for cell in marked if _COMMA.fullmatch(cell)}
    grouped = {cell for cell in marked if _THOUSANDS.fullmatch(cell)}
    points = {cell for cell in marked if _POINT.fullmatch(cell)}
    # Between commas a point is a decimal one: whoever writes 3,51 separates columns by something else.
    is_english = points if separator == "," else points - grouped
    if not commas or is_english or any(cell.count(",") > 1 for cell in grouped):
        losses = [number for number, column in enumerate(columns) if "loss" in column.lower()]
        unclear = {row[number] for row in rows for number in losses} & grouped & commas
        if not unclear:
            return rows
    else:
        unclear = commas if commas <= grouped else set()
    for column in zip(*rows, strict=True) if not unclear else ():
        if not any(_COMMA.fullmatch(cell) or cell.count(".") > 1 for cell in column):
            unclear |= {*column} & points
    if not unclear:
        return [[_with_point(cell) for cell in row] for row in rows]
    cell = min(unclear)
    raise DataError(
        f"{name}: {cell!r} may be {re.sub('[.,]', '.', cell)} or {re.sub('[.,]', '', cell)}; write numbers "
        "with decimal points and nothing between thousands"
    )


def _with_point(cell: str) -> str:
    if number := _COMMA.fullmatch(cell):
        return f"{number[1]}{number[2].replace('.', '')}.{number[3]}"
    grouped = _THOUSANDS.fullmatch(cell)
    return cell.replace(".", "") if grouped and grouped[1] == "." else cell


def table_of(records: Iterable[Mapping[str, Any]]) -> "pd.DataFrame":
    """A table of records with the fields of their records as ``outer.inner``; a missing one is None."""
    flat = [_flat(record) for record in records]
    names = list(dict.fromkeys(name for record in flat for name in record))
    _require_room(len(flat), len(names))
    import pandas as pd

    return pd.DataFrame(
        {name: pd.Series([record.get(name) for record in flat], dtype=object) for name in names}
    )


def _require_room(rows: int, columns: int) -> None:
    if columns > MOST_COLUMNS or rows * columns > MOST_CELLS:
        raise DataError(
            f"{rows} rows of {columns} columns; allowed: up to {MOST_COLUMNS} columns and {MOST_CELLS} cells"
        )


def _record(name: str, number: int, line: str) -> Mapping[str, Any]:
    from scalevec.analysis.data.values import finite

    try:
        record = json.loads(line, parse_float=finite, object_pairs_hook=_fields)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}:{number}: not JSON: {error}; {_LINES}") from error
    if not isinstance(record, dict):
        raise DataError(f"{name}:{number}: {line[:40]}; {_LINES}")
    return record


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [(twin, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twin!r} stands there twice")
    return fields


def _flat(record: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """``value`` wrappers, as W&B writes its configurations, are taken off."""
    fields: dict[str, Any] = {}
    for key, value in record.items():
        name = f"{prefix}{_storable(str(key))}"
        if isinstance(value, dict) and set(value) <= {"value", "desc"} and "value" in value:
            value = value["value"]
        if isinstance(value, dict) and depth < _DEEPEST:
            fields |= _flat(value, f"{name}.", depth + 1)
        elif isinstance(value, dict | list):
            fields[name] = json.dumps(value)
        elif value is None:  # a null was measured, and is no number: what a record lacks is None
            fields[name] = math.nan
        else:
            fields[name] = _storable(value) if isinstance(value, str) else value
    return fields


def _storable(text: str) -> str:
    """``text`` with a question mark for each half of a surrogate pair, which no table can hold."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _parquet(path: Path, content: bytes) -> "pd.DataFrame":
    """The table in the ``content`` of ``path``. Raises :class:`DataError`: too large, or not to be read."""
    import pandas as pd
    import pyarrow
    import pyarrow.parquet

    try:
        stream = pyarrow.BufferReader(content)
        facts = pyarrow.parquet.read_metadata(stream)
        _require_room(facts.num_rows, facts.num_columns)  # a small file may describe any number of rows
        schema = facts.schema.to_arrow_schema()
        names = [name for name in schema.names if not _INDEX.fullmatch(name)]
        if twins := [name for name, times in Counter(names).items() if times > 1]:
            raise DataError(f"{path} has several columns {min(twins)!r}; allowed: one of each name")
        table = _with_short_texts(pyarrow.parquet.read_table(stream, columns=names, read_dictionary=names))
        table = table.cast(pyarrow.schema([schema.field(name) for name in names])).replace_schema_metadata()
        plain = [name for name in names if _is_plain(table[name].type)]
        others = [name for name in names if name not in set(plain)]
        # Without what pandas kept beside them: it may be of another version, or anybody's. An integer column
        # with blanks stays one of integers, as text has them.
        frame: pd.DataFrame = table.select(plain).to_pandas(ignore_metadata=True, integer_object_nulls=True)
        if others:
            records = table.select(others).to_pylist()
            frame = pd.concat([frame, table_of(map(_with_text, records))], axis=1)
    except DataError:
        raise
    except (ValueError, OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error
    return frame


def _with_short_texts(table: Any) -> Any:
    """``table``, whose texts are dictionaries. Raises :class:`DataError` for long ones."""
    import pyarrow
    import pyarrow.compute

    size = 0
    for column in table.columns:
        for chunk in column.chunks if pyarrow.types.is_dictionary(column.type) else ():
            with suppress(pyarrow.ArrowNotImplementedError):  # of no text
                lengths = pyarrow.compute.binary_length(chunk.dictionary)
                size += pyarrow.compute.sum(lengths.take(chunk.indices)).as_py() or 0
    _require_size("its text", size)
    return table


def _is_plain(kind: Any) -> bool:
    """Whether pandas has columns of this kind of Arrow; others are read cell by cell."""
    from pyarrow import types as t

    known = (t.is_boolean, t.is_integer, t.is_float32, t.is_float64, t.is_string, t.is_large_string)
    return any(is_one(kind) for is_one in (*known, t.is_temporal, t.is_list, t.is_large_list, t.is_null))


def _with_text(value: Any) -> Any:
    """``value`` with bytes as text, as hexadecimal digits where they are none; pairs of a map as a record."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    is_map = isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value)
    if is_map or isinstance(value, dict):
        return {str(key): _with_text(inner) for key, inner in dict(value).items()}
    return value
