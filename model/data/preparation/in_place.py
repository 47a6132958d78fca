"""Tokens that are used where they are: files are read once, for their digest and what is held out of them.

Documents are ranked by a salted hash of their content as those of other corpora are, but none is removed:
equal ones are in the same split. Documents of more than ``LONGEST_HELD_OUT`` tokens are for training.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from scalevec.model.data.documents import SPLITS, last_ranks, rank, split_of
from scalevec.model.data.durable_files import write_synced
from scalevec.model.data.held_out import held_out
from scalevec.model.data.preparation.meter import Meter, Progress
from scalevec.model.data.preparation.processes import Workers
from scalevec.model.data.prepared import SEGMENTS, PlacedFile, SplitFacts
from scalevec.model.data.segments import COLUMNS, Table
from scalevec.model.data.sources.files import COMPRESSED, CorpusError, opened
from scalevec.model.data.sources.megatron import Numbers, data_path, read_index
from scalevec.model.data.sources.shards import DTYPES, broken_shard, check_ids
from scalevec.model.data.sources.sources import Extent, extents
from scalevec.model.data.specification import CorpusConfig, drawn_splits
from scalevec.model.identity import digest

LONGEST_HELD_OUT = 1 << 18
"""Tokens of a document that is held out."""
TOKENS_AT_ONCE = 1 << 22
_VERSION = 1


@dataclass(frozen=True)
class Candidate:
    """A document that may be held out: its rank, its first token in its file, and how many it has."""

    rank: bytes
    first: int
    tokens: int


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


def placement_of(config: CorpusConfig, workers: Workers, progress: Progress, folder: Path) -> FilePlacement:
    """Read all files of ``config`` once, and choose what is held out.

    What was found in a file is kept in ``folder``, that of this ``config``, and is not read again.

    Raises :class:`CorpusError` for files that cannot be used, or too few documents to hold some out.
    """
    layouts = [layout(config, extent) for extent in extents(config)]
    dtypes = sorted({of_file.dtype for of_file in layouts})
    if len(dtypes) > 1:
        raise CorpusError(
            f"files that are used in place hold ids of one type; these hold {' and '.join(dtypes)}: write "
            "them again in one of these"
        )
    n_tokens = sum(of_file.tokens for of_file in layouts if of_file.split == "train")
    needed = len(drawn_splits(config)) * (held_out(n_tokens) + LONGEST_HELD_OUT)
    finished = [of_file for of_file in layouts if _survey_path(folder, of_file, needed).is_file()]
    total, before = (sum(of_file.size for of_file in some) for some in (layouts, finished))
    meter = Meter(progress, "read", total, before)
    tasks = [(config, of_file, needed, folder) for of_file in layouts if of_file not in finished]

    def surveyed() -> Iterator[Survey]:
        yield from (_found_before(folder, of_file, needed) for of_file in finished)
        for survey in workers.each(_survey, tasks):
            meter.count(survey.file.bytes, survey.documents)
            yield survey

    surveys = _gathered(surveyed(), needed)
    # By content: as in other corpora, the names of files do not matter.
    surveys.sort(key=lambda survey: (survey.split, survey.file.sha256, survey.index))
    return _placement(config, dtypes[0], surveys, held_out(n_tokens))


@dataclass(frozen=True)
class Layout:
    """A file of ids before it is read; ``index``: the file that says where its documents end, if one does."""

    path: Path
    split: str
    dtype: str
    index: Path | None
    size: int

    @property
    def tokens(self) -> int:
        """How many it holds."""
        return self.size // np.dtype(self.dtype).itemsize

    def ends(self) -> Numbers | None:
        """The token behind each document."""
        return None if self.index is None else read_index(self.index).ends


def layout(config: CorpusConfig, extent: Extent) -> Layout:
    """Where the ids of ``extent`` are.

    Raises :class:`CorpusError` for a file that is not what it should be.
    """
    if config.source == "megatron":
        path, dtype = data_path(extent.path), read_index(extent.path).dtype
        return Layout(path, extent.split, dtype, extent.path, path.stat().st_size)
    if extent.path.suffix in COMPRESSED:
        raise CorpusError(
            f"{extent.path} is compressed, and with in_place its tokens are read from the file itself: "
            "decompress it, or leave in_place out"
        )
    size, itemsize = extent.path.stat().st_size, np.dtype(DTYPES[config.dtype]).itemsize
    if size % itemsize:
        raise broken_shard(extent.path, size, np.dtype(DTYPES[config.dtype]))
    return Layout(extent.path, extent.split, DTYPES[config.dtype], None, size)


def _gathered(surveys: Iterable[Survey], needed: float) -> list[Survey]:
    """All ``surveys``, with the candidates that come first over all files: of many files few are needed."""
    gathered: list[Survey] = []
    held = 0
    for survey in surveys:
        gathered.append(survey)
        held += _tokens_of(survey.candidates)
        if held > 2 * needed:
            first = _first([candidate for each in gathered for candidate in each.candidates], needed)
            gathered = [_up_to(first[-1].rank, each) for each in gathered]
            held = _tokens_of(first)
    return gathered


def _up_to(last: bytes, survey: Survey) -> Survey:
    return replace(survey, candidates=tuple(each for each in survey.candidates if each.rank <= last))


def _tokens_of(candidates: Sequence[Candidate]) -> int:
    return sum(candidate.tokens for candidate in candidates)


def _found_before(folder: Path, of_file: Layout, needed: float) -> Survey:
    """What an earlier process found in the file, which is as it was."""
    values = json.loads(_survey_path(folder, of_file, needed).read_bytes())
    candidates = tuple(Candidate(bytes.fromhex(key), *rest) for key, *rest in values.pop("candidates"))
    return Survey(**values | {"file": PlacedFile(**values["file"]), "candidates": candidates})


def _keep(survey: Survey, path: Path) -> None:
    candidates = [(document.rank.hex(), document.first, document.tokens) for document in survey.candidates]
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    write_synced(partial, json.dumps(asdict(survey) | {"candidates": candidates}).encode())
    partial.rename(path)


def _survey_path(folder: Path, of_file: Layout, needed: float) -> Path:
    paths = [path.resolve() for path in (of_file.path, of_file.index) if path is not None]
    states = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
    return folder / f"{digest({'files': states, 'split': of_file.split, 'needed': needed})}.json"


def _survey(task: tuple[CorpusConfig, Layout, float, Path]) -> Survey:
    config, of_file, needed, folder = task
    kept = _survey_path(folder, of_file, needed)
    sha256 = hashlib.sha256()
    candidates: list[Candidate] = []
    count = held = 0
    before = of_file.path.stat().st_mtime_ns
    for document in _documents(config, of_file, sha256):
        count += 1
        if of_file.split == "train" and document.tokens <= LONGEST_HELD_OUT:
            candidates.append(document)
            held += document.tokens
        if held > 2 * needed:
            candidates = _first(candidates, needed)
            held = _tokens_of(candidates)
    if (of_file.path.stat().st_size, of_file.path.stat().st_mtime_ns) != (of_file.size, before):
        raise CorpusError(f"{of_file.path} changed while it was read; prepare the corpus again")
    index = hashlib.sha256(of_file.index.read_bytes()).hexdigest() if of_file.index is not None else ""
    file = PlacedFile(str(of_file.path.resolve()), of_file.size, sha256.hexdigest())
    survey = Survey(file, of_file.split, index, count, tuple(_first(candidates, needed)))
    _keep(survey, kept)
    return survey


def _first(candidates: list[Candidate], needed: float) -> list[Candidate]:
    """The candidates of the lowest ranks with ``needed`` tokens; equal documents stay together."""
    candidates = sorted(candidates, key=lambda candidate: candidate.rank)
    total = 0
    for position, candidate in enumerate(candidates):
        if total >= needed and candidate.rank != candidates[position - 1].rank:
            return candidates[:position]
        total += candidate.tokens
    return candidates


def _documents(config: CorpusConfig, of_file: Layout, sha256: "hashlib._Hash") -> Iterator[Candidate]:
    """Every document that is not empty, its rank that of its ids without a separator at its end.

    ``sha256`` is of the whole file when the last one has come.
    """
    ends, position, first = of_file.ends(), 0, 0
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
                    yield Candidate(rank(of_document.digest()), first, end - first)
                start = first = end
                of_document = hashlib.sha256()
            of_document.update(ids[start - position :].tobytes())
            position += len(ids)
    if position > first:
        yield Candidate(rank(of_document.digest()), first, position - first)


def _ends_within(ids: Numbers, position: int, ends: Numbers | None, separator: int) -> list[int]:
    """The ends of documents in a block that begins at token ``position``."""
    if ends is None:
        return (np.flatnonzero(ids == separator) + 1 + position).tolist()
    low, high = np.searchsorted(ends, [position, position + len(ids)], side="right")
    return [int(end) for end in ends[low:high]]


def _placement(config: CorpusConfig, dtype: str, surveys: Sequence[Survey], quota: float) -> FilePlacement:
    drawn = drawn_splits(config)
    candidates = sorted(
        (candidate.rank, number, candidate.first, candidate.tokens)
        for number, survey in enumerate(surveys)
        for candidate in survey.candidates
    )
    sizes: dict[bytes, int] = {}
    for key, _, _, tokens in candidates:
        sizes[key] = sizes.get(key, 0) + tokens
    count = sum(survey.documents for survey in surveys if survey.split == "train")
    last = {name: key.hex() for name, key in last_ranks(sizes.items(), drawn, count, quota).items()}
    held = [(split_of(key, "train", last), row) for key, *row in candidates]
    tables = {name: [row for split, row in held if split == name] for name in drawn}
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
    files = tuple(survey.file for survey in surveys)
    return FilePlacement(
        fingerprint, dtype, files, {name: _table(rows) for name, rows in tables.items()}, documents
    )


def _around(held: list[list[int]], number: int, tokens: int) -> Iterator[list[int]]:
    """What is left of a file of so many tokens beside what is held out of it."""
    start = 0
    for _, first, length in sorted(held):
        if first > start:
            yield [number, start, first - start]
        start = first + length
    if tokens > start:
        yield [number, start, tokens - start]


def _table(rows: list[list[int]]) -> Table:
    return np.array(rows, np.int64).reshape(-1, COLUMNS)


def _require_all(config: CorpusConfig, tables: dict[str, list[list[int]]]) -> None:
    for name in SPLITS:
        if not tables.get(name):
            raise CorpusError(
                f"the files of the corpus leave no document for the {name} split: documents end with the "
                f"token {config.separator_id} or as the index says, and those that are held out have at most "
                f"{LONGEST_HELD_OUT:,} tokens; give files of their own as validation and test"
            )


def write_placement(directory: Path, placement: FilePlacement, progress: Progress) -> dict[str, SplitFacts]:
    """The tables of all splits into ``directory``; what the splits hold."""
    split_facts = {}
    for name in SPLITS:
        content = placement.tables[name].astype("<i8").tobytes()
        write_synced(directory / f"{name}{SEGMENTS}", content)
        tokens, sha256 = int(placement.tables[name][:, 2].sum()), hashlib.sha256(content).hexdigest()
        split_facts[name] = SplitFacts(tokens, 0, placement.documents[name], sha256)
        progress(f"{name}: {tokens:,} tokens, in place")
    return split_facts
