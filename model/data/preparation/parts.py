"""The shards of a corpus are made in parts, each of a range of ranks and kept once it is finished."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from scalevec.model.data.documents import SPLITS, split_of
from scalevec.model.data.durable_files import complete_directory, write_synced
from scalevec.model.data.preparation.meter import Meter, Progress
from scalevec.model.data.preparation.processes import Workers
from scalevec.model.data.preparation.runs import (
    RankedDocument,
    TextRuns,
    checksum,
    ranges,
    rank_of,
)
from scalevec.model.data.preparation.shard_writer import ShardWriter
from scalevec.model.data.prepared import SplitFacts
from scalevec.model.data.specification import CorpusConfig
from scalevec.model.data.tokenizers import DocumentTokenizer, ready_tokenizer
from scalevec.model.fields import from_dict, to_dict

PART_BYTES = 16 << 20
"""Of text, in a part of a corpus that is not very large."""
LARGEST_PART_BYTES = 128 << 20
MOST_SMALL_PARTS = 4096
"""More parts than that are made only where these would be larger: each part reads a little of every run."""
DOCUMENTS_AT_ONCE = 256
BYTES_AT_ONCE = 1 << 20
"""Of documents that are tokenized together."""

_FACTS = "part.json"


@dataclass(frozen=True)
class PartFacts:
    """What a part holds. ``checksum``: of the ranks of its documents, as 64 hex digits; ``text``: bytes."""

    checksum: str
    text: int
    train: SplitFacts
    validation: SplitFacts
    test: SplitFacts


def parts_for(size: int) -> int:
    """How many parts a corpus of ``size`` bytes of text is made in."""
    small = min(-(-size // PART_BYTES), MOST_SMALL_PARTS)
    return max(1, small, -(-size // LARGEST_PART_BYTES))


@dataclass(frozen=True)
class Parts:
    """All ``count`` parts of a corpus of ``size`` bytes, made under ``directory``.

    last_ranks: of the splits that are drawn, in the order in which they are filled (64 hex digits).
    tokenizer: the path of tokenizer.json, empty where there is none. separator: an id.
    """

    config: CorpusConfig
    runs: TextRuns
    size: int
    count: int
    last_ranks: Mapping[str, str]
    directory: Path
    dtype: str
    tokenizer: str
    separator: int

    def path(self, number: int) -> Path:
        """The folder of one part, there once it is finished."""
        return self.directory / f"{number:06d}-of-{self.count:06d}"

    def finished(self, number: int) -> PartFacts | None:
        """What a part holds; None while it is not finished."""
        path = self.path(number) / _FACTS
        return from_dict(PartFacts, json.loads(path.read_bytes())) if path.exists() else None


def documents(parts: Parts) -> Iterator[tuple[str, bytes]]:
    """Every document in the order of its rank: its split and its text."""
    for within in ranges(parts.count):
        for document in parts.runs.documents(within):
            yield split_of(document.rank, document.origin, parts.last_ranks), document.content


def make_parts(parts: Parts, workers: Workers, progress: Progress) -> list[PartFacts]:
    """Tokenize all parts but those that are finished; what they hold."""
    known = {number: parts.finished(number) for number in range(parts.count)}
    facts = {number: part for number, part in known.items() if part is not None}
    meter = Meter(progress, "tokenized", parts.size, sum(part.text for part in facts.values()))
    left = [(parts, number) for number in known if number not in facts]
    for number, part_facts in workers.each(_make_part, left):
        facts[number] = part_facts
        meter.count(part_facts.text, sum(facts_of(part_facts, name).documents for name in SPLITS))
    return [facts[number] for number in known]


def facts_of(part: PartFacts, name: str) -> SplitFacts:
    """What a part holds of the split ``name``."""
    facts: SplitFacts = getattr(part, name)
    return facts


def _make_part(task: tuple[Parts, int]) -> tuple[int, PartFacts]:
    parts, number = task
    tokenizer = _tokenizer(parts.config, parts.tokenizer, parts.separator)
    waiting = parts.runs.documents(ranges(parts.count)[number])
    with complete_directory(parts.path(number)) as partial:
        facts = _write_part(partial, parts, waiting, tokenizer)
        write_synced(partial / _FACTS, json.dumps(to_dict(facts)).encode())
    return number, facts


@lru_cache(maxsize=1)
def _tokenizer(config: CorpusConfig, path: str, separator: int) -> DocumentTokenizer:
    return ready_tokenizer(config, Path(path), separator)


def _write_part(
    directory: Path, parts: Parts, waiting: Iterator[RankedDocument], tokenizer: DocumentTokenizer
) -> PartFacts:
    is_text = parts.config.tokenizer != "ids"
    total = size = 0
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(ShardWriter(directory / f"{name}.bin", parts.dtype)) for name in SPLITS
        }
        for batch in _batches(waiting):
            total ^= checksum(rank_of(document.content) for document in batch)
            encoded = tokenizer.encode([document.content for document in batch])
            for document, ids in zip(batch, encoded, strict=True):
                writer = writers[split_of(document.rank, document.origin, parts.last_ranks)]
                writer.write(np.append(ids, tokenizer.separator))
                writer.count(len(document.content) if is_text else 0)
                size += len(document.content)
        facts = {name: writer.finish() for name, writer in writers.items()}
        return PartFacts(f"{total:064x}", size, facts["train"], facts["validation"], facts["test"])


def _batches(waiting: Iterable[RankedDocument]) -> Iterator[list[RankedDocument]]:
    """Documents in lists that are tokenized together."""
    batch: list[RankedDocument] = []
    size = 0
    for document in waiting:
        batch.append(document)
        size += len(document.content)
        if len(batch) == DOCUMENTS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
