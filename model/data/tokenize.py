"""Tokenizers: bytes as they are, byte-level BPE trained on the corpus itself, and those that are given."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalevec.model.data.corpus import Corpus
from scalevec.model.data.durable_files import read_regular
from scalevec.model.data.specification import BYTES_VOCABULARY, CorpusConfig, CorpusError, stored_type
from scalevec.model.identity import digest

if TYPE_CHECKING:
    import tokenizers

TOKENIZER = "tokenizer.json"
SEPARATOR = "<|endoftext|>"
_BPE_SEPARATOR = 0
_MOST_SHOWN = 20
LONGEST_SHOWN = 4096
"""Tokens of a document that are looked at."""

Tokens = np.ndarray[tuple[int], np.dtype[np.integer]]


@dataclass(frozen=True)
class IdTokenizer:
    """Documents that are token ids already, as numbers of the type ``dtype``; text is one of bytes."""

    dtype: str
    separator: int

    def encode(self, documents: Sequence[bytes]) -> Iterator[Tokens]:
        """The ids of each document."""
        return (np.frombuffer(document, dtype=self.dtype) for document in documents)


BYTES = IdTokenizer("u1", separator=0)
"""Token id = byte value. The separator is byte 0, which text never holds."""


class SubwordTokenizer:
    """A tokenizer of the ``tokenizers`` library; a separator spelt out in a document stays plain text."""

    def __init__(self, tokenizer: "tokenizers.Tokenizer", separator: int) -> None:
        self._tokenizer, self.separator = tokenizer, separator
        tokenizer.encode_special_tokens = True
        tokenizer.no_truncation()
        tokenizer.no_padding()

    def encode(self, documents: Sequence[bytes]) -> Iterator[Tokens]:
        """The token ids of each document."""
        texts = [document.decode("utf-8") for document in documents]
        for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            yield np.asarray(encoding.ids, dtype=np.uint32)

    def serialized(self) -> bytes:
        """The tokenizer in the format of the ``tokenizers`` library."""
        return self._tokenizer.to_str(pretty=True).encode()


DocumentTokenizer = IdTokenizer | SubwordTokenizer
"""Turns documents into token ids below the vocabulary size; the token ``separator`` follows each document."""


def train_bpe(documents: Iterable[bytes], vocabulary_size: int) -> SubwordTokenizer:
    """Byte-level BPE of exactly ``vocabulary_size``: the separator (id 0), 256 bytes, and merges.

    Holds the distinct words of ``documents`` in memory, not the documents.
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
    return SubwordTokenizer(tokenizer, _BPE_SEPARATOR)


@dataclass(frozen=True)
class TokenizerPlan:
    """A tokenizer before the text is read.

    identity: what the fingerprint says of it. vocabulary_size: of the model. separator: the id of the token
    behind each document. tokenizer: None where it is yet to be learnt from the training split.
    """

    identity: Mapping[str, Any]
    vocabulary_size: int
    separator: int
    tokenizer: DocumentTokenizer | None


def _bytes(_config: CorpusConfig) -> TokenizerPlan:
    size = BYTES_VOCABULARY
    return TokenizerPlan({"name": "bytes", "vocabulary_size": size}, size, BYTES.separator, BYTES)


def _bpe(config: CorpusConfig) -> TokenizerPlan:
    size = config.vocabulary_size
    identity = {"name": "bpe", "vocabulary_size": size}
    return TokenizerPlan(identity, size, _BPE_SEPARATOR, None)


def _ids(config: CorpusConfig) -> TokenizerPlan:
    size, separator = config.vocabulary_size, config.separator_id
    identity = {"name": "ids", "vocabulary_size": size, "separator": separator}
    return TokenizerPlan(identity, size, separator, IdTokenizer(stored_type(size), separator))


