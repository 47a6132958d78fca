"""The folder of a sweep: ``RUNS_DIR/sweeps/NAME/``, what was asked and what was decided."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from scalevec.results import files
from scalevec.results.columns import check_column, check_columns, checked
from scalevec.results.files import CorruptRecordError, FileIn
from scalevec.results.opening import make_folder, require_no_link
from scalevec.results.run_directory import is_trial_id

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OF_CELL: Mapping[str, type] = {"arm": str, "stage": str, "rung": str}
_OF_TRIAL = ("trial_id", "seed", "stream", "cluster", "learning_rate")
"""What differs among the trials of a cell; the rest of an entry stands once for all of them."""
MOST_FIELDS = 10**7
"""Of all trials together, which repeat in memory what is written once for their cell: 500 MB."""
_AGAIN = "stands_again"
"""When a list of predictions came back after another one had taken its place."""


def sweep_names(runs_dir: Path) -> list[str]:
    """The sweeps that RUNS_DIR knows, sorted. Raises ``CorruptRecordError`` for a link there."""
    require_no_link(sweeps := Path(runs_dir) / "sweeps")
    return [name for name in files.names_in(sweeps) if _NAME.fullmatch(name)]


@dataclass(frozen=True)
class SweepFolder:
    """What is kept of one sweep. Each reader gives None before the first writing.

    Writing is atomic and creates the folder; reading raises ``CorruptRecordError``.
    """

    path: Path

    @classmethod
    def of(cls, runs_dir: Path, name: str) -> "SweepFolder":
        """The folder of a sweep, existing or not. Raises ``ValueError`` for a name it cannot have."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"sweep name {name!r}: expected up to 100 letters, digits, '.', '_' and '-', "
                "the first a letter or digit"
            )
        return cls(Path(runs_dir) / "sweeps" / name)

    @property
    def name(self) -> str:
        """The sweep's name."""
        return self.path.name

    sweep_path = FileIn("sweep.yaml")
    """The sweep file as it was given."""
    resolved_path = FileIn("resolved.json")
    """The sweep with every default in its place."""
    members_path = FileIn("members.json")
    """The trials of the sweep."""
    to_come_path = FileIn("to_come.json")
    """The compared trials that have no names yet, as tuning is still to choose their rates."""
    tuning_path = FileIn("tuning.json")
    """The frozen choices of tuning."""
    verdicts_path = FileIn("verdicts.json")
    """The verdicts that were given, each with the pairs it had."""
    question_path = FileIn("question.json")
    """What the comparison asks, as it stood before the first result."""
    predictions_path = FileIn("predictions")
    """A file for each list of predictions, named by its hash."""
    dropped_path = FileIn("dropped.json")
    """The trials that the sweep file left out after they had been started."""
    report_path = FileIn("report.html")
    """The report."""
    origin_path = FileIn("origin.json")
    """The folder that the sweep file's relative paths count from."""

    cancelled_path = FileIn("cancelled.json")
    """There while the sweep is cancelled: nothing more is sent for it until a person asks for it again."""

    def call_off(self) -> None:
        """Forbid that anything more is sent for the sweep."""
        self._write(self.cancelled_path, {"time": files.utc_now()})

    def is_called_off(self) -> bool:
        """Whether the sweep was cancelled and nobody has asked for it since."""
        return self.cancelled_path.exists()

    def ask_again(self) -> None:
        """A person asks for the sweep: that it was cancelled counts no more."""
        self.cancelled_path.unlink(missing_ok=True)

    def write_sweep(self, content: bytes, origin: Path) -> None:
        """Keep the sweep file, byte for byte, and the folder ``origin`` that it was read in."""
        make_folder(self.path)
        files.write_atomic(self.sweep_path, content)
        self._write(self.origin_path, {"folder": str(origin.resolve())})

    def origin(self) -> Path | None:
        """The folder of the sweep file that was given."""
        origin = files.read_json_if_any(self.origin_path, dict)
        if origin is None:
            return None
        if not isinstance(folder := origin.get("folder"), str) or "\0" in folder:
            raise CorruptRecordError(self.origin_path, f"has folder {folder!r:.80}")
        return Path(folder)

    def sweep(self) -> bytes | None:
        """The sweep file as it was given."""
        return files.read_bytes_if_any(self.sweep_path)

    def write_resolved(self, resolved: dict[str, Any]) -> None:
        """Keep the sweep with its defaults."""
        self._write(self.resolved_path, resolved)

    def resolved(self) -> dict[str, Any] | None:
        """The sweep with its defaults."""
        return files.read_json_if_any(self.resolved_path, dict)

    def write_members(self, members: list[dict[str, Any]]) -> None:
        """Keep the list of trials."""
        self._write_trials(self.members_path, members)

    def members(self) -> list[dict[str, Any]] | None:
        """The list of trials."""
        trials = _trials_in(self.members_path)
        return None if trials is None else trials.entries()

    def members_by_cells(self) -> "TrialsByCells":
        """The trials of the sweep, without an object for each of them; none before the first writing."""
        return _trials_in(self.members_path) or TrialsByCells()

    def write_to_come(self, trials: list[dict[str, Any]]) -> None:
        """Keep the compared trials that have no names yet."""
        if trials or self.to_come_path.exists():
            self._write_trials(self.to_come_path, trials)

    def to_come(self) -> "TrialsByCells":
        """The compared trials that have no names yet."""
        return _trials_in(self.to_come_path) or TrialsByCells()

    def write_tuning(self, tuning: dict[str, Any]) -> None:
        """Freeze the choices of tuning."""
        self._write(self.tuning_path, tuning)

    def tuning(self) -> dict[str, Any] | None:
        """The frozen choices of tuning."""
        return files.read_json_if_any(self.tuning_path, dict)

    def verdicts(self) -> list[dict[str, Any]]:
        """The verdicts that were given, oldest first."""
        kinds = {"reference": str, "arm": str, "verdict": str, "pairs": list}
        return self._entries(self.verdicts_path, kinds)

    def add_verdicts(self, verdicts: list[dict[str, Any]]) -> None:
        """Keep further verdicts; those that were given stay."""
        self._write(self.verdicts_path, [*self.verdicts(), *verdicts])

    def keep_predictions(self, predictions: list[dict[str, Any]], known: list[dict[str, int]]) -> None:
        """Keep a list of predictions with its hash and the time, once: whoever comes later changes nothing.

        Another list gets a file of its own; one that comes back stands again, with the time of that beside
        its own. ``known`` says of each prediction how many of the trials that it speaks of were
        ``with_result`` by now.
        """
        sha256 = _hash_of(predictions)
        path = self.predictions_path / f"{sha256}.json"
        _keep_once(path, sha256, {"predictions": predictions, "known": known})
        with suppress(CorruptRecordError):  # one that was edited is told of where it is read
            if self.predictions()[-1]["sha256"] != sha256:
                files.write_json(path, _predictions_in(path) | {_AGAIN: files.utc_now()})

    def keep_question(self, question: dict[str, Any]) -> None:
        """Keep what the comparison asks with its hash and the time, once: another question shows by it."""
        _keep_once(self.question_path, _hash_of(question), {"question": question})

    def question(self) -> dict[str, Any] | None:
        """What was kept of the question; None where nothing was, and an edited one is refused."""
        record = files.read_json_if_any(self.question_path, dict)
        if record is None:
            return None
        question = record.get("question")
        if not isinstance(question, dict) or record.get("sha256") != _hash_of(question):
            raise CorruptRecordError(self.question_path, "was edited after it was kept: its hash is another")
        return question

    def predictions(self) -> list[dict[str, Any]]:
        """The lists of predictions that were kept, the standing one last; one that was edited is refused."""
        paths = [self.predictions_path / name for name in files.names_in(self.predictions_path)]
        records = [_predictions_in(path) for path in paths if path.suffix == ".json"]
        return sorted(records, key=lambda record: (record.get(_AGAIN, record["at"]), record["sha256"]))

    def dropped(self) -> list[dict[str, Any]]:
        """The trials that the sweep file left out after they had been started."""
        kinds = {"trial_id": str, "arm": str, "rung": str, "state": str}
        return self._entries(self.dropped_path, kinds)

    def _write_trials(self, path: Path, trials: Iterable[Mapping[str, Any]]) -> None:
        """Keep a list of trials: a line for each cell, then one for each column of the trials."""
        cells: dict[bytes, int] = {}
        columns: dict[str, list[Any]] = {name: [] for name in ("cell", *_OF_TRIAL)}
        for trial in trials:
            cell = files.to_json({name: value for name, value in trial.items() if name not in _OF_TRIAL})
            columns["cell"].append(cells.setdefault(cell, len(cells)))
            for name in _OF_TRIAL:
                columns[name].append(trial.get(name))
        told = {name: values for name, values in columns.items() if set(values) != {None}}
        lines = (files.to_json({name: values})[1:-1] for name, values in told.items())
        make_folder(self.path)
        parts = (b",\n".join(each) for each in (cells, lines))
        files.write_atomic(path, b'{"cells": [\n%b\n],\n"trials": {\n%b\n}}\n' % tuple(parts))

    def _entries(self, path: Path, kinds: Mapping[str, type]) -> list[dict[str, Any]]:
        """The objects in ``path``, checked (:func:`_check_entries`)."""
        entries = files.read_json_if_any(path, list) or []
        _check_entries(path, entries, kinds)
        return entries

    def write_dropped(self, dropped: list[dict[str, Any]]) -> None:
        """Keep the whole list of dropped trials."""
        self._write(self.dropped_path, dropped)

    def _write(self, path: Path, value: Any) -> None:
        make_folder(self.path)
        files.write_json(path, value)


