"""A shard of token ids, as it is written."""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO, Self

from scalevec.model.data.prepared import SplitFacts
from scalevec.model.data.sources.files import BLOCK
from scalevec.model.data.tokenizers import Tokens


class ShardWriter:
    """A new shard of token ids; ``facts`` are right once :meth:`finish` has synced it."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._file: BinaryIO = path.open("xb")
        self._dtype = dtype
        self._sha256 = hashlib.sha256()
        self._tokens = self._bytes = self._documents = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def write(self, ids: Tokens) -> None:
        """Append ``ids``."""
        block = ids.astype(self._dtype)
        self._file.write(block.data)
        self._sha256.update(block.data)
        self._tokens += len(block)

    def count(self, n_bytes: int, n_documents: int = 1) -> None:
        """So many documents, together of so many bytes of text, have been written."""
        self._documents += n_documents
        self._bytes += n_bytes

    def append(self, path: Path, facts: SplitFacts) -> None:
        """Append a shard of the same type that holds what ``facts`` say."""
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                self._file.write(block)
                self._sha256.update(block)
        self._tokens += facts.tokens
        self.count(facts.bytes, facts.documents)

    def finish(self, ideal_loss: float | None = None) -> SplitFacts:
        """Wait until the disk has the shard; what it holds."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return SplitFacts(self._tokens, self._bytes, self._documents, self._sha256.hexdigest(), ideal_loss)
