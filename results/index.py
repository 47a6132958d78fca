"""The index over run directories: derived from them, collected in passing, and rebuilt at any time."""

import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import sqlalchemy as sa
from platformdirs import user_cache_path

from results.files import CorruptRecord
from results.index_tables import (
    FLOAT_COLUMNS,
    INTEGER_COLUMNS,
    TEXT_COLUMNS,
    StoreError,
    open_engine,
    store_errors,
    trials,
    upsert,
)
from results.run_directory import RunDirectory, state_of, trial_ids

__all__ = ["CollectReport", "ResultsIndex", "StoreError", "default_url"]

BATCH = 1000


def default_url(runs_dir: Path) -> str:
    """The URL of an SQLite file in the user's cache folder, one for each RUNS_DIR.

    SCALEVEC_CACHE_DIR names another folder. The folder is created.
    """
    named = os.environ.get("SCALEVEC_CACHE_DIR")
    folder = Path(named) if named else user_cache_path("scalevec", appauthor=False)
    folder.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(_resolved(runs_dir).encode()).hexdigest()[:16]
    return sa.URL.create("sqlite", database=str(folder.resolve() / f"index-{key}.sqlite")).render_as_string()


def _resolved(runs_dir: Path) -> str:
    return str(Path(runs_dir).resolve())


@dataclass
class CollectReport:
    """What a collection did, in trials; ``problems`` says why a trial is not in the index (id to reason)."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    problems: dict[str, str] = field(default_factory=dict)


class ResultsIndex:
    """The index at a store URL (SQLite or PostgreSQL); any number of processes may collect into one.

    Everything raises ``StoreError`` where the database cannot be reached or used.
    """

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)

    def __enter__(self) -> "ResultsIndex":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def collect(self, runs_dir: Path, ids: Iterable[str] | None = None) -> CollectReport:
        """Bring the rows of these trials (default: all of RUNS_DIR) up to date with their directories.

        Directories that have not changed are only looked at. A trial whose directory is gone or corrupt
        loses its row, so that the index always equals one that was rebuilt. Rows are written in the order
        of ids, so that two processes with the same rows never wait for each other in a circle.
        """
        report = CollectReport()
        asked = None if ids is None else sorted(set(ids))
        # The known rows come first: a trial that another process adds meanwhile is then never taken for gone.
        known = self._fingerprints(runs_dir, asked)
        gone = set(known)
        changed = _changed_rows(
            runs_dir, trial_ids(runs_dir) if asked is None else asked, known, gone, report
        )
        while batch := list(islice(changed, BATCH)):
            self._write(upsert(self._engine), batch)
        for chunk in _chunks(gone):
            self._write(sa.delete(trials).where(trials.c.trial_id.in_(chunk)), None)
        report.removed = len(gone)
        return report

    def rebuild(self, runs_dir: Path) -> CollectReport:
        """Forget every row of RUNS_DIR and collect it anew."""
        self._write(sa.delete(trials).where(trials.c.runs_dir == _resolved(runs_dir)), None)
        return self.collect(runs_dir)

    def rows(self, ids: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """The rows of these trials (default: all), by trial id; a trial that is not in the index has none.

        A row holds the columns of ``results.index_tables.trials``.
        """
        return [dict(row) for row in self._select(sa.select(trials), ids)]

    def states(self, ids: Iterable[str] | None = None) -> dict[str, tuple[str, str | None]]:
        """State and cause of these trials (default: all): the cheap part of :meth:`rows`."""
        columns = sa.select(trials.c.trial_id, trials.c.state, trials.c.cause)
        return {row["trial_id"]: (row["state"], row["cause"]) for row in self._select(columns, ids)}

    def _fingerprints(self, runs_dir: Path, ids: Iterable[str] | None) -> dict[str, str]:
        here = trials.c.runs_dir == _resolved(runs_dir)
        columns = sa.select(trials.c.trial_id, trials.c.fingerprint).where(here)
        return {row["trial_id"]: row["fingerprint"] for row in self._select(columns, ids)}

    def _select(self, query: sa.Select[Any], ids: Iterable[str] | None) -> list[sa.RowMapping]:
        query = query.order_by(trials.c.trial_id)
        chunks = [None] if ids is None else list(_chunks(ids))
        found: list[sa.RowMapping] = []
        with store_errors(self._engine.url), self._engine.connect() as connection:
            for chunk in chunks:
                part = query if chunk is None else query.where(trials.c.trial_id.in_(chunk))
                found += connection.execute(part).mappings().all()
        return found

    def _write(self, statement: sa.Insert | sa.Delete, rows: list[dict[str, Any]] | None) -> None:
        """One transaction that writes first: it waits for its turn, and never deadlocks on a read lock."""
        with store_errors(self._engine.url), self._engine.begin() as connection:
            connection.execute(statement, rows)


def _chunks(ids: Iterable[str]) -> Iterator[list[str]]:
    """Sorted and unique, in parts that fit the limits on parameters of a statement."""
    ordered = iter(sorted(set(ids)))
    while chunk := list(islice(ordered, BATCH)):
        yield chunk


def _changed_rows(
    runs_dir: Path, ids: Iterable[str], known: dict[str, str], gone: set[str], report: CollectReport
) -> Iterator[dict[str, Any]]:
    """The rows to write; counts in ``report`` and takes from ``gone`` the trials that keep a row."""
    for trial_id in ids:
        run_directory = RunDirectory.of(runs_dir, trial_id)
        try:
            # Taken before the files are read: what changes meanwhile is seen the next time.
            fingerprint = _fingerprint(run_directory)
            changed = fingerprint is not None and fingerprint != known.get(trial_id)
            row = _row(run_directory) if changed else {}
        except (CorruptRecord, OSError) as error:
            report.problems[trial_id] = str(error)
            continue
        if fingerprint is None:
            continue
        gone.discard(trial_id)
        report.unchanged += not changed
        report.updated += changed and trial_id in known
        report.added += changed and trial_id not in known
        if changed:
            yield {**row, "runs_dir": _resolved(runs_dir), "fingerprint": fingerprint}


def _fingerprint(run_directory: RunDirectory) -> str | None:
    """What changes whenever an indexed file does; None where there is none of them."""
    stamps = [_stamp(path) for path in _indexed_files(run_directory)]
    return " ".join(stamps) if any(stamp != "-" for stamp in stamps) else None


def _indexed_files(run_directory: RunDirectory) -> tuple[Path, Path, Path]:
    return run_directory.trial_path, run_directory.events_path, run_directory.result_path


def _stamp(path: Path) -> str:
    """Time of change and size; "-" where there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return "-"
    return f"{status.st_mtime_ns}:{status.st_size}"


