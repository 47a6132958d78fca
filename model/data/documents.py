"""From texts to the documents of a corpus and their splits, decided by content alone.

Neither file names nor their order matter: equal content gives equal documents, splits and order.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from scalevec.model.data.sources.files import CorpusError

SPLITS = ("train", "validation", "test")
SMALLEST_LIMIT = 512
FEWEST_PIECES = 512
LARGEST_LIMIT = 1 << 20
"""Bytes of the longest piece, except of ``text`` and ``python-stdlib``, whose rule was there before."""
_SPLIT_SALT = b"scalevec split 1"


def piece_limit(total: int, largest: int | None = None) -> int:
    """Bytes of the longest piece: 1/512 of all distinct text (``total`` bytes), but 512 at least.

    A corpus of one file can then be split as well, and no document is so large that it unbalances the splits.
    """
    limit = max(SMALLEST_LIMIT, total // FEWEST_PIECES)
    return limit if largest is None else min(limit, largest)


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


def rank(digest: bytes) -> bytes:
    """What a document is ranked by: a salted hash of the SHA-256 of its content (32 bytes)."""
    return hashlib.sha256(_SPLIT_SALT + digest).digest()


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


def split_of(key: bytes, origin: str, ends: Mapping[str, str]) -> str:
    """The split of a document with the rank ``key`` from files of the split ``origin``.

    ends: what :func:`last_ranks` gives, in hexadecimal.
    """
    if origin == "train":
        for name, last in ends.items():
            if key.hex() <= last:
                return name
    return origin


def require_enough(counts: Mapping[str, int], drawn: Sequence[str]) -> None:
    """Raise :class:`CorpusError` unless each split can have a document.

    ``counts``: distinct documents by the split whose files held them; ``drawn`` are taken from training's.
    """
    needed = [*drawn, "train"]
    if counts["train"] < len(needed):
        raise CorpusError(
            f"the corpus is too small: {counts['train']} distinct documents of up to {SMALLEST_LIMIT} bytes; "
            f"{_listed(needed)} need one each"
        )
    for name in SPLITS:
        if name not in needed and not counts[name]:
            raise CorpusError(f"the files of the {name} split hold no text of their own")


def _listed(splits: Sequence[str]) -> str:
    names = ["training" if name == "train" else name for name in sorted(splits, key=SPLITS.index)]
    return " and ".join(", ".join(names).rsplit(", ", 1))
