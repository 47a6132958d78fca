"""Runs that MLflow kept, read without it: a folder ``mlruns``, or the SQLite file of its database."""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from scalevec.analysis.data.table_file import LARGEST_FILE_BYTES
from scalevec.analysis.errors import DataError
from scalevec.analysis.imports.foreign_files import files_below, text_of

Run = dict[str, Any]
STATES: Mapping[Any, str] = {1: "running", 2: "scheduled", 3: "finished", 4: "failed", 5: "killed"}
"""The numbers that a file store writes for what a database calls by name."""

LARGEST_SMALL_BYTES = 65_536
"""Of what describes a run, of a parameter, and of a cell or a row of a database."""
MOST_ROWS = 2_000_000
PATIENCE_S = 30.0
"""How long a database may take to answer all questions."""
METRICS = "SELECT run_uuid, key, CASE is_nan WHEN 1 THEN 'nan' ELSE value END FROM latest_metrics"
PARAMS = "SELECT run_uuid, key, value FROM params"
POINTS = "SELECT run_uuid, step, key, CASE is_nan WHEN 1 THEN 'nan' ELSE value END FROM metrics"
PLAIN_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
STEPS = "SELECT run_uuid, max(step) FROM latest_metrics GROUP BY run_uuid"
RUNS = """SELECT run_uuid, name, status, start_time, end_time FROM runs
WHERE lifecycle_stage = 'active' ORDER BY start_time, run_uuid"""


def runs_in_folder(folder: Path) -> Iterator[Run]:
    """Every run below ``folder`` that was not deleted. Raises :class:`DataError`."""
    for path in _descriptions(folder):
        about = _yaml(path)
        is_run = "run_id" in about or "run_uuid" in about
        if is_run and about.get("lifecycle_stage", "active") == "active":
            yield _run(path.parent, about)


def _descriptions(folder: Path) -> Iterator[Path]:
    return (path for path in files_below(folder) if path.name == "meta.yaml")


def _run(folder: Path, about: Mapping[str, Any]) -> Run:
    metrics = {name: max(_points(path)) for name, path in _entries(folder / "metrics")}
    params = {name: text_of(path, LARGEST_SMALL_BYTES).strip() for name, path in _entries(folder / "params")}
    name, status = about.get("run_id") or about.get("run_uuid"), about.get("status")
    times = about.get("start_time"), about.get("end_time")
    step = max((step for step, _, _ in metrics.values()), default=None)
    values = {name: value for name, (_, _, value) in metrics.items()}
    return _record((name, about.get("run_name"), STATES.get(status, status), *times), step, params, values)


def _record(
    about: tuple[Any, ...], step: int | None, params: Mapping[str, Any], metrics: Mapping[str, Any]
) -> Run:
    name, title, status, start, end = about
    known = all(isinstance(moment, int) and abs(moment) < 2**63 for moment in (start, end))
    return {
        "run_id": name,
        "run_name": title,
        "status": status,
        "duration_s": (end - start) / 1000 if known else None,
        "_step": step,
        **{f"params.{key}": value for key, value in params.items()},
        **{f"metrics.{key}": value for key, value in metrics.items()},
    }


