"""A prepared corpus on disk: what corpus.json says of it, its tokens in batches, and whether they are intact.

Which tokens a step sees depends on the stream and the step alone. The order of the windows is a keyed
permutation of their numbers, reckoned for those that are asked for: a generalised Feistel network over
numbers written in two digits, with cycle walking (Black & Rogaway, "Ciphers with arbitrary finite domains",
CT-RSA 2002). It takes no memory and no time that would grow with the corpus, and any position is as quick as
the first.
"""

import hashlib
import json
import mmap
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from scalevec.model.data import SPLITS, CorpusConfig, CorpusError
from scalevec.model.data.system import read_regular
from scalevec.model.fields import ConfigurationError, from_dict, require_choice

if TYPE_CHECKING:
    import torch

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
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Batch: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
_WHOLE = slice(None)


class Segments:
    """The tokens of ``table`` (shape [segments, 3]) in ``files`` (each of shape [tokens]), one after another.

    Any token is as quick to find as the first: what is asked for is read, and nothing else. Like an array, it
    has a length, and gives an array for an array of offsets (not negative), and a part of itself for a slice.
    """

    def __init__(self, files: Sequence[TokenIds], table: Table, within: range | None = None) -> None:
        self._files, self._table = files, table
        self._ends = np.cumsum(table[:, 2])
        self._within = range(self._ends[-1]) if within is None else within
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

    ``bytes`` is 0 where the text is not known (shards).
    """

    tokens: int
    bytes: int
    documents: int
    sha256: str


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
    separator: the id of the token that ends a document.
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
    files_key: str = ""
    in_place: tuple[PlacedFile, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A corpus that is known by its fingerprint, and not written yet.

    write: puts the files of all splits into a folder, and says what they hold. facts: more of the manifest.
    """

    fingerprint: str
    dtype: str
    write: Callable[[Path], dict[str, SplitFacts]]
    facts: dict[str, Any]


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
        """UTF-8 bytes of text per token of the test split, separators among them; None for unknown text."""
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
            size = facts.tokens * np.dtype(self.facts.dtype).itemsize
            if self.facts.in_place:  # of a table its digest is enough: how long it is is not kept
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


