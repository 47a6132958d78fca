"""Tokenizers: bytes as they are, and byte-level BPE of an exact vocabulary trained on the corpus itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from model.training.corpus_sources import CorpusError

if TYPE_CHECKING:
    import tokenizers

BYTES_VOCABULARY = 256
SMALLEST_BPE_VOCABULARY = BYTES_VOCABULARY + 1
SEPARATOR = "<|endoftext|>"
_DOCUMENTS_AT_ONCE = 256

Tokens = np.ndarray[tuple[int], np.dtype[np.integer]]


class Tokenizer(Protocol):
    """Turns documents into token ids below the vocabulary size; ``separator`` follows each document."""

    separator: int

    def encode(self, documents: Sequence[bytes]) -> Iterator[Tokens]:
        """The token ids of each document, without its separator."""
        ...

    def serialized(self) -> str | None:
        """The contents of tokenizer.json; None where there is nothing to keep."""
        ...


class ByteTokenizer:
    """Token id = byte value. The separator is byte 0, which text never holds."""

    separator = 0

    def encode(self, documents: Sequence[bytes]) -> Iterator[Tokens]:
        """The bytes of each document."""
        return (np.frombuffer(document, dtype=np.uint8) for document in documents)

    def serialized(self) -> str | None:
        """None: the ids are the bytes."""
        return None


class BPETokenizer:
    """Byte-level BPE (256 bytes, the separator ``<|endoftext|>`` as id 0, and merges)."""

    separator = 0

    def __init__(self, tokenizer: "tokenizers.Tokenizer") -> None:
        self._tokenizer = tokenizer
        tokenizer.encode_special_tokens = True  # a separator spelt out in a document stays plain text

    @classmethod
    def train(cls, documents: Sequence[bytes], vocabulary_size: int) -> "BPETokenizer":
        """Train on ``documents``; the vocabulary has exactly ``vocabulary_size`` entries.

        Raises :class:`CorpusError` if the text does not hold enough pairs that occur twice.
        """
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary_size,
            min_frequency=2,
            special_tokens=[SEPARATOR],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator((document.decode("utf-8") for document in documents), trainer)
        reached = tokenizer.get_vocab_size()
        if reached != vocabulary_size:
            raise CorpusError(
                f"vocabulary_size is {vocabulary_size}, but the training text gives {reached} at most; "
                "ask for fewer or add text"
            )
        return cls(tokenizer)

    def encode(self, documents: Sequence[bytes]) -> Iterator[Tokens]:
        """The BPE token ids of each document."""
        for start in range(0, len(documents), _DOCUMENTS_AT_ONCE):
            texts = [document.decode("utf-8") for document in documents[start : start + _DOCUMENTS_AT_ONCE]]
            for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False):
                yield np.asarray(encoding.ids, dtype=np.uint32)

    def serialized(self) -> str | None:
        """The tokenizer in the format of the ``tokenizers`` library."""
        return self._tokenizer.to_str(pretty=True)


def _bytes(_documents: Sequence[bytes], _vocabulary_size: int) -> Tokenizer:
    return ByteTokenizer()


TOKENIZERS: Mapping[str, Callable[[Sequence[bytes], int], Tokenizer]] = {
    "bytes": _bytes,
    "bpe": BPETokenizer.train,
}
"""Every tokenizer by name: a function of the training documents and the vocabulary size."""
