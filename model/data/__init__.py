"""Corpora: prepared once under their fingerprint, only read afterwards.

Here is which text or tokens one is prepared from, and by which tokenizer: a description that loads nothing.
The section ``corpus`` of a sweep file (``sweeps.sections.corpus``) says which combinations are allowed.
"""

from dataclasses import dataclass

from scalevec.model.fields import added_field

SPLITS = ("train", "validation", "test")
BYTES_VOCABULARY = 256
FORMAT_VERSION = 2
"""Raised whenever equal text would give other tokens, splits or order; 2: small corpora hold out more."""
TYPICAL_BYTES_PER_TOKEN = 4.0
"""Of text under a tokenizer of subwords, before one is trained or asked."""
HELD_OUT_SHARE, LARGEST_HELD_OUT_SHARE = 0.02, 0.10
"""Of all that validation and test get each: at least, and at most where that is little."""
WANTED_HELD_OUT, LARGEST_HELD_OUT = 500_000, 16_000_000
"""Tokens of each: towards so many a small corpus gives a larger share, and no corpus gives more."""


class CorpusError(ValueError):
    """A corpus cannot be read, made or used; says which file or field, and what to do."""


@dataclass(frozen=True)
class CorpusConfig:
    """Which text, and which tokenizer.

    tokenizer: ``bytes`` (vocabulary 256), ``bpe`` (trained on the training split), ``file`` (tokenizer.json),
    ``hub`` (one by its name on the Hugging Face Hub) or ``ids`` (tokens already).
    vocabulary_size: of the model. 0 with ``file`` and ``hub``: as many as the tokenizer has, none is added.
    files: paths or patterns, for sources that read files; relative ones start at the working directory. Of
    ``python-packages`` the names of distributions, each with its version where that is pinned.
    validation_files, test_files: those of a held-out split; one that is not given is split off ``files``.
    field: the JSON field or Parquet column that holds the text.
    tokenizer_name: the path, or the name on the Hub.
    separator: the token that ends a document, of a tokenizer that is given. separator_id: its id in shards.
    dtype: what shards hold, ``uint16`` or ``uint32``.
    sample_bytes: ``bpe`` is trained on about so many bytes of the training split; 0: on all of it.
    in_place: the tokens stay in the files that hold them.
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
    in_place: bool = added_field(False)

    @property
    def stored_type(self) -> str:
        """The smaller of the unsigned little-endian types ``<u2`` and ``<u4`` that holds every token id."""
        return "<u2" if self.vocabulary_size <= 2**16 else "<u4"

    @property
    def bytes_per_token(self) -> float:
        """About how many bytes of the documents make a token."""
        if self.tokenizer == "ids":
            return float(self.stored_type[-1])
        return 1.0 if self.tokenizer == "bytes" else TYPICAL_BYTES_PER_TOKEN

    @property
    def drawn_splits(self) -> list[str]:
        """The held-out splits that have no files of their own, in the order in which they are filled."""
        given = {"test": self.test_files, "validation": self.validation_files}
        return [name for name, files in given.items() if not files]


def held_out(size: float, per_token: float = 1.0) -> float:
    """How much of ``size`` validation and test get each; ``per_token`` is what a token takes in its unit."""
    of_small = min(LARGEST_HELD_OUT_SHARE * size, WANTED_HELD_OUT * per_token)
    return min(max(HELD_OUT_SHARE * size, of_small), LARGEST_HELD_OUT * per_token)
