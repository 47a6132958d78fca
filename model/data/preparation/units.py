"""The text of a corpus is read in units: some of its files or a part of one, each kept once it is read."""

import hashlib
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from scalevec.model.data.documents import LARGEST_LIMIT, cut
from scalevec.model.data.durable_files import complete_directory, write_synced
from scalevec.model.data.preparation.meter import Meter, Progress
from scalevec.model.data.preparation.processes import Workers
from scalevec.model.data.preparation.runs import RunWriter
from scalevec.model.data.sources.files import COMPRESSED, CorpusError
from scalevec.model.data.sources.read_cache import YOUNG_NS
from scalevec.model.data.sources.sources import Extent, documents, extents
from scalevec.model.data.specification import CorpusConfig, stored_type
from scalevec.model.fields import from_dict, to_dict
from scalevec.model.identity import digest

UNIT_BYTES = 32 << 20
"""Of files, about; larger files of JSON lines are read in several units, others are one."""
LARGEST_KEPT = LARGEST_LIMIT
"""Bytes of a document whose text is kept when it is first read; longer ones are most likely cut anyway."""

_FACTS = "unit.json"


@dataclass(frozen=True)
class Unit:
    """What is read in one go. ``stamps``: size and time of change of each file. ``key`` names both."""

    extents: tuple[Extent, ...]
    stamps: tuple[tuple[int, int], ...]
    size: int
    key: str


@dataclass(frozen=True)
class UnitFacts:
    """What a unit held; ``longest``: the bytes of its longest document."""

    documents: int
    bytes: int
    longest: int
    empty: int
    runs: int
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """The task of reading ``unit`` into ``directory``.

    longest: 0 where documents are taken as they are; else only those of more bytes are, and cut into pieces
    of up to ``limit``.
    """

    config: CorpusConfig
    unit: Unit
    directory: Path
    keeps_text: bool
    longest: int = 0
    limit: int = 0


def units(config: CorpusConfig) -> list[Unit]:
    """All files of a corpus, in units. Raises :class:`CorpusError` for files that are missing."""
    grouped: list[Unit] = []
    extent_group: list[tuple[Extent, tuple[int, int], int]] = []
    size = 0
    for entry in _parts(config):
        if extent_group and size + entry[2] > UNIT_BYTES:
            grouped.append(_unit(extent_group))
            extent_group, size = [], 0
        extent_group.append(entry)
        size += entry[2]
    return [*grouped, _unit(extent_group)] if extent_group else grouped


def _parts(config: CorpusConfig) -> Iterator[tuple[Extent, tuple[int, int], int]]:
    """The files of a corpus, large ones of lines in parts; with their stamps, and their sizes."""
    for extent in extents(config):
        stamp = _stamp(extent.path)
        can_be_cut = config.source == "jsonl" and extent.path.suffix not in COMPRESSED
        if not can_be_cut or stamp[0] <= UNIT_BYTES:
            yield extent, stamp, stamp[0]
            continue
        for start in range(0, stamp[0], UNIT_BYTES):
            stop = min(start + UNIT_BYTES, stamp[0])
            yield Extent(extent.path, extent.split, start, stop), stamp, stop - start


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise CorpusError(f"corpus file {str(path)!r} cannot be read: {error.strerror}") from error
    return status.st_size, status.st_mtime_ns


def _unit(entries: Sequence[tuple[Extent, tuple[int, int], int]]) -> Unit:
    stamps = tuple(stamp for _, stamp, _ in entries)
    seen = [[str(e.path), e.split, e.start, e.stop, *stamp] for e, stamp, _ in entries]
    # A file that was just written may change again without its time telling: what is read is not found again.
    young = max(time_ns for _, time_ns in stamps) > time.time_ns() - YOUNG_NS
    key = digest({"files": seen, "once": uuid.uuid4().hex if young else ""})
    return Unit(tuple(e for e, _, _ in entries), stamps, sum(size for _, _, size in entries), key[:32])