def _row(run_directory: RunDirectory) -> dict[str, Any]:
    try:
        trial = run_directory.trial()
    except FileNotFoundError:
        raise CorruptRecord(run_directory.trial_path, "is missing") from None
    result = run_directory.result()
    state = state_of(run_directory.events(), result)
    return {
        "trial_id": run_directory.trial_id,
        "state": state.state,
        "cause": _checked(run_directory.events_path, "cause", str, state.cause),
        "attempt": _checked(run_directory.events_path, "attempt", int, state.attempt),
        "time": _checked(run_directory.events_path, "time", str, state.time),
        **_result_columns(run_directory.result_path, result or {}),
        "semantic": trial["semantic"],
        "descriptive": trial["descriptive"],
        "result": result,
    }


def _result_columns(path: Path, result: dict[str, Any]) -> dict[str, Any]:
    kinds = ((int, INTEGER_COLUMNS), (float, FLOAT_COLUMNS), (str, TEXT_COLUMNS))
    return {name: _checked(path, name, kind, result.get(name)) for kind, names in kinds for name in names}


def _checked(path: Path, name: str, kind: type, value: Any) -> Any:
    """``value`` as a column of ``kind`` can hold it; None stays None. Raises ``CorruptRecord``."""
    if value is None:
        return None
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _as_float(path, name, value)
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if fits and (_is_storable_text(value) if isinstance(value, str) else abs(value) < 2**63):
        return value
    raise CorruptRecord(path, f"has {name} = {value!r:.80}, not a value of type {kind.__name__}")


def _as_float(path: Path, name: str, value: float) -> float:
    with suppress(OverflowError):
        if math.isfinite(number := float(value)):
            return number
    raise CorruptRecord(path, f"has a {name} that is too large")


def _is_storable_text(text: str) -> bool:
    """Databases take neither a NUL nor half of a surrogate pair."""
    return "\0" not in text and text.encode(errors="replace").decode() == text
