"""Runs that MLflow kept, read without it: a folder ``mlruns``, or the SQLite file of its database."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from scalevec.analysis.errors import DataError

Run = dict[str, Any]
STATES: Mapping[Any, str] = {1: "running", 2: "scheduled", 3: "finished", 4: "failed", 5: "killed"}
"""The numbers that a file store writes for what a database calls by name."""

METRICS = "SELECT run_uuid, key, CASE is_nan WHEN 1 THEN 'nan' ELSE value END FROM latest_metrics"
PARAMS = "SELECT run_uuid, key, value FROM params"
POINTS = "SELECT run_uuid, step, key, CASE is_nan WHEN 1 THEN 'nan' ELSE value END FROM metrics"
STEPS = "SELECT run_uuid, max(step) FROM latest_metrics GROUP BY run_uuid"
RUNS = """SELECT run_uuid, name, status, start_time, end_time FROM runs
WHERE lifecycle_stage = 'active' ORDER BY start_time, run_uuid"""


def runs_in_folder(folder: Path) -> Iterator[Run]:
    """Every run below ``folder`` that was not deleted. Raises :class:`DataError`."""
    for path in sorted(folder.rglob("meta.yaml")):
        about = _yaml(path)
        is_run = "run_id" in about or "run_uuid" in about
        if is_run and about.get("lifecycle_stage", "active") == "active":
            yield _run(path.parent, about)


def _run(folder: Path, about: Mapping[str, Any]) -> Run:
    metrics = {name: max(_points(path)) for name, path in _entries(folder / "metrics")}
    params = {name: path.read_text(encoding="utf-8").strip() for name, path in _entries(folder / "params")}
    name, status = about.get("run_id") or about["run_uuid"], about.get("status")
    times = about.get("start_time"), about.get("end_time")
    step = max((step for step, _, _ in metrics.values()), default=None)
    values = {name: value for name, (_, _, value) in metrics.items()}
    return _record((name, about.get("run_name"), STATES.get(status, status), *times), step, params, values)


def _record(
    about: tuple[Any, ...], step: int | None, params: Mapping[str, Any], metrics: Mapping[str, Any]
) -> Run:
    name, title, status, start, end = about
    known = isinstance(start, int) and isinstance(end, int)
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
    for path in sorted(folder.rglob("meta.yaml")):
        for name, metric in _entries(path.parent / "metrics"):
            for step, _, value in _points(metric):
                yield {"run_id": path.parent.name, "_step": step, name: value}


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files below ``folder`` by the names that they stand for: ``val/loss`` is a file in a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def _points(path: Path) -> list[tuple[int, int, float]]:
    """Step, time and value of each line of a metric."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not lines:
            raise ValueError("none is there")
        return [(int(line[2]) if len(line) > 2 else 0, int(line[0]), float(line[1])) for line in lines]
    except (OSError, ValueError, IndexError) as error:
        raise DataError(f"{path}: lines of time, value and step are needed ({error})") from error


def _yaml(path: Path) -> Mapping[str, Any]:
    try:
        content = YAML(typ="safe", pure=True).load(path)
    except (OSError, ValueError, RecursionError, AssertionError, YAMLError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return content if isinstance(content, dict) else {}


def runs_in_database(path: Path) -> Iterator[Run]:
    """Every run in MLflow's own SQLite file that was not deleted. Raises :class:`DataError`."""
    try:
        with closing(sqlite3.connect(f"file:{path.resolve()}?mode=ro", uri=True)) as database:
            metrics, params = _by_run(database, METRICS), _by_run(database, PARAMS)
            steps = dict(database.execute(STEPS))
            runs = database.execute(RUNS).fetchall()
    except sqlite3.Error as error:
        raise DataError(f"{path} is no database of MLflow: {error}") from error
    for about in runs:
        name = about[0]
        yield _record(about, steps.get(name), params.get(name, {}), metrics.get(name, {}))


def history_in_database(path: Path) -> Iterator[Run]:
    """What every run measured, a record per value. Raises :class:`DataError`."""
    try:
        with closing(sqlite3.connect(f"file:{path.resolve()}?mode=ro", uri=True)) as database:
            for run, step, key, value in database.execute(POINTS):
                yield {"run_id": run, "_step": step, key: value}
    except sqlite3.Error as error:
        raise DataError(f"{path} is no database of MLflow: {error}") from error


def _by_run(database: sqlite3.Connection, question: str) -> dict[str, dict[str, Any]]:
    answers: dict[str, dict[str, Any]] = {}
    for run, key, value in database.execute(question):
        answers.setdefault(run, {})[key] = value
    return answers
