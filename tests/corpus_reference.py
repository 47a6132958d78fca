"""How documents and splits are made of text that is held in memory: what streaming has to agree with."""

import hashlib
from collections.abc import Callable, Iterable

from scalevec.model.data import SPLITS, CorpusConfig
from scalevec.model.data.sources import corpus_files, documents


def quiet(_message: str) -> None:
    """For what reports as it goes."""


def documents_of(texts: Iterable[bytes]) -> list[bytes]:
    """The distinct pieces of the distinct texts, in their order."""
    whole = list(dict.fromkeys(content for content in texts if content))
    limit = max(512, sum(map(len, whole)) // 512)
    return list(dict.fromkeys(piece for content in whole for piece in pieces(content, limit)))


def pieces(content: bytes, limit: int) -> list[bytes]:
    """``content`` cut after its last line end within ``limit``, or between two characters."""
    rows = []
    while len(content) > limit:
        end = content.rfind(b"\n", 0, limit) + 1 or limit
        while content[end] & 0xC0 == 0x80:
            end -= 1
        rows.append(content[:end])
        content = content[end:]
    return [*rows, content]


def splits_of(texts: Iterable[bytes]) -> dict[str, list[bytes]]:
    """The documents of each split, in the order in which they are stored."""
    ranked = sorted(documents_of(texts), key=rank)
    quota = 0.1 * sum(map(len, ranked))  # all texts here are small
    test = _until(ranked[:-2], quota)
    validation = _until(ranked[len(test) : -1], quota)
    train = ranked[len(test) + len(validation) :]
    return dict(zip(SPLITS, (train, validation, test), strict=True))


def rank(content: bytes) -> bytes:
    """A salted hash of the hash of the content."""
    return hashlib.sha256(b"scalevec split 1" + hashlib.sha256(content).digest()).digest()


def _until(documents: list[bytes], quota: float) -> list[bytes]:
    size = 0
    for position, document in enumerate(documents):
        size += len(document)
        if size >= quota:
            return documents[: position + 1]
    return documents


def read_documents(config: CorpusConfig, skip: Callable[[str], None] = lambda _: None) -> list[bytes]:
    """All documents of a corpus as they are read, whole."""
    read = (blocks for file in corpus_files(config) for blocks in documents(config, file.path, skip))
    return [b"".join(blocks) for blocks in read]
