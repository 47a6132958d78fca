"""Tokenizers (bytes as they are, byte-level BPE trained on the corpus, those that are given), and shards.

The documents of a preparation are tokenized in their order, each followed by the separator, by processes that
read them and the tokenizer from the disk.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalevec.model.data import BYTES_VOCABULARY, CorpusConfig, CorpusError
from scalevec.model.data.corpus import Corpus, SplitFacts
from scalevec.model.data.system import Meter, Progress, Workers, read_regular, write_synced
from scalevec.model.data.texts import Rows, contents
from scalevec.model.identity import digest

if TYPE_CHECKING:
    import tokenizers

TOKENIZER = "tokenizer.json"
SEPARATOR = "<|endoftext|>"
DOCUMENTS_AT_ONCE = 256
BYTES_AT_ONCE = 1 << 20
"""Of documents that are tokenized together."""
LONGEST_SHOWN = 4096
"""Tokens of a document that are looked at."""
_MOST_SHOWN = 20

Tokens = np.ndarray[tuple[int], np.dtype[np.integer[Any]]]
Block = tuple[Tokens, int, int]
"""Token ids, how many documents they are, and of how many bytes of text."""


def train_bpe(documents: Iterable[bytes], vocabulary_size: int) -> "tokenizers.Tokenizer":
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
    return tokenizer


@dataclass(frozen=True)
class TokenizerPlan:
    """A tokenizer before the text is read.

    identity: what the fingerprint says of it: its name, the size of the model's vocabulary, and the separator
    where it may be another than 0. given: the tokenizer.json that the corpus keeps, where none is learnt from
    the text.
    """

    identity: Mapping[str, Any]
    given: bytes | None = None


def _fetched(name: str) -> Path:
    """tokenizer.json of the repository ``name`` on the Hugging Face Hub, kept in its own cache.

    Raises :class:`CorpusError` for what is not there, ``ConnectionError`` where the Hub is out of reach.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, RepositoryNotFoundError

    try:
        return Path(hf_hub_download(name, TOKENIZER))
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
    separator = tokenizer.token_to_id(config.separator or SEPARATOR)
    if separator is None:
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        known = ", ".join(added[:_MOST_SHOWN]) or "none"
        raise CorpusError(
            f"the tokenizer {str(path)!r} has no token {config.separator or SEPARATOR!r} to end documents "
            f"with; name one by separator. Its special tokens: {known}"
        )
    has = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    size = config.vocabulary_size or has
    if has > size:
        raise CorpusError(
            f"the tokenizer {str(path)!r} has a vocabulary of {has:,}, which exceeds the model's: "
            f"vocabulary is {size:,}; allowed: {has:,} or more"
        )
    identity = {"name": "given", "sha256": digest(json.loads(content)), "separator": separator}
    return TokenizerPlan({**identity, "vocabulary_size": size}, serialized(tokenizer))


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


