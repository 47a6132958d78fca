"""Which text or tokens a corpus is made from, and by which tokenizer."""

from dataclasses import dataclass

from model.fields import require, require_choice
from model.training.synthetic import Process

BYTES_VOCABULARY = 256
SMALLEST_BPE_VOCABULARY = BYTES_VOCABULARY + 1
LARGEST_VOCABULARY = 2**24
SHARD_TYPES = {"uint16": 2**16, "uint32": 2**32}
"""Types of pre-tokenized shards, each with the number of ids that it can hold."""
TEXT_FILES = ("text", "jsonl", "parquet")
TEXTS = ("python-stdlib", *TEXT_FILES)
SOURCES = (*TEXTS, "shards", "synthetic")
RECORDS = ("jsonl", "parquet")
"""Sources whose documents stand in a field of a record."""
TOKENIZERS = {
    **dict.fromkeys(TEXTS, ("bytes", "bpe", "file", "hub")),
    "shards": ("ids",),
    "synthetic": ("ids",),
}
"""The tokenizers that each source may have; ``ids`` are tokens already."""


@dataclass(frozen=True)
class CorpusConfig:
    """Which text, and which tokenizer.

    tokenizer: ``bytes`` (vocabulary 256), ``bpe`` (trained on the training split), ``file`` (tokenizer.json),
    ``hub`` (one by its name on the Hugging Face Hub) or ``ids`` (tokens already).
    vocabulary_size: of the model. 0 with ``file`` and ``hub``: as many as the tokenizer has, none is added.
    files: paths or patterns, for sources that read files; relative ones start at the working directory.
    validation_files, test_files: those of a held-out split; one that is not given is split off ``files``.
    field: the JSON field or Parquet column that holds the text.
    tokenizer_name: the path, or the name on the Hub.
    separator: the token that ends a document, of a tokenizer that is given. separator_id: its id in shards.
    dtype: what shards hold, ``uint16`` or ``uint32``.
    sample_bytes: ``bpe`` is trained on about so many bytes of the training split; 0: on all of it.
    process: what a synthetic corpus is drawn from.
    """

    source: str
    tokenizer: str
    vocabulary_size: int
    files: tuple[str, ...] = ()
    validation_files: tuple[str, ...] = ()
    test_files: tuple[str, ...] = ()
    field: str = ""
    tokenizer_name: str = ""
    separator: str = ""
    separator_id: int = 0
    dtype: str = ""
    sample_bytes: int = 0
    process: Process | None = None

    def __post_init__(self) -> None:
        require_choice("source", self.source, SOURCES)
        require_choice("tokenizer", self.tokenizer, TOKENIZERS[self.source])
        self._check_vocabulary()
        self._check_files()
        self._check_parts()

    def _check_vocabulary(self) -> None:
        size = self.vocabulary_size
        if self.tokenizer == "bytes":
            require(size == BYTES_VOCABULARY, "vocabulary_size", size, "256 for the tokenizer 'bytes'")
            return
        least = {"bpe": SMALLEST_BPE_VOCABULARY, "ids": 2}.get(self.tokenizer, 0)
        allowed = least <= size <= LARGEST_VOCABULARY
        require(allowed, "vocabulary_size", size, f"{least} to 2**24")

    def _check_files(self) -> None:
        needs_files = self.source not in ("python-stdlib", "synthetic")
        allowed_files = "one or more files or patterns" if needs_files else f"none for {self.source!r}"
        require(bool(self.files) == needs_files, "files", list(self.files), allowed_files)
        for name in ("validation_files", "test_files"):
            files = getattr(self, name)
            require(needs_files or not files, name, list(files), f"none for {self.source!r}")

    def _check_parts(self) -> None:
        """Each part of a configuration stands with what it belongs to, and only there."""
        given = self.tokenizer in ("file", "hub")
        needed = {
            "field": (self.source in RECORDS, "a name, for jsonl and parquet only"),
            "tokenizer_name": (given, "a name, for the tokenizers 'file' and 'hub' only"),
            "dtype": (self.source == "shards", "uint16 or uint32, for shards only"),
            "process": (self.source == "synthetic", "a process, for a synthetic corpus only"),
        }
        for name, (is_needed, allowed) in needed.items():
            value = getattr(self, name)
            require(bool(value) == is_needed, name, value, allowed)
        require(
            given or not self.separator, "separator", self.separator, "a token, for 'file' and 'hub' only"
        )
        allowed = "0 or more for the tokenizer 'bpe', 0 for others"
        is_sample = self.sample_bytes > 0 and self.tokenizer == "bpe"
        require(is_sample or self.sample_bytes == 0, "sample_bytes", self.sample_bytes, allowed)
        if self.source == "shards":
            self._check_shards()
        if self.process is not None:
            expected = self.process.vocabulary
            require(self.vocabulary_size == expected, "vocabulary_size", self.vocabulary_size, str(expected))

    def _check_shards(self) -> None:
        require_choice("dtype", self.dtype, SHARD_TYPES)
        size, most = self.vocabulary_size, SHARD_TYPES[self.dtype]
        require(
            size <= most, "vocabulary_size", size, f"at most {most:,}, the ids that {self.dtype} can hold"
        )
        allowed = f"an id below the vocabulary size {size}"
        require(0 <= self.separator_id < size, "separator_id", self.separator_id, allowed)


def stored_type(vocabulary_size: int) -> str:
    """The smaller of the unsigned little-endian types ``<u2`` and ``<u4`` that holds every token id."""
    return "<u2" if vocabulary_size <= 2**16 else "<u4"