def read_units(
    readings: Sequence[Reading], workers: Workers, progress: Progress, did: str
) -> list[tuple[Unit, UnitFacts]]:
    """What each of ``readings`` found; those that are finished are not read again."""
    known = {reading.unit.key: _finished(reading) for reading in readings}
    facts = {key: of_unit for key, of_unit in known.items() if of_unit is not None}
    left = [reading for reading in readings if reading.unit.key not in facts]
    total = sum(reading.unit.size for reading in readings)
    meter = Meter(progress, did, total, total - sum(reading.unit.size for reading in left))
    for key, size, of_unit in workers.each(read_unit, left):
        facts[key] = of_unit
        meter.count(size, of_unit.documents)
    return [(reading.unit, facts[reading.unit.key]) for reading in readings]


def runs_of(directory: Path, units_read: Sequence[tuple[Unit, UnitFacts]]) -> tuple[str, ...]:
    """The paths of the runs, without suffix, that were written under ``directory``."""
    return tuple(
        str(directory / unit.key / str(run)) for unit, facts in units_read for run in range(facts.runs)
    )


def _finished(reading: Reading) -> UnitFacts | None:
    path = reading.directory / reading.unit.key / _FACTS
    return from_dict(UnitFacts, json.loads(path.read_bytes())) if path.exists() else None


def read_unit(reading: Reading) -> tuple[str, int, UnitFacts]:
    """Read a unit; its key, the size of its files, and what it held.

    Raises :class:`CorpusError` for files that cannot be used, or that change meanwhile.
    """
    unit = reading.unit
    with complete_directory(reading.directory / unit.key) as partial:
        writer = RunWriter(partial, keeps_text=reading.keeps_text)
        facts = _pieces_into(writer, reading) if reading.longest else _whole_into(writer, reading)
        for extent, stamp in zip(unit.extents, unit.stamps, strict=True):
            if _stamp(extent.path) != stamp:
                raise CorpusError(f"{extent.path} changed while it was read; prepare the corpus again")
        write_synced(partial / _FACTS, json.dumps(to_dict(facts)).encode())
    return unit.key, unit.size, facts


def _whole_into(writer: RunWriter, reading: Reading) -> UnitFacts:
    skipped: list[str] = []
    count = total = longest = empty = 0
    for extent in reading.unit.extents:
        for document in documents(reading.config, extent, skipped.append):
            name, size, content = _taken(document.blocks)
            count += 1
            total += size
            longest = max(longest, size)
            if size:
                writer.add(name, document.split, size, content)
            else:
                empty += 1
    writer.write()
    return UnitFacts(count, total, longest, empty, writer.runs, tuple(skipped))


def _taken(blocks: "Sequence[bytes] | Iterator[bytes]") -> tuple[bytes, int, bytes | None]:
    """The digest of a document, its bytes, and its text unless it is too long."""
    sha256, size = hashlib.sha256(), 0
    kept: list[bytes] = []
    for block in blocks:
        sha256.update(block)
        size += len(block)
        kept = [*kept, block] if size <= LARGEST_KEPT else []
    return sha256.digest(), size, b"".join(kept) if size <= LARGEST_KEPT else None


def _pieces_into(writer: RunWriter, reading: Reading) -> UnitFacts:
    config = reading.config
    step = np.dtype(stored_type(config.vocabulary_size)).itemsize if config.tokenizer == "ids" else 1
    count = total = longest = 0
    for extent in reading.unit.extents:
        for document in documents(config, extent, lambda _: None):
            for content in cut(_long(iter(document.blocks), reading.longest), reading.limit, step):
                writer.add(hashlib.sha256(content).digest(), document.split, len(content), content)
                count += 1
                total += len(content)
                longest = max(longest, len(content))
    writer.write()
    return UnitFacts(count, total, longest, 0, writer.runs, ())


def _long(blocks: Iterator[bytes], longest: int) -> Iterator[bytes]:
    """The blocks of a document of more than ``longest`` bytes; nothing of another."""
    begun: list[bytes] = []
    while sum(map(len, begun)) <= longest:
        if (block := next(blocks, None)) is None:
            return iter(())
        begun.append(block)
    return chain(begun, blocks)
