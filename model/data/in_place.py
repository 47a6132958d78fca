"""Tokens that are used where they are: files are read once, for their digest and what is held out of them.

Documents are ranked by a salted hash of their content as those of other corpora are, but none is removed:
equal ones are in the same split. Documents of more than ``LONGEST_HELD_OUT`` tokens are for training.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scalevec.model.data.corpus import COLUMNS, SEGMENTS, PlacedFile, SplitFacts, Table
from scalevec.model.data.documents import last_ranks, rank
from scalevec.model.data.durable_files import write_synced
from scalevec.model.data.formats import COMPRESSED, DTYPES, broken_shard, check_ids, opened
from scalevec.model.data.pool import Meter, Progress, Workers
from scalevec.model.data.sources import CorpusFile, Stamp, corpus_files, file_stamp
from scalevec.model.data.specification import SPLITS, CorpusConfig, CorpusError, drawn_splits, held_out
from scalevec.model.identity import digest

LONGEST_HELD_OUT = 1 << 18
"""Tokens of a document that is held out."""
TOKENS_AT_ONCE = 1 << 22
MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""What the data file of Megatron holds, by its code in the index; other codes are no whole numbers."""
_MEGATRON_VERSION = 1
_HEADER = struct.Struct("<9sQBQQ")
_ROWS_AT_ONCE = 1 << 20
_VERSION = 1

Numbers = np.ndarray[tuple[int], np.dtype[Any]]


Candidate = tuple[bytes, int, int]
"""A document that may be held out: its rank, its first token in its file, and how many it has."""


@dataclass(frozen=True)
class Layout:
    """A file of ids before it is read; ``index``: the file that says where its documents end, if one does."""

    path: Path
    split: str
    dtype: str
    index: Path | None
    stamp: Stamp

    @property
    def tokens(self) -> int:
        """How many it holds."""
        return self.stamp[0] // np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Survey:
    """What a file holds. ``index``: the digest of what says where its documents are, if that is a file.

    candidates: those of its documents that come first by their rank, as many as could be needed.
    """

    file: PlacedFile
    split: str
    index: str
    documents: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class FilePlacement:
    """A corpus whose tokens stay where they are: its files, in order, and where the splits are in them."""

    fingerprint: str
    dtype: str
    files: tuple[PlacedFile, ...]
    tables: dict[str, Table]
    documents: dict[str, int]


def place_files(config: CorpusConfig, workers: Workers, progress: Progress) -> FilePlacement:
    """Read all files of ``config`` once, and choose what is held out.

    Raises :class:`CorpusError` for files that cannot be used, or too few documents to hold some out.
    """
    layouts = [layout(config, file) for file in corpus_files(config)]
    dtypes = sorted({of_file.dtype for of_file in layouts})
    if len(dtypes) > 1:
        raise CorpusError(
            f"files that are used in place hold ids of one type; these hold {' and '.join(dtypes)}: write "
            "them again in one of these"
        )
    quota = held_out(sum(of_file.tokens for of_file in layouts if of_file.split == "train"))
    needed = len(drawn_splits(config)) * (quota + LONGEST_HELD_OUT)
    meter = Meter(progress, "read", sum(of_file.stamp[0] for of_file in layouts))
    bare = replace(config, files=(), validation_files=(), test_files=())  # it goes with every task
    surveys: list[Survey] = []
    held = 0
    for survey in workers.map(_survey, ((bare, of_file, needed) for of_file in layouts)):
        meter.count(survey.file.bytes, survey.documents)
        surveys.append(survey)
        held += _tokens_of(survey.candidates)
        if held > 2 * needed:  # of many files as few documents are remembered as of one
            candidates = _first([each for of_file in surveys for each in of_file.candidates], needed)
            surveys = [_up_to(candidates[-1][0], of_file) for of_file in surveys]
            held = _tokens_of(candidates)
    # By content: as in other corpora, the names of files do not matter.
    surveys.sort(key=lambda survey: (survey.split, survey.file.sha256, survey.index))
    return _placement(config, dtypes[0], surveys, quota)


def layout(config: CorpusConfig, file: CorpusFile) -> Layout:
    """Where the ids of ``file`` are.

    Raises :class:`CorpusError` for a file that is not what it should be.
    """
    if config.source == "megatron":
        data = data_path(file.path)
        return Layout(data, file.split, read_index(file.path).dtype, file.path, file_stamp(data))
    if file.path.suffix in COMPRESSED:
        raise CorpusError(
            f"{file.path} is compressed, and with in_place its tokens are read from the file itself: "
            "decompress it, or leave in_place out"
        )
    dtype = np.dtype(DTYPES[config.dtype])
    if file.stamp[0] % dtype.itemsize:
        raise broken_shard(file.path, file.stamp[0], dtype)
    return Layout(file.path, file.split, DTYPES[config.dtype], None, file.stamp)


