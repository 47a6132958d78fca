"""Runs that other trackers kept: MLflow's folders and databases, read without it, and TensorBoard's files."""

import os
import re
import sqlite3
import stat
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from scalevec.analysis.data.read import LARGEST_FILE_BYTES
from scalevec.analysis.errors import DataError
from scalevec.orchestrator.sources.imports.column_names import PATTERNS, plain_name

Run = dict[str, Any]
STATES: Mapping[Any, str] = {1: "running", 2: "scheduled", 3: "finished", 4: "failed", 5: "killed"}
"""The numbers that a file store writes for what a database calls by name."""
LARGEST_SMALL_BYTES = 65_536
"""Of what describes a run, of a parameter, and of a cell or a row of a database."""
_MERGES = re.compile(r"""<<["']?\s*:""")
MOST_ROWS = 2_000_000
PATIENCE_S = 30.0
"""How long a database may take to answer all questions."""
VALUE = "CASE is_nan WHEN 1 THEN 'nan' ELSE value END"
RUNS = """SELECT run_uuid, name, status, start_time, end_time FROM runs
WHERE lifecycle_stage = 'active' ORDER BY start_time, run_uuid"""


def runs_in_folder(folder: Path) -> Iterator[Run]:
    """Every run below ``folder`` that was not deleted. Raises :class:`DataError`."""
    for path in (path for path in files_below(folder) if path.name == "meta.yaml"):
        about = _yaml(path)
        name = about.get("run_id") or about.get("run_uuid")
        if ("run_id" in about or "run_uuid" in about) and about.get("lifecycle_stage", "active") == "active":
            last = {metric: max(_points(kept)) for metric, kept in _entries(path.parent / "metrics")}
            given = _entries(path.parent / "params")
            params = {field: text_of(kept, LARGEST_SMALL_BYTES).strip() for field, kept in given}
            step = _last_step({metric: step for metric, (step, _, _) in last.items()})
            status = STATES.get(about.get("status"), about.get("status"))
            times = about.get("start_time"), about.get("end_time")
            values = {metric: value for metric, (_, _, value) in last.items()}
            yield _record((name, about.get("run_name"), status, *times), step, params, values)


def _record(
    about: tuple[Any, ...], step: int | None, params: Mapping[str, Any], metrics: Mapping[str, Any]
) -> Run:
    name, title, status, start, end = about
    known = all(isinstance(moment, int) and abs(moment) < 2**63 for moment in (start, end))
    seconds = (end - start) / 1000 if known else None
    return {
        "run_id": name,
        "run_name": title,
        "status": status,
        "duration_s": seconds,
        "_step": step,
        **{f"params.{key}": value for key, value in params.items()},
        **{f"metrics.{key}": value for key, value in metrics.items()},
    }


def _last_step(steps: Mapping[str, int]) -> int | None:
    """The last of the ``steps`` of metrics; of the held-out losses where there are any."""
    held_out = [steps[metric] for metric in steps if PATTERNS["loss"].fullmatch(plain_name(metric))]
    return max(held_out or steps.values(), default=None)


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files below ``folder`` by the names that they stand for: ``val/loss`` is a file in a folder."""
    if folder.is_symlink():
        raise DataError(f"{folder} is a link, which an import does not follow")
    return ((path.relative_to(folder).as_posix(), path) for path in files_below(folder))


def _points(path: Path) -> list[tuple[int, int, float]]:
    """Step, time and value of each line of a metric."""
    lines = [line.split() for line in text_of(path).splitlines() if line.strip()]
    try:
        points = [(int(line[2]) if len(line) > 2 else 0, int(line[0]), float(line[1])) for line in lines]
    except (ValueError, IndexError) as error:
        raise DataError(f"{path}: lines of time, value and step are needed ({error})") from error
    if not points:
        raise DataError(f"{path}: lines of time, value and step are needed (none is there)")
    return points


def _yaml(path: Path) -> Mapping[str, Any]:
    text = text_of(path, LARGEST_SMALL_BYTES)
    if _MERGES.search(text):  # of merges a few lines take hours
        raise DataError(f"{path} merges keys (<<:), which is not read")
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
    for beside in (path.with_name(f"{path.name}-{kind}") for kind in ("wal", "journal")):
        is_empty = beside.is_file() and not beside.is_symlink() and not beside.stat().st_size
        if (beside.is_symlink() or beside.exists()) and not is_empty:
            raise DataError(
                f"{beside}: changes that are not in the database yet; end MLflow, or copy with .backup"
            )
    # Immutable: nothing beside the file is opened, and nobody is waited for.
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    deadline = time.monotonic() + PATIENCE_S
    try:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_SMALL_BYTES)
        database.set_progress_handler(lambda: time.monotonic() > deadline, 1_000)
        database.execute("PRAGMA trusted_schema = OFF")
        # A view, or a virtual table, may have no end.
        plain = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
        if lacking := sorted(set(tables) - {name for (name,) in database.execute(plain)}):
            raise DataError(f"{path} is no database of MLflow: it has no table {', '.join(lacking)}")
        yield database
    except sqlite3.Error as error:
        raise DataError(f"{path} is no database of MLflow, or takes too long: {error}") from error
    finally:
        database.close()


def runs_in_database(path: Path) -> Iterator[Run]:
    """Every run in MLflow's own SQLite file that was not deleted. Raises :class:`DataError`."""
    metrics, params, steps = (defaultdict[str, Run](dict) for _ in range(3))
    with _opened(path, "runs", "params", "latest_metrics") as database:
        latest = f"SELECT run_uuid, key, {VALUE}, step FROM latest_metrics"
        for run, key, value, step in _rows(path, database, latest):
            metrics[run][key], steps[run][key] = value, step or 0
        for run, key, value in _rows(path, database, "SELECT run_uuid, key, value FROM params"):
            params[run][key] = value
        runs = list(_rows(path, database, RUNS))
    for about in runs:
        yield _record(about, _last_step(steps[about[0]]), params[about[0]], metrics[about[0]])