@dataclass(frozen=True)
class TrialsByCells:
    """A list of trials: what those of a cell share stands once for all of them.

    ``columns`` hold a value for each trial: its number among ``cells`` as "cell", and what is its own.
    """

    cells: Sequence[dict[str, Any]] = ()
    columns: Mapping[str, list[Any]] = field(default_factory=lambda: {"cell": [], "trial_id": []})

    @property
    def ids(self) -> list[str]:
        """The names of the trials; arms that are identical by construction share theirs."""
        return self.columns["trial_id"]

    def cells_of(self) -> Iterator[dict[str, Any]]:
        """Yield the cell of each trial, the very same object for those of one cell."""
        return map(self.cells.__getitem__, self.columns["cell"])

    def entries(self) -> list[dict[str, Any]]:
        """Each trial as one object."""
        return list(map(self.entry, range(len(self.ids))))

    def entry(self, number: int) -> dict[str, Any]:
        """The trial of this number as one object."""
        values = {name: column[number] for name, column in self.columns.items()}
        return {**self.cells[values.pop("cell")], **values}


def _trials_in(path: Path) -> TrialsByCells | None:
    record = files.read_json_if_any(path, dict)
    if record is None:
        return None
    cells, columns = record.get("cells"), record.get("trials")
    if not isinstance(cells, list) or not _are_columns(columns):
        raise CorruptRecordError(path, "is no list of trials by cells; `scalevec run` writes it again")
    _check_entries(path, cells, _OF_CELL, "cell")
    _check_settings(path, [cell.get(name, {}) for name in ("setting", "fields") for cell in cells])
    if len(columns["cell"]) * max(map(len, cells), default=0) > MOST_FIELDS:
        raise CorruptRecordError(path, f"has more than {MOST_FIELDS:,} fields of trials")
    for number, cell in enumerate(columns["cell"], 1):
        if type(cell) is not int or not 0 <= cell < len(cells):
            raise CorruptRecordError(path, f"trial {number} is of no cell")
    for name in columns.keys() - {"cell"}:
        check_column(path, name, columns[name])
    for number, trial_id in enumerate(columns["trial_id"], 1):
        if not is_trial_id(trial_id or ""):
            raise CorruptRecordError(path, f"trial {number} has no name")
    for cell in cells:
        cell.setdefault("setting", {})
    return TrialsByCells(cells, columns)