def _fetched(name: str) -> Path:
    """tokenizer.json of the repository ``name`` on the Hugging Face Hub, kept in its own cache.

    Raises :class:`CorpusError` for what is not there, ``ConnectionError`` where the Hub is out of reach.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, RepositoryNotFoundError

    try:
        return Path(hf_hub_download(name, "tokenizer.json"))
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise CorpusError(f"tokenizer.hub is {name!r}: {error}") from error
    except (EntryNotFoundError, OSError) as error:
        if isinstance(error, OSError) and not hasattr(error, "response"):
            raise ConnectionError(
                f"the tokenizer {name!r} is not in the local cache and the Hugging Face Hub is out of reach; "
                "give its file instead, as in {file: tokenizer.json}, or prepare where there is a network"
            ) from error
        raise CorpusError(f"tokenizer.hub is {name!r}, which holds no tokenizer.json: {error}") from error


def _given(config: CorpusConfig, path: Path) -> TokenizerPlan:
    """The plan of the tokenizer in the file at ``path``; equal files give equal fingerprints."""
    content, tokenizer = _read(path)
    separator = _separator(tokenizer, config.separator, path)
    has = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    size = config.vocabulary_size or has
    if has > size:
        raise CorpusError(
            f"the tokenizer {str(path)!r} has a vocabulary of {has:,}, which exceeds the model's: "
            f"vocabulary is {size:,}; allowed: {has:,} or more"
        )
    identity = {
        "name": "given",
        "sha256": digest(json.loads(content)),
        "separator": separator,
        "vocabulary_size": size,
    }
    return TokenizerPlan(identity, size, separator, SubwordTokenizer(tokenizer, separator))


def ready_tokenizer(config: CorpusConfig, path: Path, separator: int) -> DocumentTokenizer:
    """The tokenizer of ``config``, as it was kept at ``path`` where there is one to keep."""
    if config.tokenizer == "bytes":
        return BYTES
    if config.tokenizer == "ids":
        return IdTokenizer(stored_type(config.vocabulary_size), separator)
    return SubwordTokenizer(_read(path)[1], separator)


def _read(path: Path) -> tuple[bytes, "tokenizers.Tokenizer"]:
    from tokenizers import Tokenizer

    try:
        content = read_regular(path.resolve())  # the cache of the Hub has links
    except (OSError, ValueError) as error:
        fault = error.strerror if isinstance(error, OSError) else error
        raise CorpusError(f"the tokenizer {str(path)!r} cannot be read: {fault}") from error
    try:
        return content, Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises no other class
        raise CorpusError(
            f"the tokenizer {str(path)!r} is no tokenizer.json of the tokenizers library: {error}"
        ) from error


def _separator(tokenizer: "tokenizers.Tokenizer", name: str, path: Path) -> int:
    """The id of the token that ends a document."""
    separator_id = tokenizer.token_to_id(name or SEPARATOR)
    if separator_id is None:
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        known = ", ".join(added[:_MOST_SHOWN]) or "none"
        raise CorpusError(
            f"the tokenizer {str(path)!r} has no token {name or SEPARATOR!r} to end documents with; "
            f"name one by separator. Its special tokens: {known}"
        )
    return int(separator_id)


TOKENIZERS: Mapping[str, Callable[[CorpusConfig], TokenizerPlan]] = {
    "bytes": _bytes,
    "bpe": _bpe,
    "file": lambda config: _given(config, Path(config.tokenizer_name)),
    "hub": lambda config: _given(config, _fetched(config.tokenizer_name)),
    "ids": _ids,
}
"""Every tokenizer by name."""


class TextTokenizer:
    """Text to token ids and back, as the corpus was tokenized; ``separator`` ends a document.

    Raises :class:`CorpusError` for a corpus that was given as token ids: nobody knows their text.
    """

    def __init__(self, corpus: Corpus) -> None:
        kind = corpus.facts.config.tokenizer
        if kind == "ids":
            raise CorpusError(
                f"corpus {corpus.fingerprint[:12]} was given as token ids; its text is not known"
            )
        self._tokenizer = _of_bytes() if kind == "bytes" else _read(corpus.directory / TOKENIZER)[1]
        self.separator = corpus.facts.separator

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without a separator."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def serialized(self) -> dict[str, Any]:
        """``json``: tokenizer.json of the tokenizers library; ``separator``: the token of that name there."""
        separator = self._tokenizer.id_to_token(self.separator)
        return {"json": self._tokenizer.to_str(pretty=True), "separator": separator}


def _of_bytes() -> "tokenizers.Tokenizer":
    """Bytes as the tokenizers library has them: each is a token of its own, whose id is its value."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    # GPT-2's letter for each byte: itself where it is printed, else one from U+0100 on.
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printed]
    letters = {chr(value): value for value in printed}
    letters |= {chr(256 + number): value for number, value in enumerate(others)}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@dataclass(frozen=True)
class SampledDocument:
    """The beginning of a document: its ids, their text (None where it is not known), whether it is all."""

    ids: tuple[int, ...]
    text: str | None
    is_whole: bool


def first_documents(corpus: Corpus, split: str, count: int) -> list[SampledDocument]:
    """The first ``count`` documents of ``split``; a synthetic corpus is one long document."""
    shard = corpus.split(split)
    tokenizer = None if corpus.facts.config.tokenizer == "ids" else TextTokenizer(corpus)
    has_separators = corpus.facts.config.source != "synthetic"
    documents: list[SampledDocument] = []
    start = 0
    while start < len(shard) and len(documents) < count:
        seen = np.asarray(shard[start : start + LONGEST_SHOWN])
        separators = np.flatnonzero(seen == corpus.facts.separator)
        length = int(separators[0]) if has_separators and len(separators) else len(seen)
        is_whole = length < LONGEST_SHOWN
        ids = tuple(seen[:length].tolist())
        documents.append(SampledDocument(ids, tokenizer.decode(ids) if tokenizer else None, is_whole))
        if not is_whole:
            return documents  # where the next one begins would take a search
        start += length + 1
    return documents