def _rows(path: Path, database: sqlite3.Connection, question: str) -> Iterator[tuple[Any, ...]]:
    size = 0
    for number, row in enumerate(database.execute(question)):
        size += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if number >= MOST_ROWS or size > LARGEST_FILE_BYTES:
            limits = f"{MOST_ROWS} rows and {LARGEST_FILE_BYTES} bytes of text"
            raise DataError(f"{path} has a larger table than is read, {limits}; import a part of it")
        yield row


LARGEST_EVENTS_BYTES = 2_000_000_000
MARK = "tfevents"
_HYPERPARAMETERS = "_hparams_/session_start_info"


def files_below(folder: Path) -> Iterator[Path]:
    """Whatever is below ``folder`` but folders, in order; links to folders are not followed."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names))


def text_of(path: Path, largest: int = LARGEST_FILE_BYTES) -> str:
    """The text of a regular file of at most ``largest`` bytes. Raises :class:`DataError`."""
    try:
        # A pipe would be waited for, and a link may have been put there since anybody looked.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as stream:  # noqa: PTH123 (a descriptor)
            _require_regular(path, os.fstat(descriptor), largest)
            return stream.read(largest).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} cannot be read as UTF-8 text: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); links are not followed") from error


def _require_regular(path: Path, status: os.stat_result, largest: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path} is no regular file; links, pipes and devices are not read")
    if status.st_size > largest:
        raise DataError(f"{path} has {status.st_size} bytes; allowed: up to {largest}")


def event_files(folder: Path) -> list[Path]:
    """TensorBoard's event files below ``folder``."""
    return [path for path in files_below(folder) if MARK in path.name]


def runs_in_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Every folder below ``folder`` with event files; its path is the name of the run.

    Raises :class:`DataError` without TensorBoard.
    """
    for run, events in _loaded(folder):
        points = list(_scalars(events))
        last: dict[str, Any] = {tag: value for tag, _, value in points}
        step = _last_step({tag: step for tag, step, _ in points})
        yield {"run": run, "_step": step, **last, **_hyperparameters(events)}


def _loaded(folder: Path) -> Iterator[tuple[str, Any]]:
    """The name of each run and its events, of each tag the last one."""
    if find_spec("tensorboard") is None:
        raise DataError(f"{folder} has event files; to read them: pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = event_files(folder)
    for path in files:  # TensorBoard opens whatever is called so
        _require_regular(path, path.lstat(), LARGEST_EVENTS_BYTES)
    for run in sorted({path.parent for path in files}):
        events = EventAccumulator(str(run), size_guidance={"scalars": 1, "tensors": 1})
        events.Reload()
        yield run.relative_to(folder).as_posix(), events


def _scalars(events: Any) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value of each scalar, in the form of earlier versions or of today's."""
    from tensorboard.util.tensor_util import make_ndarray

    for tag in events.Tags()["scalars"]:
        yield from ((tag, event.step, event.value) for event in events.Scalars(tag))
    for tag in events.Tags()["tensors"]:
        for event in events.Tensors(tag):
            array = make_ndarray(event.tensor_proto)
            if array.size == 1 and array.dtype.kind == "f":
                yield tag, event.step, array.item()


def _hyperparameters(events: Any) -> dict[str, Any]:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    try:
        content = events.PluginTagToContent("hparams")[_HYPERPARAMETERS]
    except KeyError:  # a run without any
        return {}
    given = HParamsPluginData.FromString(content).session_start_info.hparams
    return {f"hparams.{name}": getattr(value, value.WhichOneof("kind")) for name, value in given.items()}
