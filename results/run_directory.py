"""The run directory of a trial: the one place where its format is written and read."""

import os
import pwd
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

from scalevec.results import files
from scalevec.results.columns import checked_columns
from scalevec.results.files import CorruptRecordError, FileIn
from scalevec.results.masking import masked_values
from scalevec.results.opening import end_of_log, make_folder, require_no_link
from scalevec.results.runs_identity import is_of, runs_around
from scalevec.results.trial_state import OPEN_STATES as OPEN_STATES
from scalevec.results.trial_state import RESULT_STATES as RESULT_STATES
from scalevec.results.trial_state import STATES as STATES
from scalevec.results.trial_state import TrialState as TrialState
from scalevec.results.trial_state import state_of as state_of


def user_name() -> str:
    """Return the name of the user of this process; the number of one without a name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


_JOBS_OWN_LINES = "[slurm] "
"""How lines begin that the job around a worker adds to its log."""
_LOG_END_BYTES = 8192
_JOB = re.compile(r"[A-Za-z0-9?][!-~]{0,999}")
"""What executors call their jobs: never an option of a command, and nothing that only a shell understands."""
_TRIAL_ID = re.compile(r"[0-9a-f]{64}")


def is_trial_id(text: str) -> bool:
    """Whether ``text`` is a whole trial id: 64 lower-case hexadecimal digits."""
    return _TRIAL_ID.fullmatch(text) is not None


def trial_ids(runs_dir: Path) -> Iterator[str]:
    """The ids of all run directories in RUNS_DIR, sorted. Raises ``CorruptRecordError`` for a link there."""
    trials = runs_dir / "trials"
    require_no_link(trials)
    for prefix in files.names_in(trials):
        yield from (
            name for name in files.names_in(trials / prefix) if is_trial_id(name) and name[:2] == prefix
        )


def trunk_path(runs_dir: Path, trunk_id: str) -> Path:
    """The folder of a trunk's states before a cooldown, which trials share; it may be deleted any moment."""
    return runs_dir / "trunks" / trunk_id[:2] / trunk_id


