"""A prepared corpus on disk: what corpus.json says of it, its tokens, and whether they still are intact."""

import hashlib
import json
import mmap
import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalevec.model.data.durable_files import read_regular
from scalevec.model.data.specification import SPLITS, CorpusConfig, CorpusError
from scalevec.model.fields import ConfigurationError, from_dict, require_choice

SEGMENTS = ".segments"
"""Of a file that says where the tokens of a split are."""
COLUMNS = 3
"""Of a table of segments: the number of the file, the first token in it, how many they are."""
CHECKED = "checked.json"
"""Beside the shards: size and time of change of each when its digest was right."""
LONG_BYTES = 10**9
"""From here on reading takes so long that it is said."""

TokenIds = np.ndarray[tuple[int], np.dtype[np.integer[Any]]]
Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]
Stamps = dict[str, list[int]]


class Segments:
    """The tokens of ``table`` (shape [segments, 3]) in ``files`` (each of shape [tokens]), one after another.

    Any token is as quick to find as the first: what is asked for is read, and nothing else.
    Like an array, it has a length, and gives an array for an array of offsets (not negative), and a part of
    itself for a slice.
    """

    def __init__(self, files: Sequence[TokenIds], table: Table, within: range | None = None) -> None:
        self._files, self._table = files, table
        self._ends = np.cumsum(table[:, 2])
        total = int(self._ends[-1]) if len(table) else 0
        self._within = range(total) if within is None else within
        self.dtype = files[0].dtype

    def __len__(self) -> int:
        return len(self._within)

    def __getitem__(self, index: "slice | int | np.ndarray[Any, Any]") -> Any:
        if isinstance(index, slice):
            return Segments(self._files, self._table, self._within[index])
        offsets = np.asarray(index)
        if offsets.size and not (int(offsets.min()) >= 0 and int(offsets.max()) < len(self)):
            raise IndexError(f"{len(self):,} tokens, none at {offsets.min()} to {offsets.max()}")
        offsets = self._within.start + offsets * self._within.step
        segment = np.searchsorted(self._ends, offsets, side="right")
        number, first, length = (self._table[segment, column] for column in range(COLUMNS))
        in_file = first + offsets - (self._ends[segment] - length)
        tokens = np.empty(offsets.shape, self.dtype)
        for file in np.unique(number):
            here = number == file
            tokens[here] = self._files[file][in_file[here]]
        return tokens

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> TokenIds:
        """All tokens in memory."""
        tokens: TokenIds = self[np.arange(len(self))]
        return tokens.astype(dtype or self.dtype)


TokenArray = TokenIds | Segments
"""Tokens of a split, shape [tokens]."""


@dataclass(frozen=True)
class SplitFacts:
    """Size of one split; ``bytes`` is its text without separators, ``sha256`` that of its shard.

    ``bytes`` is 0 where the text is not known (shards, synthetic corpora).
    ideal_loss: of a synthetic corpus, nats/token under the process that drew it.
    """

    tokens: int
    bytes: int
    documents: int
    sha256: str
    ideal_loss: float | None = None


