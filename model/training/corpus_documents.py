"""From texts to the documents of a corpus and their splits, decided by content alone.

Neither file names nor their order matter: equal content gives equal documents, splits and order.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from model.training.corpus_sources import CorpusError

SPLITS = ("train", "validation", "test")
HELD_OUT_FRACTION = 0.02
"""Share of the bytes that validation and test get each."""
SMALLEST_LIMIT = 512
FEWEST_PIECES = 512
_SPLIT_SALT = b"scalevec split 1"


@dataclass(frozen=True)
class Document:
    """A piece of text (valid UTF-8) and the SHA-256 of its content."""

    content: bytes
    digest: str


def documents_of(texts: Iterable[bytes]) -> list[Document]:
    """The distinct documents in ``texts``.

    A text longer than 1/512 of all distinct text (and 512 bytes) is cut, so that a corpus of one file
    can be split as well; no document is then large enough to unbalance the splits.
    """
    whole = list(dict.fromkeys(content for content in texts if content))
    limit = max(SMALLEST_LIMIT, sum(map(len, whole)) // FEWEST_PIECES)
    pieces = dict.fromkeys(piece for content in whole for piece in cut(content, limit))
    return [Document(piece, hashlib.sha256(piece).hexdigest()) for piece in pieces]


def cut(content: bytes, limit: int) -> Iterator[bytes]:
    """Consecutive pieces of at most ``limit`` (4 or more) bytes that end at a line where they can.

    A piece without a line end is cut between two characters.
    """
    start = 0
    while start < len(content):
        end = _end_of_piece(content, start, limit)
        yield content[start:end]
        start = end


def _end_of_piece(content: bytes, start: int, limit: int) -> int:
    end = start + limit
    if end >= len(content):
        return len(content)
    line_end = content.rfind(b"\n", start, end)
    if line_end >= 0:
        return line_end + 1
    while content[end] & 0xC0 == 0x80:  # inside a UTF-8 character
        end -= 1
    return end


def split(documents: Sequence[Document]) -> dict[str, list[Document]]:
    """Each split's documents, in the order in which they are stored.

    Documents are ranked by a salted hash of their content; the first go to test until it has 2 % of the
    bytes, the next to validation likewise, and the rest is for training. Each split gets one at least.
    Raises :class:`CorpusError` for fewer than three documents.
    """
    if len(documents) < len(SPLITS):
        raise CorpusError(
            f"the corpus is too small: {len(documents)} distinct documents of up to {SMALLEST_LIMIT} bytes; "
            "training, validation and test need one each"
        )
    ranked = sorted(documents, key=_rank)
    quota = HELD_OUT_FRACTION * sum(len(document.content) for document in documents)
    test_end = _fill(ranked, 0, len(ranked) - 2, quota)
    validation_end = _fill(ranked, test_end, len(ranked) - 1, quota)
    return {
        "train": ranked[validation_end:],
        "validation": ranked[test_end:validation_end],
        "test": ranked[:test_end],
    }


def _rank(document: Document) -> bytes:
    return hashlib.sha256(_SPLIT_SALT + bytes.fromhex(document.digest)).digest()


def _fill(ranked: Sequence[Document], start: int, latest_end: int, quota: float) -> int:
    """The end of the shortest run from ``start`` that holds ``quota`` bytes, but not past ``latest_end``."""
    size = 0
    for end in range(start, latest_end):
        size += len(ranked[end].content)
        if size >= quota:
            return end + 1
    return latest_end
