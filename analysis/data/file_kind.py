"""What a file holds, by looking at how it begins: its name alone decides nothing that can be seen."""

import bz2
import csv
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HEAD = 2**16
"""Bytes that are looked at."""
MARKS = {b"PAR1": ".parquet", b"SQLite format 3\0": ".db"}
"""How files of a kind begin, and the suffix that they have."""
_NAMED = (".csv", ".tsv", ".jsonl", ".ndjson")
_KEY = re.compile(r"\s*(#|---|%|-\s|\[|<|\{\s*$|\{\s*\w|[\w.\"'-]+\s*:(\s|$))")
"""How YAML, JSON and markup may begin, and no header of a table."""


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
            head = stream.read(HEAD)
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
        return b"", packed
    return head, packed


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
    if len(lines) < 2 or _KEY.match(lines[0]):
        return ""
    if all(map(_is_record, lines[:2])):
        return ".jsonl"
    widths = {mark: {len(next(csv.reader([line], delimiter=mark))) for line in lines} for mark in "\t,;|"}
    separator = next((mark for mark, width in widths.items() if len(width) == 1 and max(width) > 1), "")
    return {"": "", "\t": ".tsv"}.get(separator, ".csv")


def _is_record(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