@dataclass(frozen=True)
class PlacedFile:
    """A file of token ids that is used where it is: its absolute path, its bytes, its SHA-256."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class CorpusManifest:
    """corpus.json: what a prepared corpus is and what made it.

    skipped: files that were left out. empty: documents without content, left out too.
    sample_bytes: of the training split that the tokenizer was trained on, about; 0: all, or none was trained.
    separator: the id of the token that ends a document. entropy_rate: nats/token of a synthetic corpus.
    files_key: what the files looked like when they were read (see ``sources.files_key``).
    in_place: the files that hold the tokens; of each split the corpus then holds only where its tokens are.
    """

    format_version: int
    fingerprint: str
    config: CorpusConfig
    dtype: str
    train: SplitFacts
    validation: SplitFacts
    test: SplitFacts
    skipped: tuple[str, ...]
    python_version: str
    tokenizers_version: str
    empty: int = 0
    sample_bytes: int = 0
    separator: int = 0
    entropy_rate: float | None = None
    files_key: str = ""
    in_place: tuple[PlacedFile, ...] = ()


@dataclass(frozen=True)
class Corpus:
    """A prepared corpus on disk."""

    directory: Path
    facts: CorpusManifest

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the tokens are made from (64 hex digits); names the corpus."""
        return self.facts.fingerprint

    @property
    def vocabulary_size(self) -> int:
        """Every token id is below it."""
        return self.facts.config.vocabulary_size

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens of each split."""
        return {name: self.split_facts(name).tokens for name in SPLITS}

    @property
    def bytes_per_token(self) -> float | None:
        """UTF-8 bytes of text per token of the test split, separators being tokens without bytes.

        None where the text is not known.
        """
        return self.facts.test.bytes / self.facts.test.tokens if self.facts.test.bytes else None

    def split_facts(self, name: str) -> SplitFacts:
        """Sizes of the split ``name``."""
        require_choice("split", name, SPLITS)
        facts: SplitFacts = getattr(self.facts, name)
        return facts

    def split(self, name: str) -> TokenArray:
        """The token ids of ``train``, ``validation`` or ``test``, shape [tokens], mapped read-only."""
        path, dtype = self.split_path(name), self.facts.dtype
        if not self.facts.in_place:
            return _mapped(path, dtype, in_order=name != "train")
        files = [_mapped(Path(file.path), dtype, in_order=False) for file in self.facts.in_place]
        return Segments(files, np.fromfile(path, "<i8").reshape(-1, COLUMNS))

    def split_path(self, name: str) -> Path:
        """The file with the tokens of a split, or with where they are."""
        require_choice("split", name, SPLITS)
        return self.directory / f"{name}{SEGMENTS if self.facts.in_place else '.bin'}"

    def expected_files(self) -> dict[str, PlacedFile]:
        """Every file that the tokens are read from, by its split or its path, as it was written."""
        files = {}
        for name in SPLITS:
            path, facts = self.split_path(name), self.split_facts(name)
            # Of a table its digest is enough: how long it is is not kept.
            size = facts.tokens * np.dtype(self.facts.dtype).itemsize
            if self.facts.in_place:
                size = path.stat().st_size if path.is_file() else 0
            files[name] = PlacedFile(str(path), size, facts.sha256)
        return files | {file.path: file for file in self.facts.in_place}


def _mapped(path: Path, dtype: str, *, in_order: bool) -> TokenIds:
    """The ids in a file, read-only; unless they are taken ``in_order``, nothing beside them is read."""
    if path.stat().st_size == 0:  # as a file of a corpus in place may be; it cannot be mapped
        return np.zeros(0, dtype)
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if not in_order and hasattr(mmap, "MADV_RANDOM"):
        # Else each sequence of a batch costs 128 KB or more of its neighbours.
        mapping.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapping, dtype)


def open_corpus(corpora_dir: Path, fingerprint: str) -> Corpus:
    """Return a prepared corpus, the sizes of its shards checked.

    Args:
        corpora_dir: The folder of corpora.
        fingerprint: The corpus, 64 hexadecimal digits.

    Raises:
        CorpusError: It is not there, or not as it was written.
        OSError: It cannot be read now, which says nothing of the corpus.
    """
    if not re.fullmatch("[0-9a-f]{64}", fingerprint):
        raise CorpusError(f"corpus is {fingerprint!r}; a fingerprint of 64 hexadecimal digits is needed")
    directory = corpora_dir / fingerprint
    if not directory.is_dir():
        raise CorpusError(f"corpus {fingerprint} is not under {corpora_dir}; prepare it first")
    corpus = Corpus(directory, _read_facts(directory))
    for file in corpus.expected_files().values():
        _check_size(corpus, file)
    return corpus


def _read_facts(directory: Path) -> CorpusManifest:
    path = directory / "corpus.json"
    try:
        facts = from_dict(CorpusManifest, json.loads(read_regular(path)))
    except (FileNotFoundError, ValueError, RecursionError, ConfigurationError) as error:
        raise CorpusError(f"{path} cannot be read ({error}); {remedy(directory)}") from error
    if facts.fingerprint != directory.name:
        raise CorpusError(f"{path} describes another corpus, {facts.fingerprint}; {remedy(directory)}")
    return facts


def _check_size(corpus: Corpus, file: PlacedFile) -> None:
    path = Path(file.path)
    size = path.stat().st_size if path.is_file() else 0
    if size != file.bytes:
        used = ", which the corpus uses in place," if file in corpus.facts.in_place else ""
        raise CorpusError(
            f"{path}{used} has {size:,} bytes instead of {file.bytes:,}; {remedy(corpus.directory)}"
        )


def remedy(directory: Path) -> str:
    """What to do about a corpus that is not as it was written."""
    return f"remove {directory} and prepare the corpus again"


def verify(corpus: Corpus, say: Callable[[str], None] = lambda _: None, *, again: bool = False) -> None:
    """Check that each file of ``corpus`` has the digest that was written.

    A file that has not changed, by its size and time, since its digest was right is not read; with ``again``
    all are.

    Raises:
        CorpusError: One has not; says which, and what to do.
    """
    known = {} if again else _known(corpus.directory)
    files = corpus.expected_files()
    stamps = {name: _stamp(Path(file.path)) for name, file in files.items()}
    changed = [name for name in files if stamps[name] != known.get(name)]
    if (size := sum(stamps[name][0] for name in changed)) >= LONG_BYTES:
        say(f"corpus {corpus.fingerprint[:12]}: checking the digests of {size / 1e9:,.1f} GB")
    for name in changed:
        _require_digest(corpus, files[name])
    if changed:
        _remember(corpus.directory, stamps)


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _require_digest(corpus: Corpus, written: PlacedFile) -> None:
    path, expected = Path(written.path), written.sha256
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise CorpusError(
            f"{path} is not what was written: its SHA-256 begins with {actual[:12]}, that of corpus.json "
            f"with {expected[:12]}; {remedy(corpus.directory)}"
        )


def _known(directory: Path) -> Stamps:
    """What is remembered; nothing where the file is missing, or not what was written."""
    with suppress(OSError, ValueError, RecursionError):
        known = json.loads(read_regular(directory / CHECKED))
        return known if isinstance(known, dict) else {}
    return {}


def _remember(directory: Path, stamps: Stamps) -> None:
    """Who may not write there checks again each time."""
    part = directory / f".{CHECKED}.{uuid.uuid4().hex}"
    with suppress(OSError):
        part.write_text(json.dumps(stamps) + "\n")
        part.replace(directory / CHECKED)
    with suppress(OSError):
        part.unlink()  # where it could not be written whole
