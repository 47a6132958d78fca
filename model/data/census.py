"""The first look at a corpus: its distinct documents are counted and named; none of it is held in memory."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalevec.model.data.documents import LARGEST_LIMIT, SPLITS, piece_limit, rank
from scalevec.model.data.preparation import units
from scalevec.model.data.preparation.meter import Progress
from scalevec.model.data.preparation.processes import Workers
from scalevec.model.data.preparation.runs import (
    ORIGINS,
    Rows,
    TextRuns,
    checksum,
    keys_of,
    ranges,
)
from scalevec.model.data.preparation.units import Reading, Unit, UnitFacts, read_units, runs_of
from scalevec.model.data.sources.files import CorpusError
from scalevec.model.data.specification import FORMAT_VERSION, CorpusConfig

DOCUMENTS_AT_ONCE = 1 << 18
"""About so many names are sorted in memory."""
_LARGEST_WHOLE = ("python-stdlib", "text")
"""Sources whose pieces have no longest but their share of all text."""


@dataclass(frozen=True)
class Census:
    """What is known of a corpus before it is made.

    limit: bytes of the longest piece. counts, sizes: distinct documents, and their bytes, by the split whose
    files held them. empty: documents without content. skipped: files that were left out.
    sample_bytes: of the training split that the tokenizer is trained on; 0: on all.
    checksum: of the ranks of all distinct documents. runs: where they wait.
    """

    fingerprint: str
    limit: int
    counts: Mapping[str, int]
    sizes: Mapping[str, int]
    empty: int
    skipped: tuple[str, ...]
    sample_bytes: int
    checksum: int
    runs: TextRuns


@dataclass(frozen=True)
class ReadTexts:
    """How texts are read: by ``workers``, into ``directory``, what they hold kept or only named."""

    config: CorpusConfig
    directory: Path
    workers: Workers
    progress: Progress
    keeps_text: bool

    def whole(self) -> list[tuple[Unit, UnitFacts]]:
        """All documents as they are."""
        readings = [
            Reading(self.config, unit, self._folder("whole"), self.keeps_text)
            for unit in units.units(self.config)
        ]
        return read_units(readings, self.workers, self.progress, "read")

    def pieces(self, units_read: list[tuple[Unit, UnitFacts]], longest: int, limit: int) -> tuple[str, ...]:
        """The runs of what documents of more than ``longest`` bytes are cut into."""
        folder = self._folder(f"pieces-{limit}")
        readings = [
            Reading(self.config, unit, folder, self.keeps_text, longest, limit)
            for unit, facts in units_read
            if facts.longest > longest
        ]
        return runs_of(folder, read_units(readings, self.workers, self.progress, "cut into pieces"))

    def runs(self, units_read: list[tuple[Unit, UnitFacts]]) -> tuple[str, ...]:
        """Those of the documents as they are."""
        return runs_of(self._folder("whole"), units_read)

    def _folder(self, name: str) -> Path:
        return self.directory / f"{name}{'' if self.keeps_text else '-named'}"


def take_census(texts: ReadTexts, tokenizer: Mapping[str, Any]) -> Census:
    """Read all text, documents that are cut twice; ``tokenizer`` is what the fingerprint says of it.

    Raises :class:`CorpusError` for text that is missing, unreadable, not UTF-8 or empty.
    """
    config = texts.config
    units_read = texts.whole()
    runs = TextRuns(texts.runs(units_read))
    n_documents = sum(facts.documents for _, facts in units_read)
    total = sum(int(rows["size"].sum()) for rows in _names(runs, n_documents))
    if not total:
        where = ", ".join(config.files) or config.source
        raise CorpusError(f"the corpus is empty: no text in {where}")
    limit = piece_limit(total, None if config.source in _LARGEST_WHOLE else LARGEST_LIMIT)
    longest = min(limit, units.LARGEST_KEPT)
    runs = replace(runs, pieces=texts.pieces(units_read, longest, limit), longest=longest)
    return _census(config, tokenizer, units_read, limit, runs)


def _names(runs: TextRuns, n_documents: int) -> Iterator[Rows]:
    """The distinct documents in the order of their digests, some at a time."""
    for within in ranges(n_documents // DOCUMENTS_AT_ONCE + 1):
        yield runs.names(within)


def _census(
    config: CorpusConfig,
    tokenizer: Mapping[str, Any],
    units_read: list[tuple[Unit, UnitFacts]],
    limit: int,
    runs: TextRuns,
) -> Census:
    counts, sizes = dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, 0)
    name = hashlib.sha256(b'{"documents":[')
    total, comma = 0, ""
    for rows in _names(runs, sum(facts.documents for _, facts in units_read)):
        for number, origin in enumerate(ORIGINS):
            of_origin = rows["size"][rows["origin"] == number]
            counts[origin] += len(of_origin)
            sizes[origin] += int(of_origin.sum())
        total ^= checksum(rank(digest) for digest in keys_of(rows, "digest"))
        if len(rows):
            name.update((comma + _listed(rows)).encode())
            comma = ","
    sample = config.sample_bytes if config.sample_bytes < sum(sizes.values()) else 0
    sampled = {**tokenizer, "sample": sample} if sample else tokenizer
    rest = {"format_version": FORMAT_VERSION, "tokenizer": sampled}
    name.update(b"]," + json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()[1:])
    empty = sum(facts.empty for _, facts in units_read)
    skipped = tuple(file for _, facts in units_read for file in facts.skipped)
    return Census(name.hexdigest(), limit, counts, sizes, empty, skipped, sample, total, runs)


def _listed(rows: Rows) -> str:
    """The digests as they stand in the fingerprint; what is held out says so."""
    suffixes = [f" {origin}" if origin != "train" else "" for origin in ORIGINS]
    named = zip(keys_of(rows, "digest"), rows["origin"].tolist(), strict=True)
    return ",".join(f'"{key.hex()}{suffixes[origin]}"' for key, origin in named)
