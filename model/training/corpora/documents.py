"""From texts to the documents of a corpus and their splits, decided by content alone.

Neither file names nor their order matter: equal content gives equal documents, splits and order.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scalevec.model.training.corpora.sources.files import CorpusError

SPLITS = ("train", "validation", "test")
SMALLEST_LIMIT = 512
FEWEST_PIECES = 512
LARGEST_LIMIT = 1 << 20
"""Bytes of the longest piece, except of ``text`` and ``python-stdlib``, whose rule was there before."""
_SPLIT_SALT = b"scalevec split 1"


@dataclass(frozen=True)
class Document:
    """A piece of text (UTF-8) or of token ids, and the split whose files held it."""

    content: bytes
    split: str


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


def split(
    documents: Iterable[Document], drawn: Sequence[str], count: int, quota: float
) -> Iterator[Document]:
    """``documents`` in their order, which is that of their rank, each with the split that it belongs to.

    ``drawn`` are the held-out splits without files of their own, test before validation. Of the documents
    that are not in another split's files (``count`` of them), the first go to test until it has ``quota``
    bytes, the next to validation likewise, and the rest is for training. Each split gets one
    at least.
    """
    open_splits = [*drawn, "train"]
    filled = position = 0
    for document in documents:
        if document.split != "train":
            yield document
            continue
        position += 1
        filled += len(document.content)
        yield Document(document.content, open_splits[0])
        later = len(open_splits) - 1
        if later and (filled >= quota or position >= count - later):
            del open_splits[0]
            filled = 0


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
