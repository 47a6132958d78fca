"""The section ``corpus`` of a sweep file: where the tokens come from, and what is allowed with what."""

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from scalevec.sweeps.errors import refused
from scalevec.sweeps.sections.entries import Count, Items, Positive, Section, problem

BYTES_VOCABULARY = 256
NOMINAL_VOCABULARY = 2**16
"""What a sweep is tried with before the vocabulary of a given tokenizer is known."""
SAMPLE_MB = 256.0
"""Of the training split that byte-pair tokens are learned from, where nothing else is said."""
_SHARD_TYPES = {"uint16": 2**16, "uint32": 2**32}
_KINDS = ("bpe", "file", "hub", "vocabulary")
_ALLOWED_TOKENIZERS = (
    "bytes, {bpe: SIZE OF THE VOCABULARY}, {file: tokenizer.json}, {hub: NAME} "
    "or, of shards, {vocabulary: SIZE, separator: ID}"
)

Vocabulary = Annotated[int, Field(ge=2, le=2**24)]
Text = Annotated[str, Field(min_length=1)]


def _token(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise problem(refused(value, "a token by its text, or its id in shards"))


class TokenizerSection(Section):
    """How text becomes tokens: ``bytes`` in the file, or one of ``bpe``, ``file`` and ``hub``.

    Shards hold tokens already and give their ``vocabulary``; beside a file or a name on the Hub,
    ``vocabulary`` is the model's, where it shall be larger than the tokenizer's.
    """

    bpe: Annotated[int, Field(gt=BYTES_VOCABULARY, le=1_000_000)] | None = None
    """Vocabulary of byte-pair tokens that are learned from the training split."""
    sample_mb: Positive | None = None
    """Megabytes of the training split that byte-pair tokens are learned from; text and python-stdlib: all."""
    file: Text | None = None
    """A tokenizer.json, looked up beside the sweep file."""
    hub: Text | None = None
    """Name of a tokenizer on the Hugging Face Hub."""
    vocabulary: Vocabulary | None = None
    """Vocabulary of shards, or of the model where it shall be larger than the tokenizer's."""
    separator: Annotated[Any, PlainValidator(_token, json_schema_input_type=str | int)] = None
    """The token that ends a document, where it is not ``<|endoftext|>``; of shards its id."""

    @property
    def kind(self) -> str:
        """``bytes``, ``bpe``, ``file``, ``hub`` or ``ids`` (tokens already)."""
        if self.bpe is not None:
            return "bytes" if self.bpe == BYTES_VOCABULARY else "bpe"
        return "file" if self.file is not None else "hub" if self.hub is not None else "ids"

    @property
    def size(self) -> int | None:
        """The vocabulary as far as the file gives it."""
        return self.bpe if self.bpe is not None else self.vocabulary

    @model_validator(mode="after")
    def _check(self) -> "TokenizerSection":
        named = [name for name in ("bpe", "file", "hub") if getattr(self, name) is not None]
        if len(named) > 1 or not (named or self.vocabulary is not None):
            raise problem(refused(self._given(), _ALLOWED_TOKENIZERS))
        if self.bpe is not None and self.vocabulary is not None:
            raise problem(refused(self.vocabulary, "no vocabulary beside bpe, which gives it"), "vocabulary")
        if self.bpe is None and self.sample_mb is not None:
            raise problem(
                refused(self.sample_mb, "a sample only with bpe, which is trained on it"), "sample_mb"
            )
        if self.separator is not None and not self._may_have_separator():
            allowed = "a token by its text with file or hub, an id in shards, none with bpe"
            raise problem(refused(self.separator, allowed), "separator")
        if isinstance(self.separator, int) and self.separator >= (self.vocabulary or 0):
            raise problem(
                refused(self.separator, f"an id below the vocabulary, {self.vocabulary}"), "separator"
            )
        return self

    def _may_have_separator(self) -> bool:
        return isinstance(self.separator, int if self.kind == "ids" else str) and self.kind != "bpe"

    def _given(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in type(self).model_fields if getattr(self, name) is not None
        }

    @model_serializer
    def _as_given(self) -> str | dict[str, Any]:
        return "bytes" if self.kind == "bytes" else self._given()


BYTES = TokenizerSection.model_construct(bpe=BYTES_VOCABULARY)


def _bytes_by_name(value: Any) -> Any:
    if isinstance(value, str) and value != "bytes":
        raise problem(refused(value, _ALLOWED_TOKENIZERS))
    return BYTES if value == "bytes" else value


_LATER = ("packages", "validation", "test", "field", "dtype", "in_place")
"""Fields that a sweep without them does not write out, so that it stays the text that it was."""
_OF_FILES = ("text", "jsonl", "parquet", "shards", "megatron")
_OF_TOKENS = ("shards", "megatron")
_BELONGS = {
    "files": _OF_FILES,
    "packages": ("python-packages",),
    "validation": _OF_FILES,
    "test": _OF_FILES,
    "field": ("jsonl", "parquet"),
    "dtype": ("shards",),
    "in_place": ("shards",),
}
"""The sources with which a field may be given."""

Files = Items[Text]
PACKAGE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*(==[A-Za-z0-9][A-Za-z0-9.!+]*)?$"
Packages = Items[Annotated[str, Field(pattern=PACKAGE_PATTERN)]]


class CorpusSection(Section):
    """Where the tokens come from: Python's library, installed packages, one's own files."""

    source: Literal["python-stdlib", "python-packages", "text", "jsonl", "parquet", "shards", "megatron"] = (
        "python-stdlib"
    )
    """What the text is read from."""
    packages: Packages | None = None
    """Installed distributions whose Python sources are read, best with their versions: scipy==1.17.1."""
    files: Files | None = None
    """Files or globs, looked up beside the sweep file; the training split where the others are given."""
    validation: Files | None = None
    """Files of the validation split; without them it is split off ``files``."""
    test: Files | None = None
    """Files of the test split; without them it is split off ``files``."""
    field: Text | None = None
    """The JSON field or Parquet column of the text; ``text`` where nothing is said."""
    dtype: Literal["uint16", "uint32"] | None = None
    """What shards hold; ``uint16`` where nothing is said."""
    in_place: bool | None = None
    """Whether shards are used where they are, not copied and not deduplicated; ``megatron`` always is."""
    tokenizer: Annotated[
        TokenizerSection,
        BeforeValidator(_bytes_by_name, json_schema_input_type=Literal["bytes"] | TokenizerSection),
    ] = TokenizerSection(bpe=1024)
    """How text becomes tokens: bytes, or a mapping with one of bpe, file and hub."""
    sequence_length: Count = 256
    """Tokens per sequence."""

    @model_validator(mode="after")
    def _check(self) -> "CorpusSection":
        if self.source in _BELONGS["files"] and not self.files:
            raise problem(f"corpus.files is missing; source {self.source} needs a list of files or globs")
        if self.source == "python-packages" and not self.packages:
            allowed = "a list of installed distributions, each NAME or NAME==VERSION"
            raise problem(f"corpus.packages is missing; source {self.source} needs {allowed}")
        for name, sources in _BELONGS.items():
            value = getattr(self, name)
            if value is not None and self.source not in sources:
                shown = list(value) if isinstance(value, tuple) else value
                raise problem(refused(shown, f"{name} only with source: {_either(sources)}"), name)
        if self.source in _OF_TOKENS:
            self._check_shards()
        elif self.tokenizer.kind == "ids":
            allowed = "a vocabulary alone only with source: shards or megatron, which are tokens already"
            raise problem(refused(self.tokenizer.vocabulary, allowed), "tokenizer", "vocabulary")
        return self

    def _check_shards(self) -> None:
        allowed = "{vocabulary: SIZE, separator: ID OF THE TOKEN THAT ENDS A DOCUMENT}"
        allowed += f" with source: {self.source}"
        if "tokenizer" not in self.model_fields_set:
            raise problem(f"corpus.tokenizer is missing; allowed: {allowed}")
        if self.tokenizer.kind != "ids" or self.tokenizer.separator is None:
            raise problem(refused(self.tokenizer.model_dump(), allowed), "tokenizer")
        most = _SHARD_TYPES[self.shard_type]
        if self.source == "shards" and self.vocabulary > most:
            allowed = f"at most {most}, the ids that {self.shard_type} can hold, or dtype: uint32"
            raise problem(refused(self.vocabulary, allowed), "tokenizer", "vocabulary")

    @property
    def shard_type(self) -> str:
        """What shards hold."""
        return self.dtype or "uint16"

    @property
    def vocabulary(self) -> int:
        """The model's vocabulary; a nominal one where it follows from a tokenizer that was not read yet."""
        return self.tokenizer.size or NOMINAL_VOCABULARY

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data = dump(self)
        left_out = {name for name in _LATER if getattr(self, name) is None}
        return {name: value for name, value in data.items() if name not in left_out}


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(", ".join(names).rsplit(", ", 1))