def _survey(task: tuple[CorpusConfig, Layout, float]) -> Survey:
    config, of_file, needed = task
    sha256 = hashlib.sha256()
    candidates: list[Candidate] = []
    count = held = 0
    for document in _documents(config, of_file, sha256):
        count += 1
        if of_file.split == "train" and document[2] <= LONGEST_HELD_OUT:
            candidates.append(document)
            held += document[2]
        if held > 2 * needed:
            candidates = _first(candidates, needed)
            held = _tokens_of(candidates)
    if file_stamp(of_file.path) != of_file.stamp:
        raise CorpusError(f"{of_file.path} changed while it was read; prepare the corpus again")
    index = hashlib.sha256(of_file.index.read_bytes()).hexdigest() if of_file.index is not None else ""
    file = PlacedFile(str(of_file.path.resolve()), of_file.stamp[0], sha256.hexdigest())
    return Survey(file, of_file.split, index, count, tuple(_first(candidates, needed)))


def _first(candidates: list[Candidate], needed: float) -> list[Candidate]:
    """The candidates of the lowest ranks with ``needed`` tokens; equal documents stay together."""
    candidates = sorted(candidates)
    total = 0
    for position, (key, _, tokens) in enumerate(candidates):
        if total >= needed and key != candidates[position - 1][0]:
            return candidates[:position]
        total += tokens
    return candidates


def _tokens_of(candidates: Iterable[Candidate]) -> int:
    return sum(tokens for _, _, tokens in candidates)


def _up_to(last: bytes, survey: Survey) -> Survey:
    kept = tuple(candidate for candidate in survey.candidates if candidate[0] <= last)
    return replace(survey, candidates=kept)


def _documents(config: CorpusConfig, of_file: Layout, sha256: "hashlib._Hash") -> Iterator[Candidate]:
    """Every document that is not empty, its rank that of its ids without a separator at its end.

    ``sha256`` is of the whole file when the last one has come.
    """
    ends = None if of_file.index is None else read_index(of_file.index).ends
    position = first = 0
    of_document = hashlib.sha256()
    with opened(of_file.path) as file:
        while block := file.read(TOKENS_AT_ONCE * np.dtype(of_file.dtype).itemsize):
            sha256.update(block)
            ids = np.frombuffer(block, of_file.dtype)
            check_ids(of_file.path, ids, config.vocabulary_size, position)
            start = position
            for end in _ends_within(ids, position, ends, config.separator_id):
                content = ids[start - position : end - position]
                has_separator = len(content) > 0 and content[-1] == config.separator_id
                of_document.update(content[: len(content) - has_separator].tobytes())
                if end - first > has_separator:
                    yield rank(of_document.digest()), first, end - first
                start = first = end
                of_document = hashlib.sha256()
            of_document.update(ids[start - position :].tobytes())
            position += len(ids)
    if position > first:
        yield rank(of_document.digest()), first, position - first


def _ends_within(ids: Numbers, position: int, ends: Numbers | None, separator: int) -> list[int]:
    """The ends of documents in a block that begins at token ``position``."""
    if ends is None:
        return (np.flatnonzero(ids == separator) + 1 + position).tolist()
    low, high = np.searchsorted(ends, [position, position + len(ids)], side="right")
    return [int(end) for end in ends[low:high]]


def _placement(config: CorpusConfig, dtype: str, surveys: Sequence[Survey], quota: float) -> FilePlacement:
    drawn = drawn_splits(config)
    candidates = sorted(
        (key, number, first, tokens)
        for number, survey in enumerate(surveys)
        for key, first, tokens in survey.candidates
    )
    sizes: dict[bytes, int] = {}
    for key, _, _, tokens in candidates:
        sizes[key] = sizes.get(key, 0) + tokens
    count = sum(survey.documents for survey in surveys if survey.split == "train")
    tables: dict[str, list[list[int]]] = {name: [] for name in drawn}
    ends = last_ranks(sizes.items(), drawn, count, quota)
    for key, *row in candidates:
        for name, last in ends.items():
            if key <= last:
                tables[name].append(row)
                break
    documents = {name: len(rows) for name, rows in tables.items()}
    out = [row for rows in tables.values() for row in rows]
    for number, survey in enumerate(surveys):
        rows = tables.setdefault(survey.split, [])
        tokens = survey.file.bytes // np.dtype(dtype).itemsize
        rows += _around([row for row in out if row[0] == number], number, tokens)
        documents[survey.split] = documents.get(survey.split, 0) + survey.documents
    documents["train"] = documents.get("train", 0) - len(out)
    _require_all(config, tables)
    seen = [[survey.split, survey.file.sha256, survey.index] for survey in surveys]
    identity = {"vocabulary": config.vocabulary_size, "separator": config.separator_id, "dtype": dtype}
    fingerprint = digest({"in_place_version": _VERSION, "files": seen, **identity})
    arrays = {name: np.array(rows, np.int64).reshape(-1, COLUMNS) for name, rows in tables.items()}
    return FilePlacement(fingerprint, dtype, tuple(survey.file for survey in surveys), arrays, documents)


def _around(held: list[list[int]], number: int, tokens: int) -> Iterator[list[int]]:
    """What is left of a file of so many tokens beside what is held out of it."""
    start = 0
    for _, first, length in sorted(held):
        if first > start:
            yield [number, start, first - start]
        start = first + length
    if tokens > start:
        yield [number, start, tokens - start]


