"""Tokens that are used where they are: files are read once, for their digest and what is held out of them.

Documents are ranked by a salted hash of their content as those of other corpora are, but none is removed:
equal ones are in the same split. Documents of more than ``LONGEST_HELD_OUT`` tokens are for training.
"""

import hashlib
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scalevec.model.data import SPLITS, CorpusConfig, CorpusError, held_out
from scalevec.model.data.corpus import SEGMENTS, Draft, PlacedFile, SplitFacts
from scalevec.model.data.formats import COMPRESSED, DTYPES, check_ids, opened, require_whole_ids
from scalevec.model.data.sources import CorpusFile, corpus_files, file_stamp, require_unchanged
from scalevec.model.data.system import Meter, Progress, Workers, write_synced
from scalevec.model.data.texts import last_ranks, rank
from scalevec.model.identity import digest

LONGEST_HELD_OUT = 1 << 18
"""Tokens of a document that is held out."""
TOKENS_AT_ONCE = 1 << 22
MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""What the data file of Megatron holds, by its code in the index; other codes are no whole numbers."""
_HEADER = struct.Struct("<9sQBQQ")
_ROWS_AT_ONCE = 1 << 20
_VERSION = 1

Numbers = np.ndarray[tuple[int], np.dtype[Any]]
Candidate = tuple[bytes, int, int, int]
"""A document that may be held out: its rank, the number of its file, its first token there, its tokens."""
Segment = tuple[int, int, int]
"""A row of a table of segments."""


@dataclass(frozen=True)
class Survey:
    """What a file holds; ``index`` is the digest of what says where its documents are, if that is a file."""

    split: str
    file: PlacedFile
    index: str
    tokens: int
    documents: int


class _LowestRanks:
    """Of many documents those of the lowest ranks with ``needed`` tokens, and some more."""

    def __init__(self, needed: float) -> None:
        self.documents: list[Candidate] = []
        self._needed, self._tokens = needed, 0

    def add(self, documents: Sequence[Candidate]) -> None:
        """Remember ``documents``, and in all about twice as much as is needed."""
        self.documents += documents
        self._tokens += sum(tokens for *_, tokens in documents)
        if self._tokens > 2 * self._needed:
            self.documents = self.needed()
            self._tokens = sum(tokens for *_, tokens in self.documents)

    def needed(self) -> list[Candidate]:
        """Those that are needed, the lowest first; equal documents stay together."""
        documents = sorted(self.documents)
        total = 0
        for position, (key, *_, tokens) in enumerate(documents):
            if total >= self._needed and key != documents[position - 1][0]:
                return documents[:position]
            total += tokens
        return documents


def place_files(config: CorpusConfig, workers: Workers, progress: Progress) -> Draft:
    """Read all files of ``config`` once, and choose what is held out.

    Raises :class:`CorpusError` for files that cannot be used, or too few documents to hold some out.
    """
    files = [_layout(config, file) for file in corpus_files(config)]
    dtypes = sorted({file.dtype for file in files})
    if len(dtypes) > 1:
        raise CorpusError(
            f"files that are used in place hold ids of one type; these hold {' and '.join(dtypes)}: write "
            "them again in one of these"
        )
    itemsize = np.dtype(dtypes[0]).itemsize
    quota = held_out(sum(file.stamp[0] // itemsize for file in files if file.split == "train"))
    needed = len(config.drawn_splits) * (quota + LONGEST_HELD_OUT)
    meter = Meter(progress, "read", sum(file.stamp[0] for file in files))
    surveys: list[Survey] = []
    lowest = _LowestRanks(needed)  # of many files as few documents are remembered as of one
    bare = replace(config, files=())  # it goes with every task
    tasks = ((bare, file, number, needed) for number, file in enumerate(files))
    for survey, candidates in workers.map(_survey, tasks):
        meter.count(survey.file.bytes, survey.documents)
        lowest.add(candidates)
        surveys.append(survey)
    # By content: as in other corpora, the names of files do not matter.
    seen = [(survey.split, survey.file.sha256, survey.index) for survey in surveys]
    order = sorted(range(len(surveys)), key=seen.__getitem__)
    new_number = {number: position for position, number in enumerate(order)}
    surveys = [surveys[number] for number in order]
    candidates = sorted((key, new_number[number], first, n) for key, number, first, n in lowest.documents)
    tables, documents = _split_up(config, surveys, candidates, quota)
    identity = {"vocabulary": config.vocabulary_size, "separator": config.separator_id, "dtype": dtypes[0]}
    fingerprint = digest({"in_place_version": _VERSION, "files": sorted(seen), **identity})

    def write(directory: Path) -> dict[str, SplitFacts]:
        split_facts = {}
        for name in SPLITS:
            content = np.array(tables[name], "<i8").tobytes()
            write_synced(directory / f"{name}{SEGMENTS}", content)
            n_tokens, sha256 = sum(count for *_, count in tables[name]), hashlib.sha256(content).hexdigest()
            split_facts[name] = SplitFacts(n_tokens, 0, documents[name], sha256)
        return split_facts

    placed = tuple(survey.file for survey in surveys)
    return Draft(fingerprint, dtypes[0], write, {"separator": config.separator_id, "in_place": placed})


def _layout(config: CorpusConfig, file: CorpusFile) -> CorpusFile:
    """The file of the ids, before they are read. Raises :class:`CorpusError` for one that cannot be used."""
    if config.source == "megatron":
        data, dtype = file.path.with_suffix(".bin"), read_index(file.path)[0]
        return CorpusFile(data, file.split, file_stamp(data), dtype, index=file.path)
    if file.path.suffix in COMPRESSED:
        raise CorpusError(
            f"{file.path} is compressed, and with in_place its tokens are read from the file itself: "
            "decompress it, or leave in_place out"
        )
    require_whole_ids(file.path, file.stamp[0], np.dtype(DTYPES[config.dtype]))
    return replace(file, dtype=DTYPES[config.dtype])


def _survey(task: tuple[CorpusConfig, CorpusFile, int, float]) -> tuple[Survey, list[Candidate]]:
    """What a file holds, and of its documents as many as could be held out."""
    config, file, number, needed = task
    sha256 = hashlib.sha256()
    lowest = _LowestRanks(needed)
    n_documents = 0
    for key, first, length in _documents(config, file, sha256):
        n_documents += 1
        if file.split == "train" and length <= LONGEST_HELD_OUT:
            lowest.add([(key, number, first, length)])
    require_unchanged(file)
    index = hashlib.sha256(file.index.read_bytes()).hexdigest() if file.index is not None else ""
    placed = PlacedFile(str(file.path.resolve()), file.stamp[0], sha256.hexdigest())
    n_tokens = placed.bytes // np.dtype(file.dtype).itemsize
    return Survey(file.split, placed, index, n_tokens, n_documents), lowest.needed()


def _documents(
    config: CorpusConfig, source: CorpusFile, sha256: "hashlib._Hash"
) -> Iterator[tuple[bytes, int, int]]:
    """Of every document that is not empty its rank, its first token, and how many it has.

    Its rank is that of its ids without a separator at its end.

    ``sha256`` is of the whole file when the last one has come.
    """
    ends = None if source.index is None else read_index(source.index)[1]
    position = first = 0
    of_document = hashlib.sha256()
    with opened(source.path) as file:
        while block := file.read(TOKENS_AT_ONCE * np.dtype(source.dtype).itemsize):
            sha256.update(block)
            ids = np.frombuffer(block, source.dtype)
            check_ids(source.path, ids, config.vocabulary_size, position)
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


def _split_up(
    config: CorpusConfig, surveys: Sequence[Survey], candidates: Sequence[Candidate], quota: float
) -> tuple[dict[str, list[Segment]], Counter[str]]:
    """Of each split where its tokens are, and how many documents they make up."""
    sizes: Counter[bytes] = Counter()
    for key, *_, tokens in candidates:
        sizes[key] += tokens
    documents: Counter[str] = Counter()
    for survey in surveys:
        documents[survey.split] += survey.documents
    ends = last_ranks(sizes.items(), config.drawn_splits, documents["train"], quota)
    tables: dict[str, list[Segment]] = {name: [] for name in SPLITS}
    held: list[list[Segment]] = [[] for _ in surveys]
    for key, number, first, length in candidates:
        name = next((name for name, last in ends.items() if key <= last), "train")
        if name != "train":
            tables[name].append((number, first, length))
            held[number].append((number, first, length))
            documents[name] += 1
            documents["train"] -= 1
    for number, survey in enumerate(surveys):
        start = 0
        for _, first, length in [*sorted(held[number]), (number, survey.tokens, 0)]:
            if first > start:
                tables[survey.split].append((number, start, first - start))
            start = first + length
    for name in SPLITS:
        if not tables[name]:
            raise CorpusError(
                f"the files of the corpus leave no document for the {name} split: documents end with the "
                f"token {config.separator_id} or as the index says, and those that are held out have at most "
                f"{LONGEST_HELD_OUT:,} tokens; give files of their own as validation and test"
            )
    return tables, documents


def read_index(path: Path) -> tuple[str, Numbers]:
    """The index at ``path`` (NAME.idx), checked against the size of its data.

    It is the type of the ids, and the token behind each document, ascending, shape [documents].

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
    if version != 1:
        raise _unusable(path, f"its version is {version}; 1 is needed")
    if code not in MEGATRON_DTYPES:
        allowed = ", ".join(map(str, MEGATRON_DTYPES))
        raise _unusable(path, f"the code of its type is {code}; allowed: {allowed}")
    sizes_end = _HEADER.size + 4 * n_sequences
    pointers_end = sizes_end + 8 * n_sequences
    needed, size = pointers_end + 8 * n_entries, path.stat().st_size
    if size not in (needed, needed + n_sequences) or n_entries < 1:
        raise _unusable(
            path, f"it has {size:,} bytes, not what {n_sequences:,} sequences and {n_entries:,} entries need"
        )
    content = np.memmap(path, mode="r")
    tokens = np.frombuffer(content, "<i4", n_sequences, _HEADER.size)
    starts = np.frombuffer(content, "<i8", n_sequences, sizes_end)
    ends = _checked_ends(path, tokens, starts, np.dtype(MEGATRON_DTYPES[code]).itemsize)
    entries = np.frombuffer(content, "<i8", n_entries, pointers_end)
    if entries[0] != 0 or entries[-1] != n_sequences or (np.diff(entries) < 0).any():
        raise _unusable(path, "its documents do not follow one another from the first sequence to the last")
    return MEGATRON_DTYPES[code], ends[entries[1:]]


def _unusable(path: Path, fault: str) -> CorpusError:
    return CorpusError(
        f"corpus file {str(path)!r} is no index of a Megatron dataset: {fault}; name the .idx file beside "
        "its .bin, and fetch it again if it is damaged"
    )


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
    data = path.with_suffix(".bin")
    size = data.stat().st_size if data.is_file() else 0
    if size != int(ends[-1]) * itemsize:
        raise CorpusError(
            f"corpus file {str(data)!r} has {size:,} bytes; its index says {int(ends[-1]) * itemsize:,}; "
            "it is missing, damaged, or belongs to another index"
        )
    return ends