def serialized(tokenizer: "tokenizers.Tokenizer") -> bytes:
    """tokenizer.json, of whole documents alone."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer.to_str(pretty=True).encode()


TOKENIZERS: Mapping[str, Callable[[CorpusConfig], TokenizerPlan]] = {
    # The id of a token is the value of its byte; 0, the separator, is in no text.
    "bytes": lambda _: TokenizerPlan({"name": "bytes", "vocabulary_size": BYTES_VOCABULARY}),
    "bpe": lambda config: TokenizerPlan({"name": "bpe", "vocabulary_size": config.vocabulary_size}),
    "file": lambda config: _given(config, Path(config.tokenizer_name)),
    "hub": lambda config: _given(config, _fetched(config.tokenizer_name)),
    "ids": lambda config: TokenizerPlan(
        {"name": "ids", "vocabulary_size": config.vocabulary_size, "separator": config.separator_id}
    ),
}
"""Every tokenizer by name."""


Task = tuple[CorpusConfig, Path, Path, Rows]
"""How documents are tokenized, the folder in which they wait, that of the tokenizer, and which they are."""


def write_shards(
    directory: Path,
    config: CorpusConfig,
    given: bytes | None,
    folder: Path,
    splits: Mapping[str, Rows],
    workers: Workers,
    progress: Progress,
) -> dict[str, SplitFacts]:
    """Tokenize the documents of all splits, in their order, into their shards; what these hold.

    config: with the id of the separator. given: tokenizer.json, where there is one before.
    """
    if config.tokenizer == "bpe":
        rows, sampled = splits["train"], ""
        if config.sample_bytes:  # documents come in the order of a hash: the first are a random sample
            rows = rows[: int(np.searchsorted(np.cumsum(rows["size"]), config.sample_bytes)) + 1]
            sampled = f" on the first {config.sample_bytes / 1e6:,.0f} MB"
        progress(f"training a tokenizer of {config.vocabulary_size:,} tokens{sampled}")
        list(workers.map(_train, [(config, folder, directory, rows)]))
    elif given is not None:
        write_synced(directory / TOKENIZER, given)
    meter = Meter(progress, "tokenized", sum(int(rows["size"].sum()) for rows in splits.values()))

    def tokenized(rows: Rows) -> Iterator[Block]:
        tasks = ((config, folder, directory, batch) for batch in _batches(rows))
        for ids, n_documents, n_bytes in workers.map(_encode, tasks):
            meter.count(n_bytes, n_documents)
            yield ids, n_documents, n_bytes if config.tokenizer != "ids" else 0

    return {
        name: write_shard(directory / f"{name}.bin", config.stored_type, tokenized(rows))
        for name, rows in splits.items()
    }


def _train(task: Task) -> None:
    config, folder, directory, rows = task
    texts = (text for batch in _batches(rows) for text in contents(folder, batch))
    # A process of the pool keeps the library to one thread, but has no company in this task.
    limited = os.environ.pop("TOKENIZERS_PARALLELISM", None)
    try:
        tokenizer = train_bpe(texts, config.vocabulary_size)
    finally:
        if limited is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = limited
    write_synced(directory / TOKENIZER, serialized(tokenizer))


def _batches(rows: Rows) -> Iterator[Rows]:
    """Documents that are tokenized together: few, and none more after so many bytes."""
    start = 0
    while start < len(rows):
        ends = np.cumsum(rows["size"][start : start + DOCUMENTS_AT_ONCE])
        stop = start + min(int(np.searchsorted(ends, BYTES_AT_ONCE)) + 1, len(ends))
        yield rows[start:stop]
        start = stop


def _encode(task: Task) -> Block:
    config, folder, directory, rows = task
    stored = config.stored_type
    if config.tokenizer in ("bytes", "ids"):
        dtype = "u1" if config.tokenizer == "bytes" else stored
        encoded: Iterable[Tokens] = (np.frombuffer(document, dtype) for document in contents(folder, rows))
    else:
        encoded = subword_ids(_kept(directory), contents(folder, rows))
    ids = [np.append(tokens, config.separator_id).astype(stored) for tokens in encoded]
    return np.concatenate(ids), len(rows), int(rows["size"].sum())


@lru_cache(maxsize=1)
def _kept(directory: Path) -> "tokenizers.Tokenizer":
    return _read(directory / TOKENIZER)[1]


def subword_ids(tokenizer: "tokenizers.Tokenizer", documents: Sequence[bytes]) -> Iterator[Tokens]:
    """The token ids of each document; a separator spelt out in one stays plain text."""
    tokenizer.encode_special_tokens = True
    texts = [document.decode("utf-8") for document in documents]
    for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
        yield np.asarray(encoding.ids, dtype=np.uint32)


def write_shard(path: Path, dtype: str, blocks: Iterable[Block]) -> SplitFacts:
    """Write a new shard of token ids of the type ``dtype`` and wait until the disk has it; what it holds."""
    sha256 = hashlib.sha256()
    n_tokens = n_documents = n_bytes = 0
    with path.open("xb") as file:
        for ids, of_documents, of_bytes in blocks:
            content = ids.astype(dtype, copy=False).data
            file.write(content)
            sha256.update(content)
            n_tokens += len(ids)
            n_documents += of_documents
            n_bytes += of_bytes
        file.flush()
        os.fsync(file.fileno())
    return SplitFacts(n_tokens, n_bytes, n_documents, sha256.hexdigest())


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
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

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
    """The first ``count`` documents of ``split``."""
    shard = corpus.split(split)
    tokenizer = None if corpus.facts.config.tokenizer == "ids" else TextTokenizer(corpus)
    documents: list[SampledDocument] = []
    start = 0
    while start < len(shard) and len(documents) < count:
        seen = np.asarray(shard[start : start + LONGEST_SHOWN])
        separators = np.flatnonzero(seen == corpus.facts.separator)
        length = int(separators[0]) if len(separators) else len(seen)
        is_whole = length < LONGEST_SHOWN
        ids = tuple(seen[:length].tolist())
        documents.append(SampledDocument(ids, tokenizer.decode(ids) if tokenizer else None, is_whole))
        if not is_whole:
            return documents  # where the next one begins would take a search
        start += length + 1
    return documents