def _are_columns(columns: Any) -> TypeGuard[dict[str, list[Any]]]:
    """Whether these are lists of one length, of the columns of trials and of no others."""
    if not isinstance(columns, dict) or not all(isinstance(values, list) for values in columns.values()):
        return False
    is_whole = {"cell", "trial_id"} <= columns.keys() <= {"cell", *_OF_TRIAL}
    return is_whole and len(set(map(len, columns.values()))) == 1


def _check_entries(path: Path, entries: list[Any], kinds: Mapping[str, type], what: str = "entry") -> None:
    """Each is an object that has a value of its kind under each name of ``kinds``.

    What is called like a column of the results is a value that the results can hold.
    """
    for number, entry in enumerate(entries, 1):
        named = entry if isinstance(entry, dict) else {}
        if wrong := [name for name, kind in kinds.items() if not isinstance(named.get(name), kind)]:
            raise CorruptRecordError(path, f"{what} {number} has no {wrong[0]!r}")
        if not is_trial_id(named.get("trial_id", "0" * 64)) or not _are_pairs(named.get("pairs", [])):
            raise CorruptRecordError(path, f"{what} {number} names no trials")
    check_columns(path, entries)


def _check_settings(path: Path, settings: list[Any]) -> None:
    for setting in settings:
        if not isinstance(setting, dict):
            raise CorruptRecordError(path, f"has setting {setting!r:.80}, not an object")
    named = [item for setting in settings for item in setting.items() if type(item[1]) in (int, float, str)]
    for name, kind, value in {(name, type(value), value) for name, value in named}:
        checked(path, name, kind, value)


def _are_pairs(pairs: list[Any]) -> bool:
    """Whether each entry is a list of two names."""
    return all(isinstance(pair, list) and list(map(type, pair)) == [str, str] for pair in pairs)


def _hash_of(plan: Any) -> str:
    """SHA-256 of the canonical JSON of what was planned, in hexadecimal digits."""
    canonical = json.dumps(plan, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _keep_once(path: Path, sha256: str, plan: Mapping[str, Any]) -> None:
    """Keep what was planned with its hash and the time, unless it is kept already."""
    make_folder(path.parent)
    with suppress(files.AlreadyWrittenError):
        files.write_once(
            path, files.to_json({"at": files.utc_now(), "sha256": sha256, **plan}, indent=1) + b"\n"
        )


def _predictions_in(path: Path) -> dict[str, Any]:
    record = files.read_json(path, dict)
    predictions, known = record.get("predictions"), record.get("known")
    are_lists = isinstance(predictions, list) and isinstance(known, list) and len(predictions) == len(known)
    if not (are_lists and isinstance(record.get("at"), str)):
        raise CorruptRecordError(path, "is no list of predictions with its time")
    if not record.get("sha256") == _hash_of(predictions) == path.stem:
        raise CorruptRecordError(path, "was edited after it was kept: its hash is another")
    return record
