"""The index over run directories: derived from them, collected in passing, and rebuilt at any time."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from scalevec.results.index.database import OF_INDEX, open_engine, store_errors, take_turn, trials
from scalevec.results.index.rows import look, read_rows, with_other_result
from scalevec.results.run_directory import RESULT_STATES, trial_ids
from scalevec.results.runs_identity import runs_id

BATCH = 1000
ALL_AT_ONCE = 20_000
"""From so many trials on, all of a folder are read where an index has what is asked: it costs less."""


class Known(NamedTuple):
    """What status reads of a trial, by the names of columns; the defaults are of one that has no row."""

    state: str = "pending"
    fingerprint: str = ""
    cause: str | None = None
    loss: float | None = None
    wall_s: float | None = None
    evaluation_s: float | None = None


@dataclass
class CollectReport:
    """What a collection did, in trials.

    By trial id, ``problems`` says why a trial is not in the index.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    problems: dict[str, str] = field(default_factory=dict)


class ResultsIndex:
    """The index of results in a database, one row per trial; any number of processes may collect into one.

    It holds nothing that the run directories do not: it may be deleted and rebuilt at any time. Close it, or
    use it as a context manager.

    Args:
        url: The store, of SQLite or PostgreSQL.

    Raises:
        StoreError: The database cannot be reached or used; every method may raise it.
    """

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)

    def __enter__(self) -> "ResultsIndex":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def collect(self, runs_dir: Path, ids: Iterable[str] | None = None) -> CollectReport:
        """Bring the rows of these trials (default: all of RUNS_DIR) up to date with their directories.

        Directories that have not changed are only looked at. A trial whose directory is gone or corrupt
        loses its row, so that the index always equals one that was rebuilt.
        """
        key, asked = _key(runs_dir, make=True), None if ids is None else sorted(set(ids))
        # The known rows come first: a trial that another process adds meanwhile is then never taken for gone.
        known = dict(self._select(key, asked, "fingerprint"))
        wanted = trial_ids(runs_dir) if asked is None else asked
        present, problems = look(runs_dir, wanted)
        unchanged = {trial_id for trial_id, stamp in present.items() if stamp == known.get(trial_id)}
        report = CollectReport(unchanged=len(unchanged), problems=problems)
        written: set[str] = set()
        for chunk in _chunks(sorted(present.keys() - unchanged)):
            of_chunk = dict(read_rows(runs_dir, chunk))
            report.problems |= {trial_id: row for trial_id, row in of_chunk.items() if isinstance(row, str)}
            rows = [
                {**row, "runs_dir": key, "fingerprint": present[trial_id]}
                for trial_id, row in of_chunk.items()
                if not isinstance(row, str)
            ]
            self._write(_rows_of(key, [row["trial_id"] for row in rows]), *rows)
            written |= {row["trial_id"] for row in rows}
        gone = known.keys() - unchanged - written
        for chunk in _chunks(sorted(gone)):
            self._write(_rows_of(key, chunk))
        report.updated = len(written & known.keys())
        report.added, report.removed = len(written) - report.updated, len(gone)
        return report

    def rebuild(self, runs_dir: Path) -> CollectReport:
        """Forget every row of RUNS_DIR and collect it again."""
        self._write(_rows_of(_key(runs_dir, make=True)))
        return self.collect(runs_dir)

    def rows(self, runs_dir: Path, ids: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """The rows of these trials (default: all), by trial id, as ``results.index.rows.row_of`` makes them.

        A trial that is not in the index has none.
        """
        return [record for _, record in sorted(self._select(_key(runs_dir), ids, "record"))]

    def current_states(self, runs_dir: Path, ids: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
        """The state of each of these trials as it is now, and what could not be read (id to reason).

        Of a trial whose result the index holds, it is only asked whether that file, which is written once,
        is the same still; the others are collected. A trial without a directory is pending; one that cannot
        be read is in the second part alone.
        """
        rows, problems = self.current(runs_dir, ids)
        return {name: row.state for name, row in rows.items()}, problems

    def current(self, runs_dir: Path, ids: Iterable[str]) -> tuple[dict[str, Known], dict[str, str]]:
        """As :meth:`current_states`, each state with what else status reads of a trial."""

        def stored(ids: set[str]) -> dict[str, Known]:
            rows = self._select(_key(runs_dir), ids, *Known._fields)
            return {row[0]: Known._make(row[1:]) for row in rows}

        wanted = set(ids)
        known = stored(wanted)
        settled = {name: row.fingerprint for name, row in known.items() if row.state in RESULT_STATES}
        again = wanted.difference(settled).union(with_other_result(runs_dir, settled))
        if not again:
            return known, {}
        problems = self.collect(runs_dir, again).problems
        rows = known | dict.fromkeys(again, Known()) | stored(again)
        return {name: row for name, row in rows.items() if name not in problems}, problems

    def states(self, runs_dir: Path, ids: Iterable[str] | None = None) -> dict[str, str]:
        """The state of these trials (default: all): the cheap part of :meth:`rows`."""
        return dict(self._select(_key(runs_dir), ids, "state"))

    def _select(self, key: str, ids: Iterable[str] | None, *names: str) -> list[Any]:
        """The id and the columns ``names`` of these trials (default: all) of a runs folder."""
        columns = (trials.c[name] for name in ("trial_id", *names))
        asked = None if ids is None else set(ids)
        parts = [sa.select(*columns).where(trials.c.runs_dir == key)]
        if asked is not None and (len(asked) < ALL_AT_ONCE or not set(names) <= set(OF_INDEX)):
            parts = [parts[0].where(trials.c.trial_id.in_(chunk)) for chunk in _chunks(sorted(asked))]
        with store_errors(self._engine.url), self._engine.connect() as connection:
            rows = [row for part in parts for row in connection.execute(part).all()]
        return rows if asked is None else [row for row in rows if row[0] in asked]

    def _write(self, gone: sa.Delete, *rows: dict[str, Any]) -> None:
        """Delete, and insert ``rows``, in one transaction that writes first.

        It waits for its turn, and never deadlocks on a read lock.
        """
        with store_errors(self._engine.url), self._engine.begin() as connection:
            take_turn(connection)
            connection.execute(gone)
            if rows:
                connection.execute(sa.insert(trials), rows)


def _rows_of(key: str, ids: Collection[str] | None = None) -> sa.Delete:
    """What deletes the rows of these trials (default: all) of a runs folder."""
    gone = sa.delete(trials).where(trials.c.runs_dir == key)
    return gone if ids is None else gone.where(trials.c.trial_id.in_(ids))


def _key(runs_dir: Path, *, make: bool = False) -> str:
    """What tells RUNS_DIR from all others in a store that several machines share: its path, id and inode.

    The same path on another machine may be another folder, so collecting leaves an id in it; a folder
    that we may not write into has its path alone.
    """
    name, path = runs_id(Path(runs_dir), make=make), Path(runs_dir).resolve()
    return f"{path}#{name}-{path.stat().st_ino}" if name else str(path)


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Parts that fit the limits on parameters of a statement."""
    return (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))