def _require_all(config: CorpusConfig, tables: dict[str, list[list[int]]]) -> None:
    for name in SPLITS:
        if not tables.get(name):
            raise CorpusError(
                f"the files of the corpus leave no document for the {name} split: documents end with the "
                f"token {config.separator_id} or as the index says, and those that are held out have at most "
                f"{LONGEST_HELD_OUT:,} tokens; give files of their own as validation and test"
            )


def write_placement(placement: FilePlacement, directory: Path) -> dict[str, SplitFacts]:
    """The tables of all splits into ``directory``; what the splits hold."""
    split_facts = {}
    for name in SPLITS:
        content = placement.tables[name].astype("<i8").tobytes()
        write_synced(directory / f"{name}{SEGMENTS}", content)
        tokens, sha256 = int(placement.tables[name][:, 2].sum()), hashlib.sha256(content).hexdigest()
        split_facts[name] = SplitFacts(tokens, 0, placement.documents[name], sha256)
    return split_facts


@dataclass(frozen=True)
class MegatronIndex:
    """``dtype`` of the ids; ``ends``: the token behind each document, ascending, shape [documents]."""

    dtype: str
    ends: Numbers


def data_path(index: Path) -> Path:
    """The file of the token ids."""
    return index.with_suffix(".bin")


def read_index(path: Path) -> MegatronIndex:
    """The index at ``path`` (NAME.idx), checked against the size of its data.

    Layout: magic, version (uint64), code of the type (uint8), numbers of sequences and of entries of the
    document index (uint64 each); then of each sequence its tokens (int32) and its first byte (int64), and
    the sequence with which each document begins (int64), their number at the end. Modes of sequences
    (int8) may follow.

    Raises :class:`CorpusError` for a file that is something else, is damaged, or whose data is missing.
    """
    with opened(path) as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(MAGIC):
        raise _unusable(path, "it does not begin as such an index does")
    _, version, code, n_sequences, n_entries = _HEADER.unpack(head)
    if version != _MEGATRON_VERSION:
        raise _unusable(path, f"its version is {version}; 1 is needed")
    if code not in MEGATRON_DTYPES:
        raise _unusable(
            path, f"the code of its type is {code}; allowed: {', '.join(map(str, MEGATRON_DTYPES))}"
        )
    sizes_end = _HEADER.size + 4 * n_sequences
    pointers_end = sizes_end + 8 * n_sequences
    needed, size = pointers_end + 8 * n_entries, path.stat().st_size
    if size not in (needed, needed + n_sequences) or n_entries < 1:
        raise _unusable(
            path, f"it has {size:,} bytes, not what {n_sequences:,} sequences and {n_entries:,} entries need"
        )
    tokens = _mapped(path, "<i4", _HEADER.size, n_sequences)
    starts = _mapped(path, "<i8", sizes_end, n_sequences)
    documents = _mapped(path, "<i8", pointers_end, n_entries)
    ends = _checked_ends(path, tokens, starts, np.dtype(MEGATRON_DTYPES[code]).itemsize)
    return MegatronIndex(MEGATRON_DTYPES[code], ends[_checked_documents(path, documents, n_sequences)])


def _unusable(path: Path, fault: str) -> CorpusError:
    return CorpusError(
        f"corpus file {str(path)!r} is no index of a Megatron dataset: {fault}; name the .idx file beside "
        "its .bin, and fetch it again if it is damaged"
    )


def _mapped(path: Path, dtype: str, offset: int, count: int) -> Numbers:
    if not count:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", offset=offset, shape=(count,))


def _checked_ends(path: Path, tokens: Numbers, starts: Numbers, itemsize: int) -> Numbers:
    """The token behind each sequence, after one for none: sequences have to follow one another."""
    ends = np.zeros(len(tokens) + 1, np.int64)
    for first in range(0, len(tokens), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        sizes = tokens[rows].astype(np.int64)
        if (sizes < 0).any():
            raise _unusable(path, f"a sequence after number {first:,} has fewer than no tokens")
        begins = ends[first] + np.cumsum(sizes) - sizes
        ends[first + 1 : first + 1 + len(sizes)] = begins + sizes
        if (starts[rows] != begins * itemsize).any():
            raise _unusable(path, f"a sequence after number {first:,} does not follow the one before it")
    data = data_path(path)
    size = data.stat().st_size if data.is_file() else 0
    if size != int(ends[-1]) * itemsize:
        raise CorpusError(
            f"corpus file {str(data)!r} has {size:,} bytes; its index says {int(ends[-1]) * itemsize:,}; "
            "it is missing, damaged, or belongs to another index"
        )
    return ends


def _checked_documents(path: Path, documents: Numbers, n_sequences: int) -> Numbers:
    """How many sequences there are up to the end of each document."""
    entries = np.array(documents)
    if entries[0] != 0 or entries[-1] != n_sequences or (np.diff(entries) < 0).any():
        raise _unusable(path, "its documents do not follow one another from the first sequence to the last")
    return entries[1:]