@dataclass(frozen=True)
class RunDirectory:
    """All that is kept of one trial: ``RUNS_DIR/trials/ab/ab12.../``.

    Its records may be read at any time, by any process: each is written whole, or line by line. One process
    at a time writes metrics and checkpoints, the owner of the newest claim (``results.claims``). Reading
    raises :class:`CorruptRecordError` for a file that cannot be what was written.

    Args:
        path: The directory, whether it exists or not; :meth:`of` gives it for a trial id.
    """

    path: Path

    @classmethod
    def of(cls, runs_dir: Path, trial_id: str) -> Self:
        """The directory of a trial, whether it exists or not. Raises ``ValueError`` for a malformed id."""
        if not is_trial_id(trial_id):
            raise ValueError(f"trial id {trial_id!r}: 64 hexadecimal digits are expected")
        return cls(Path(runs_dir, "trials", trial_id[:2], trial_id))

    @property
    def trial_id(self) -> str:
        """All 64 digits."""
        return self.path.name

    trial_path = FileIn("trial.json")
    """Every field of the trial, semantic ones apart."""
    environment_path = FileIn("environment.json")
    """Versions, host, device, commit and command: a list, one record an attempt."""
    events_path = FileIn("events.jsonl")
    """State changes."""
    metrics_path = FileIn("metrics.jsonl")
    """What training measured, a row a logged step."""
    result_path = FileIn("result.json")
    """The result, written once."""
    checkpoints_path = FileIn("checkpoints")
    """The folder of checkpoints."""

    out_path = FileIn("out")
    """The folder that a foreign trainer writes into."""
    claims_path = FileIn("claims")
    """The folder of claims (see ``results.claims``)."""
    log_path = FileIn("log.txt")
    """What the worker printed."""
    jobs_path = FileIn("jobs.jsonl")
    """The jobs that were given to executors, and which of them are known to have ended."""

    def create(self, semantic: dict[str, Any], descriptive: dict[str, Any]) -> None:
        """Make the directory and trial.json; nothing changes where both are there already.

        The descriptive fields of the first creation stay.
        """
        make_folder(self.path)
        record = {"trial_id": self.trial_id, "semantic": semantic, "descriptive": descriptive}
        try:
            self.trial()
        except FileNotFoundError:
            files.write_json(self.trial_path, record)

    def require_no_links(self) -> None:
        """Raise ``CorruptRecordError`` where what a worker writes into was replaced by a link or the like."""
        for path in (self.log_path, self.claims_path, self.checkpoints_path, self.out_path):
            require_no_link(path)

    def trial(self) -> dict[str, Any]:
        """``{"trial_id", "semantic", "descriptive"}``. Raises ``FileNotFoundError`` before creation."""
        record = files.read_json(self.trial_path, dict)
        for name in ("semantic", "descriptive"):
            if not isinstance(record.get(name), dict):
                raise CorruptRecordError(self.trial_path, f"has no object {name!r}")
        if record.get("trial_id") != self.trial_id:
            raise CorruptRecordError(self.trial_path, f"says it is of trial {record.get('trial_id')!r}")
        return record

    def write_environment(self, record: dict[str, Any]) -> None:
        """Add the environment of one attempt; a file that cannot be read is renamed, and a new one begun."""
        try:
            earlier = self.environments()
        except CorruptRecordError:
            self.environment_path.rename(self._free_corrupt_path(self.environment_path))
            earlier = []
        files.write_json(self.environment_path, [*earlier, masked_values(record)])

    def last_log_line(self) -> str:
        """Return the last line that the worker printed, at most 300 characters; empty without one."""
        lines = end_of_log(self.log_path, _LOG_END_BYTES).splitlines()
        printed = (line.strip() for line in reversed(lines) if not line.startswith(_JOBS_OWN_LINES))
        return next((line[:300] for line in printed if line), "")

    def environments(self) -> list[dict[str, Any]]:
        """The environment of each attempt, oldest first."""
        records = files.read_json_if_any(self.environment_path, list) or []
        for number, record in enumerate(records, 1):
            if not isinstance(record, dict) or not isinstance(record.get("versions") or {}, dict):
                raise CorruptRecordError(self.environment_path, f"entry {number} is no environment")
        return records

    def append_event(self, state: str, cause: str | None = None, **details: Any) -> None:
        """Record a change of state, with the time (UTC), host and process that say so.

        ``attempt=k`` among the details is what :meth:`state` reports as the attempt.
        """
        if state not in STATES:
            raise ValueError(f"state {state!r}: expected one of {', '.join(STATES)}")
        event = {"time": files.utc_now(), "state": state, "cause": cause}
        here = {"host": socket.gethostname(), "pid": os.getpid(), **self._log_size()}
        files.append_line(self.events_path, {**event, **here, **masked_values(details)})

    def _log_size(self) -> dict[str, int]:
        """How much of the log was written before an event: its lines are found by that later."""
        try:
            return {"log_bytes": self.log_path.lstat().st_size}
        except OSError:
            return {}

    def events(self) -> list[dict[str, Any]]:
        """All changes of state, oldest first; a torn last line is left out."""
        events = files.read_lines(self.events_path)
        for number, event in enumerate(events, 1):
            if event.get("state") not in STATES:
                raise CorruptRecordError(
                    self.events_path, f"line {number} has the state {event.get('state')!r:.80}"
                )
        return events

    def state(self) -> TrialState:
        """Where the trial is: the result decides, else the last event, else it is pending."""
        return state_of(self.events(), self.result())

    def write_job(
        self,
        executor: str,
        number: str,
        token: str,
        cluster: str | None = None,
        replaces: str | None = None,
        sync: bool = True,
    ) -> None:
        """Keep that a job of an executor runs the trial, for whoever looks after the trial later.

        ``token`` is what the job's worker writes into its claim; ``cluster`` is whose queue keeps the job;
        ``replaces`` is what stood for ``number`` before it was known.
        """
        record: dict[str, Any] = {
            "executor": executor,
            "job": number,
            "token": token,
            "time": files.utc_now(),
        }
        record |= {"user": user_name(), "runs": runs_around(self.path, make=True)}
        more = {"cluster": cluster, "replaces": replaces}
        files.append_line(
            self.jobs_path, record | {name: value for name, value in more.items() if value is not None}
        )
        if sync:
            files.sync_path(self.jobs_path)

    def end_job(self, number: str) -> None:
        """Keep that a job has ended. One that ended without anybody's knowledge stays among the open ones."""
        files.append_line(self.jobs_path, {"job": number, "ended": files.utc_now()})

    def jobs(self) -> list[dict[str, Any]]:
        """Every job of this runs folder, oldest first, as :meth:`write_job` keeps it.

        It has ``"ended"`` once that is known.
        """
        return self._jobs(ours=True)

    def unreached_jobs(self) -> list[dict[str, Any]]:
        """The open jobs that were sent from another runs folder, or one that nobody knows for this one.

        Nobody here may adopt or end them (see ``results.runs_identity``).
        """
        return [job for job in self._jobs(ours=False) if "ended" not in job]

    def _jobs(self, *, ours: bool) -> list[dict[str, Any]]:
        """The jobs of this runs folder, or those of others."""
        jobs: dict[str, dict[str, Any]] = {}
        for record in files.read_lines(self.jobs_path):
            if not (isinstance(number := record.get("job"), str) and _JOB.fullmatch(number)):
                raise CorruptRecordError(self.jobs_path, f"names the job {number!r:.80}")
            replaced = jobs.pop(str(record.get("replaces")), {})
            # It is theirs who sent it, whoever found it.
            sender = {"user": replaced["user"]} if "user" in replaced else {}
            jobs[number] = jobs.get(number, {}) | record | sender
        if lacking := [job for job, record in jobs.items() if not {"executor", "token"} <= record.keys()]:
            raise CorruptRecordError(self.jobs_path, f"has job {lacking[0]!r:.80} without its executor")
        here = runs_around(self.path) if jobs else None
        return [job for job in jobs.values() if is_of(job, here) == ours]

    def open_jobs(self) -> list[dict[str, Any]]:
        """The jobs that are not known to have ended: they may wait or run, whatever the trial's state."""
        return [job for job in self.jobs() if "ended" not in job]

    def job(self) -> dict[str, Any] | None:
        """The newest job; None before the first."""
        return next(reversed(self.jobs()), None)

    def write_result(self, result: dict[str, Any]) -> None:
        """Link the result into place, once all rows and events are on the disk.

        Raises ``AlreadyWrittenError`` where another writer was first.
        """
        if result.get("status") not in RESULT_STATES:
            raise ValueError(f"result status {result.get('status')!r}: expected completed or diverged")
        self.sync_records()
        files.write_once(self.result_path, files.to_json(result, indent=1) + b"\n")

    def result(self) -> dict[str, Any] | None:
        """The result, or None before there is one. Raises ``CorruptRecordError``, as for a truncated file."""
        result = files.read_json_if_any(self.result_path, dict)
        if result is None:
            return None
        if result.get("status") not in RESULT_STATES:
            raise CorruptRecordError(self.result_path, f"has the status {result.get('status')!r:.80}")
        checked_columns(self.result_path, {name: result.get(name) for name in ("loss", "loss_validation")})
        return result

    def set_aside_result(self) -> Path:
        """Rename a corrupt result to ``result.json.corrupt-K`` and say so in the events; the new path.

        The trial is pending afterwards. Raises ``ValueError`` where the result is readable or absent:
        another process may have set it aside, and the trial may have finished since.
        """
        try:
            self.result()
        except CorruptRecordError as error:
            if error.path != self.result_path:  # a folder around it, which is a link
                raise
            aside = self._free_corrupt_path(self.result_path)
            self.result_path.rename(aside)
            self.append_event("pending", "corrupt_result", problem=error.problem, set_aside=aside.name)
            return aside
        raise ValueError(f"{self.result_path}: is not corrupt, so it is not set aside")

    def _free_corrupt_path(self, path: Path) -> Path:
        candidates = (path.with_name(f"{path.name}.corrupt-{number}") for number in count(1))
        return next(path for path in candidates if not path.exists())

    def append_metrics(self, row: dict[str, Any], permitted: Callable[[], object] | None = None) -> None:
        """Add a row of metrics, which holds its ``step``, where ``permitted`` lets it."""
        files.append_line(self.metrics_path, row, permitted)

    def sync_records(self) -> None:
        """Make the rows of metrics and the events survive a loss of power.

        To be called before a checkpoint is written: one that outlived its rows would leave a gap in them.
        """
        for path in (self.metrics_path, self.events_path, self.path):
            if path.exists():
                files.sync_path(path)

    def cut_metrics(self, step: int) -> None:
        """Drop the rows after ``step``, and damaged ones, atomically: a resumed run has no double."""
        if self.metrics_path.exists():
            rows = self.metrics_before_damage()
            files.write_lines(self.metrics_path, [row for row in rows if row["step"] <= step])

    def replace_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Make ``rows`` the only rows of metrics, atomically: those of steps that another trial has run."""
        files.write_lines(self.metrics_path, rows)

    def metrics(self) -> list[dict[str, Any]]:
        """All rows of metrics in the order of training; a torn last line is left out."""
        return self._with_steps(files.read_lines(self.metrics_path))

    def metrics_before_damage(self) -> list[dict[str, Any]]:
        """The rows up to the first damaged one, as by a loss of power: what a resumed run goes on from."""
        return self._with_steps(files.read_lines_before_damage(self.metrics_path))

    def _with_steps(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for number, row in enumerate(rows, 1):
            if not isinstance(row.get("step"), int):
                raise CorruptRecordError(self.metrics_path, f"line {number} has no integer 'step'")
            if wrong := [name for name, value in row.items() if not _is_measured(name, value)]:
                raise CorruptRecordError(self.metrics_path, f"line {number}: {wrong[0]!r:.80} is no number")
        return rows

    def last_metrics(self) -> dict[str, Any]:
        """The last row of metrics, step 0 alone before the first; no other row is read."""
        row = files.read_last_line(self.metrics_path)
        if row is None:
            return {"step": 0}
        if not isinstance(row.get("step"), int):
            raise CorruptRecordError(self.metrics_path, "its last line has no integer 'step'")
        return row

    def last_step(self) -> int:
        """The step of the last row of metrics, 0 before the first."""
        return int(self.last_metrics()["step"])


def _is_measured(name: str, value: Any) -> bool:
    """Whether what analysis reads is a number, none (not finite), or a list of such, one a layer."""
    if name not in ("tokens", "loss") and "/" not in name:
        return True
    values = value if isinstance(value, list) else [value]
    # A larger integer has no float.
    return all(item is None or (isinstance(item, int | float) and abs(item) < 2**1000) for item in values)