def epoch_order(places: Numbers, n_windows: int, stream: str, epoch: int) -> Numbers:
    """Which of ``n_windows`` windows stand at ``places`` (shape [places]) in an epoch of ``stream``.

    All places together are a permutation of the numbers of the windows.
    """
    # Bases close to the root: of all numbers of two digits, hardly any is beyond the windows.
    low_base = np.uint64(isqrt(max(n_windows - 1, 0)) + 1)
    high_base = np.uint64(-(-n_windows // int(low_base)))
    digest = hashlib.sha512(f"{stream}/order/{epoch}".encode()).digest()
    round_keys = np.frombuffer(digest, ">u8").astype(np.uint64).reshape(-1, 2)

    def permuted(numbers: Words) -> Words:
        high, low = np.divmod(numbers, low_base)
        for first, second in round_keys:
            high = (high + _mixed(low, first)) % high_base
            low = (low + _mixed(high, second)) % low_base
        return high * low_base + low

    numbers = permuted(places.astype(np.uint64))
    while (beyond := numbers >= n_windows).any():
        numbers[beyond] = permuted(numbers[beyond])
    return numbers.astype(np.int64)


def _mixed(words: Words, key: np.uint64) -> Words:
    """Half of the bits of ``words + key``, mixed as by SplitMix64 (Steele, Lea & Flood, OOPSLA 2014)."""
    mixed = words + key  # arrays wrap around without a warning
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    # The lower half goes: sums with a digit then stay within 64 bits.
    return (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(32)


def window_count(n_tokens: int, sequence_length: int) -> int:
    """Windows of ``sequence_length`` targets in ``n_tokens`` tokens; a shorter rest is not trained on."""
    return max(0, (n_tokens - 1) // sequence_length)


class TrainingBatches:
    """Batches of windows over ``tokens`` (shape [tokens]); each window is seen once in an epoch.

    A window holds ``sequence_length`` inputs and the targets one token further on; consecutive windows
    share one token. Epochs follow each other without a gap, so a batch may straddle two.
    """

    def __init__(self, tokens: TokenArray, sequence_length: int, batch_sequences: int, stream: str) -> None:
        self.n_windows = window_count(len(tokens), sequence_length)
        if self.n_windows == 0:
            raise ValueError(f"{len(tokens)} tokens hold no sequence of {sequence_length} and its next token")
        self._tokens = tokens
        self._sequence_length = sequence_length
        self._batch_sequences = batch_sequences
        self._stream = stream

    def batch(self, step: int, part: slice = _WHOLE) -> Batch:
        """Inputs and targets of ``step`` (from 0), int64, each [batch_sequences, sequence_length].

        With a ``part`` only those of its sequences.
        """
        starts = self.windows(step)[part] * self._sequence_length
        return _windows(self._tokens, starts, self._sequence_length)

    def windows(self, step: int) -> Numbers:
        """Which windows ``step`` sees, shape [batch_sequences]."""
        first = step * self._batch_sequences
        epochs, places = np.divmod(np.arange(first, first + self._batch_sequences), self.n_windows)
        parts = [
            epoch_order(places[epochs == epoch], self.n_windows, self._stream, int(epoch))
            for epoch in np.unique(epochs)
        ]
        return np.concatenate(parts)


def evaluation_batches(tokens: TokenArray, sequence_length: int, batch_sequences: int) -> Iterator[Batch]:
    """All of ``tokens`` in order: every token but the first is a target exactly once.

    Yields int64 inputs and targets, [up to batch_sequences, sequence_length]; the rest that fills no
    sequence comes last, as one row [1, rest].
    """
    n_windows = window_count(len(tokens), sequence_length)
    starts = np.arange(n_windows) * sequence_length
    for first in range(0, n_windows, batch_sequences):
        yield _windows(tokens, starts[first : first + batch_sequences], sequence_length)
    covered = n_windows * sequence_length
    if rest := len(tokens) - 1 - covered:
        yield _windows(tokens, np.array([covered]), rest)


def _windows(tokens: TokenArray, starts: Numbers, length: int) -> Batch:
    """Inputs and targets of the windows that begin at ``starts``, each [len(starts), length]."""
    import torch  # what prepares corpora needs none

    rows = tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)
    windows = torch.from_numpy(rows)
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def open_corpus(corpora_dir: Path, fingerprint: str) -> Corpus:
    """The corpus of this fingerprint (64 hex digits) under ``corpora_dir``, the sizes of its shards checked.

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
        path = Path(file.path)
        size = path.stat().st_size if path.is_file() else 0
        if size != file.bytes:
            used = ", which the corpus uses in place," if file in corpus.facts.in_place else ""
            raise CorpusError(
                f"{path}{used} has {size:,} bytes instead of {file.bytes:,}; {_remedy(directory)}"
            )
    return corpus


def _read_facts(directory: Path) -> CorpusManifest:
    path = directory / "corpus.json"
    try:
        facts = from_dict(CorpusManifest, json.loads(read_regular(path)))
    except (FileNotFoundError, ValueError, RecursionError, ConfigurationError) as error:
        raise CorpusError(f"{path} cannot be read ({error}); {_remedy(directory)}") from error
    if facts.fingerprint != directory.name:
        raise CorpusError(f"{path} describes another corpus, {facts.fingerprint}; {_remedy(directory)}")
    return facts


def _remedy(directory: Path) -> str:
    return f"remove {directory} and prepare the corpus again"


def verify(corpus: Corpus, say: Callable[[str], None] = lambda _: None, *, again: bool = False) -> None:
    """Raise :class:`CorpusError` unless each file of ``corpus`` has the digest that was written.

    A file that has not changed, by its size and time, since its digest was right is not read; with ``again``
    all are.
    """
    known = {} if again else _known_stamps(corpus.directory)
    files = corpus.expected_files()
    status = {name: Path(file.path).stat() for name, file in files.items()}
    stamps = {name: [of_file.st_size, of_file.st_mtime_ns] for name, of_file in status.items()}
    changed = [name for name in files if stamps[name] != known.get(name)]
    if (size := sum(stamps[name][0] for name in changed)) >= LONG_BYTES:
        say(f"corpus {corpus.fingerprint[:12]}: checking the digests of {size / 1e9:,.1f} GB")
    for name in changed:
        path, expected = Path(files[name].path), files[name].sha256
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != expected:
            raise CorpusError(
                f"{path} is not what was written: its SHA-256 begins with {actual[:12]}, that of corpus.json "
                f"with {expected[:12]}; {_remedy(corpus.directory)}"
            )
    if changed:
        part = corpus.directory / f".{CHECKED}.{uuid.uuid4().hex}"
        with suppress(OSError):  # who may not write there checks again each time
            part.write_text(json.dumps(stamps) + "\n")
            part.replace(corpus.directory / CHECKED)
        with suppress(OSError):
            part.unlink()  # where it could not be written whole


def _known_stamps(directory: Path) -> dict[str, list[int]]:
    """Those of the last check; none where they are missing, or not what was written."""
    with suppress(OSError, ValueError, RecursionError):
        known = json.loads(read_regular(directory / CHECKED))
        return known if isinstance(known, dict) else {}
    return {}
