"""Which documents a corpus has, and in which split each is: decided by content alone.

Neither file names nor their order matter: equal content gives equal documents, splits and order.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from scalevec.model.data.specification import FORMAT_VERSION, SPLITS, CorpusError

SMALLEST_LIMIT = 512
FEWEST_PIECES = 512
LARGEST_LIMIT = 1 << 20
"""Bytes of the longest piece, except of ``text`` and ``python-stdlib``, whose rule was there before."""
_LARGEST_WHOLE = ("python-stdlib", "text")
_SPLIT_SALT = b"scalevec split 1"
_KEY_BYTES = 32
_LISTED_AT_ONCE = 1 << 16

FILLED = ("test", "validation", "train")
"""The order in which splits take documents: what is held out is never trained on."""
ROW = np.dtype(
    [("digest", f"S{_KEY_BYTES}"), ("split", "u1"), ("size", "<i8"), ("chunk", "<u4"), ("offset", "<i8")]
)
"""All that memory holds of a document: the SHA-256 of its content, its split (by its number in ``FILLED``),
its bytes, and where its content waits: from ``offset`` on in the file of an input chunk."""
Row = tuple[bytes, int, int, int, int]
Rows = np.ndarray[tuple[int], np.dtype[Any]]


def piece_limit(total: int, source: str) -> int:
    """Bytes of the longest piece: 1/512 of all distinct text (``total`` bytes), but 512 at least.

    A corpus of one file can then be split as well, and no document is so large that it unbalances the splits.
    """
    limit = max(SMALLEST_LIMIT, total // FEWEST_PIECES)
    return limit if source in _LARGEST_WHOLE else min(limit, LARGEST_LIMIT)


def cut(blocks: Iterable[bytes], limit: int, unit: int = 1) -> Iterator[bytes]:
    """The content of ``blocks`` in consecutive pieces of at most ``limit`` (8 or more) bytes.

    Text ends at a line where it can, else between two characters. Token ids (``unit`` bytes each, if more
    than one) end between two ids.
    """
    rest = bytearray()
    for block in blocks:
        rest += block
        start = 0
        while start + limit < len(rest):
            end = _end_of_piece(rest, start, limit) if unit == 1 else start + limit // unit * unit
            yield bytes(rest[start:end])
            start = end
        del rest[:start]
    if rest:
        yield bytes(rest)


def _end_of_piece(content: bytearray, start: int, limit: int) -> int:
    end = start + limit
    line_end = content.rfind(b"\n", start, end)
    if line_end >= 0:
        return line_end + 1
    while content[end] & 0xC0 == 0x80:  # inside a UTF-8 character
        end -= 1
    return end


def dedup(rows: Rows) -> Rows:
    """Each document once, in the order of the digests; of equal ones that which is first in ``FILLED``."""
    rows = rows[np.lexsort((rows["split"], rows["digest"]))]
    is_first = np.ones(len(rows), bool)
    is_first[1:] = rows["digest"][1:] != rows["digest"][:-1]
    return rows[is_first]


def by_split(rows: Rows) -> dict[str, Rows]:
    """The rows of each split."""
    return {name: rows[rows["split"] == FILLED.index(name)] for name in SPLITS}


def corpus_fingerprint(rows: Rows, tokenizer: Mapping[str, Any]) -> str:
    """SHA-256 (64 hex digits) of format, documents, the splits whose files held them, and the tokenizer."""
    sha256 = hashlib.sha256(b'{"documents":[')
    for start in range(0, len(rows), _LISTED_AT_ONCE):
        listed = _listed(rows[start : start + _LISTED_AT_ONCE])
        sha256.update((f",{listed}" if start else listed).encode())
    rest = {"format_version": FORMAT_VERSION, "tokenizer": tokenizer}
    sha256.update(b"]," + json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()[1:])
    return sha256.hexdigest()


def _listed(rows: Rows) -> str:
    suffixes = [f" {name}" if name != "train" else "" for name in FILLED]
    named = zip(_keys(rows["digest"]), rows["split"].tolist(), strict=True)
    return ",".join(f'"{key.hex()}{suffixes[split]}"' for key, split in named)


def _keys(column: Rows) -> Iterator[bytes]:
    """The 32 bytes of each key; a number of NumPy would leave out zeros at the end."""
    content = column.tobytes()
    return (content[start : start + _KEY_BYTES] for start in range(0, len(content), _KEY_BYTES))


def rank(digest: bytes) -> bytes:
    """What a document is ranked by: a salted hash of the SHA-256 of its content (32 bytes)."""
    return hashlib.sha256(_SPLIT_SALT + digest).digest()


def ranked(rows: Rows, drawn: Sequence[str], quota: float) -> Rows:
    """The documents in the order in which they are stored, that of their ranks, and in their final splits.

    rows: distinct documents in the splits whose files held them. drawn: the splits that are filled from those
    of training, test before validation, each with ``quota`` bytes.
    """
    ranks = np.fromiter((rank(key) for key in _keys(rows["digest"])), f"S{_KEY_BYTES}", len(rows))
    order = np.argsort(ranks, kind="stable")
    rows, ranks = rows[order], ranks[order]
    is_drawn_from = rows["split"] == FILLED.index("train")
    candidates = zip(_keys(ranks[is_drawn_from]), rows["size"][is_drawn_from].tolist(), strict=True)
    ends = last_ranks(candidates, drawn, int(is_drawn_from.sum()), quota)
    for name, last in reversed(ends.items()):  # the first split takes its own back from those after it
        rows["split"][is_drawn_from & (ranks <= np.bytes_(last))] = FILLED.index(name)
    return rows


def last_ranks(
    documents: Iterable[tuple[bytes, int]], drawn: Sequence[str], count: int, quota: float
) -> dict[str, bytes]:
    """The last document of each held-out split that has no files of its own, by its rank.

    ``drawn`` are these splits, test before validation. ``documents`` (``count`` of them) are those that are
    not in another split's files: rank and bytes, in the order of their rank. The first go to test until it
    has ``quota`` bytes, the next to validation likewise, and the rest is for training. Each split gets one
    at least.
    """
    ends: dict[str, bytes] = {}
    waiting = list(drawn)
    filled = 0
    for position, (key, size) in enumerate(documents if waiting else (), start=1):
        filled += size
        if filled >= quota or position >= count - len(waiting):
            ends[waiting.pop(0)] = key
            filled = 0
            if not waiting:
                break
    return ends


def require_enough(counts: Mapping[str, int], drawn: Sequence[str]) -> None:
    """Raise :class:`CorpusError` unless each split can have a document.

    ``counts``: distinct documents by the split whose files held them; ``drawn`` are taken from training's.
    """
    needed = [*drawn, "train"]
    if counts["train"] < len(needed):
        names = ["training" if name == "train" else name for name in sorted(needed, key=SPLITS.index)]
        raise CorpusError(
            f"the corpus is too small: {counts['train']} distinct documents of up to {SMALLEST_LIMIT} bytes; "
            f"{' and '.join(', '.join(names).rsplit(', ', 1))} need one each"
        )
    for name in SPLITS:
        if name not in needed and not counts[name]:
            raise CorpusError(f"the files of the {name} split hold no text of their own")