def history_in_folder(folder: Path) -> Iterator[Run]:
    """What every run below ``folder`` measured, a record per value. Raises :class:`DataError`."""
    for path in _descriptions(folder):
        for name, metric in _entries(path.parent / "metrics"):
            for step, _, value in _points(metric):
                yield {"run_id": path.parent.name, "_step": step, name: value}


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files below ``folder`` by the names that they stand for: ``val/loss`` is a file in a folder."""
    if folder.is_symlink():
        raise DataError(f"{folder} is a link, which an import does not follow")
    return ((path.relative_to(folder).as_posix(), path) for path in files_below(folder))


def _points(path: Path) -> list[tuple[int, int, float]]:
    """Step, time and value of each line of a metric."""
    try:
        lines = [line.split() for line in text_of(path).splitlines() if line.strip()]
        if not lines:
            raise ValueError("none is there")
        return [(int(line[2]) if len(line) > 2 else 0, int(line[0]), float(line[1])) for line in lines]
    except DataError:
        raise
    except (ValueError, IndexError) as error:
        raise DataError(f"{path}: lines of time, value and step are needed ({error})") from error


def _yaml(path: Path) -> Mapping[str, Any]:
    text = text_of(path, LARGEST_SMALL_BYTES)
    try:
        content = YAML(typ="safe", pure=True).load(text)
    except (ValueError, TypeError, LookupError, RecursionError, AssertionError, YAMLError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    # A few lines with aliases may stand for any number of nested values.
    plain = content.items() if isinstance(content, dict) else ()
    return {name: value for name, value in plain if isinstance(value, str | int | float)}


@contextmanager
def _opened(path: Path, *tables: str) -> Iterator[sqlite3.Connection]:
    """MLflow's SQLite file, which has these ``tables``. Raises :class:`DataError`."""
    for name in ("-wal", "-journal"):
        beside = path.with_name(f"{path.name}{name}")
        if beside.is_symlink() or beside.exists():
            _require_nothing_in(beside)
    # Immutable: nothing beside the file is opened, and nobody is waited for.
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    deadline = time.monotonic() + PATIENCE_S
    try:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_SMALL_BYTES)
        database.set_progress_handler(lambda: time.monotonic() > deadline, 1_000)
        database.execute("PRAGMA trusted_schema = OFF")
        # A view, or a virtual table, may have no end.
        names = {name for (name,) in database.execute(PLAIN_TABLES)}
        if lacking := sorted(set(tables) - names):
            raise DataError(f"{path} is no database of MLflow: it has no table {', '.join(lacking)}")
        yield database
    except sqlite3.Error as error:
        raise DataError(f"{path} is no database of MLflow, or takes too long: {error}") from error
    finally:
        database.close()


def _require_nothing_in(beside: Path) -> None:
    """An immutable file is read without what SQLite keeps beside it."""
    if beside.is_symlink() or not beside.is_file() or beside.stat().st_size:
        raise DataError(
            f"{beside}: changes that are not in the database yet; end MLflow, or copy with .backup"
        )


def runs_in_database(path: Path) -> Iterator[Run]:
    """Every run in MLflow's own SQLite file that was not deleted. Raises :class:`DataError`."""
    with _opened(path, "runs", "params", "latest_metrics") as database:
        metrics, params = (_by_run(_rows(path, database, question)) for question in (METRICS, PARAMS))
        steps = dict(_rows(path, database, STEPS))
        runs = list(_rows(path, database, RUNS))
    for about in runs:
        name = about[0]
        yield _record(about, steps.get(name), params.get(name, {}), metrics.get(name, {}))


def history_in_database(path: Path) -> Iterator[Run]:
    """What every run measured, a record per value. Raises :class:`DataError`."""
    with _opened(path, "metrics") as database:
        for run, step, key, value in _rows(path, database, POINTS):
            yield {"run_id": run, "_step": step, key: value}


def _rows(path: Path, database: sqlite3.Connection, question: str) -> Iterator[tuple[Any, ...]]:
    size = 0
    for number, row in enumerate(database.execute(question)):
        size += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if number >= MOST_ROWS or size > LARGEST_FILE_BYTES:
            limits = f"{MOST_ROWS} rows and {LARGEST_FILE_BYTES} bytes of text"
            raise DataError(f"{path} has a larger table than is read, {limits}; import a part of it")
        yield row


def _by_run(rows: Iterable[tuple[Any, ...]]) -> dict[str, dict[str, Any]]:
    answers: dict[str, dict[str, Any]] = {}
    for run, key, value in rows:
        answers.setdefault(run, {})[key] = value
    return answers
