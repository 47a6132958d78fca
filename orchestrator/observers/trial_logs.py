"""Training curves where people already look: metrics of running trials, passed on to other trackers.

It reads the run directories from the scheduler's process, in a thread of its own: no trial knows of it, on no
executor, and what fails or hangs there costs the log alone.
"""

import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from scalevec.orchestrator.attempts.jobs import Task
from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError, read_or_else
from scalevec.orchestrator.private import private_folder
from scalevec.results.extras import install_command
from scalevec.results.files import MOST_BYTES_OF_A_LINE, read_json_if_any, write_json
from scalevec.results.opening import make_folder, open_to_read
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.errors import unknown

GROUP = "scalevec.loggers"
"""Entry points of this group name further kinds of logs: ``module:factory``, as those of :data:`LOGS`."""
LOGS = {
    "tensorboard": f"{__name__}:TensorBoardLog",
    "wandb": f"{__name__}:WandbLog",
    "mlflow": f"{__name__}:MlflowLog",
}
"""Each imports the library that it needs when it is built."""
POLL_S = 2.0
PATIENCE_S = 30.0
"""How long the end of a sweep waits for what is still to be passed on."""
LOGGED = "logged.json"
"""In the folder of a log: the last step of each trial that was passed on."""
TAG = "scalevec.trial_id"
_MLFLOW_STATUS = {"completed": "FINISHED", "diverged": "FINISHED", "cancelled": "KILLED"}


@dataclass(frozen=True)
class LoggedTrial:
    """A trial as trackers show it; ``fields`` are its semantic fields, nested names joined by dots."""

    trial_id: str
    label: str
    sweep: str
    fields: Mapping[str, Any]


class TrialLog(Protocol):
    """What trials are logged to; built with the sweep's name and a folder that it may write to."""

    def begin(self, trial: LoggedTrial) -> None:
        """A trial runs, for the first time or again."""

    def add(self, trial: LoggedTrial, step: int, values: Mapping[str, float]) -> None:
        """Add the finite ``values`` of one step; steps of a trial only grow."""

    def end(self, trial: LoggedTrial, status: str, result: Mapping[str, float]) -> None:
        """The trial is over: ``completed``, ``diverged``, ``failed`` or ``cancelled``."""

    def close(self) -> None:
        """Nothing more will come."""


def places_of_logs(name: str, where: str) -> dict[str, str]:
    """The class of each log that there is; raises ``InvalidInputError`` unless ``name`` is among them."""
    places = {point.name: point.value for point in entry_points(group=GROUP)} | LOGS
    if name not in places:
        raise InvalidInputError(f"{where} is {name!r}: {unknown(name, places)}")
    return places


def log_named(name: str, sweep: str, folder: Path) -> TrialLog:
    """Return the log ``name`` for ``sweep``.

    Raises ``InvalidInputError`` for another name, ``MissingRequirementError`` where its library is not there.
    """
    places = places_of_logs(name, "--log")
    try:
        make_folder(folder)
        log: TrialLog = resolve_name(places[name])(sweep, folder)
    except ImportError as error:
        known: Any = name
        advice = install_command(known) if name in LOGS else "install the package that has it"
        raise MissingRequirementError(f"--log {name} cannot be loaded ({error}): {advice}") from None
    return log


class MetricsTail:
    """The new rows of a trial's metrics; it may be cut back, or replaced, when an attempt goes on."""

    def __init__(self, path: Path, last_step: int = -1) -> None:
        self.path, self.last_step = path, last_step
        self._inode = self._offset = 0

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of later steps than the last one."""
        try:
            with open_to_read(self.path) as file:
                content = self._unread(file)
        except FileNotFoundError:
            return
        whole, newline, _ = content.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        for line in whole.splitlines():
            row = json.loads(line)
            if row["step"] > self.last_step:
                self.last_step = row["step"]
                yield row

    def _unread(self, file: Any) -> bytes:
        now = os.fstat(file.fileno())
        if now.st_ino != self._inode or now.st_size < self._offset:
            self._inode, self._offset = now.st_ino, 0
        file.seek(self._offset)
        content: bytes = file.read(MOST_BYTES_OF_A_LINE)
        return content


class TrialLogs:
    """Follows the trials of a sweep and passes their metrics on to one :class:`TrialLog`."""

    def __init__(self, name: str, sweep: str, runs_dir: Path, say: Callable[[str], None]) -> None:
        self.name, self.sweep, self.runs_dir, self.say = name, sweep, runs_dir, say
        folder = runs_dir / "sweeps" / sweep / name
        self.log = log_named(name, sweep, folder)
        self.problem = ""
        self._kept = folder / LOGGED
        self._news: SimpleQueue[tuple[Task, str]] = SimpleQueue()
        self._tails: dict[str, tuple[LoggedTrial, MetricsTail]] = {}
        self._is_told, self._closing = False, threading.Event()
        # Where they cannot be read, some steps are logged twice.
        self._steps: dict[str, int] = read_or_else(lambda: read_json_if_any(self._kept, dict) or {}, {})
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"log to {name}")
        self._thread.start()

    def started(self, task: Task) -> None:
        """An attempt begins: follow its metrics."""
        self._news.put((task, "running"))

    def ended(self, task: Task, status: str) -> None:
        """A trial is finished or given up: pass on what is left of its metrics, and the result."""
        self._news.put((task, status))

    def tick(self) -> None:
        """Say once what went wrong; called several times a second."""
        if self.problem and not self._is_told:
            self._is_told = True
            self.say(f"warning: --log {self.name}: {self.problem}; nothing more is logged, the trials go on")

    def finished(self) -> None:
        """The sweep is over, or this run of it is: wait for what is left to be passed on, not for ever."""
        self._closing.set()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            self.problem = self.problem or f"did not end within {PATIENCE_S:g} s"
        self.tick()

    def _work(self) -> None:
        try:
            while not self._closing.wait(POLL_S):
                self._pass_on()
            self._pass_on()
            self.log.close()
        except Exception as error:  # noqa: BLE001 (a tracker may raise anything)
            self.problem = f"{type(error).__name__}: {error}"

    def _pass_on(self) -> None:
        over = []
        with suppress(Empty):
            while True:
                task, status = self._news.get_nowait()
                path = RunDirectory.of(self.runs_dir, task.trial_id).metrics_path
                # Without metrics it was called off before it began.
                if task.trial_id not in self._tails and (status == "running" or path.exists()):
                    self._follow(task, path)
                if status != "running" and task.trial_id in self._tails:
                    over.append((task, status))
        for trial, tail in self._tails.values():
            for row in tail.rows():
                self.log.add(trial, row["step"], dict(numbers({n: v for n, v in row.items() if n != "step"})))
            self._steps[trial.trial_id] = tail.last_step
        for task, status in over:
            trial, _ = self._tails.pop(task.trial_id)
            self.log.end(trial, status, self._result(task))
        if self._steps:
            write_json(self._kept, self._steps)

    def _follow(self, task: Task, path: Path) -> None:
        fields = {"arm": task.arm, "rung": task.rung} | dict(flat(task.trial.semantic_fields()))
        trial = LoggedTrial(task.trial_id, task.label, self.sweep, fields)
        self._tails[task.trial_id] = trial, MetricsTail(path, self._steps.get(task.trial_id, -1))
        self.log.begin(trial)

    def _result(self, task: Task) -> dict[str, float]:
        result = read_or_else(RunDirectory.of(self.runs_dir, task.trial_id).result, None)
        return dict(numbers(result or {}))


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings by their names, joined by dots."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the finite numbers among nested ``values``; lists (a value per layer) are left out."""
    for name, value in flat(values):
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield name, float(value)


class TensorBoardLog:
    """An event file for each trial; ``tensorboard --logdir RUNS_DIR/sweeps/NAME/tensorboard`` reads them."""

    def __init__(self, _sweep: str, folder: Path) -> None:
        from tensorboard.summary import Writer

        self._writer, self.folder = Writer, folder
        self._writers: dict[str, Any] = {}

    def begin(self, trial: LoggedTrial) -> None:
        """Open a file in the folder of the trial."""
        name = re.sub(r"[^A-Za-z0-9.]+", "-", trial.label)
        self._writers[trial.trial_id] = self._writer(str(self.folder / f"{name}-{trial.trial_id[:8]}"))

    def add(self, trial: LoggedTrial, step: int, values: Mapping[str, float]) -> None:
        """Add a scalar for each value."""
        for name, value in values.items():
            self._writers[trial.trial_id].add_scalar(name, value, step)

    def end(self, trial: LoggedTrial, status: str, result: Mapping[str, float]) -> None:  # noqa: ARG002
        """Add the losses of the result at the last step, and close the file."""
        losses = {f"result/{name}": result[name] for name in ("loss", "loss_validation") if name in result}
        self.add(trial, int(result.get("steps", 0)), losses)
        self._writers.pop(trial.trial_id).close()

    def close(self) -> None:
        """Close the files of trials that go on later."""
        for writer in self._writers.values():
            writer.close()


class WandbLog:
    """Runs in the project of the sweep's name, under ids of the trials: one that goes on is continued.

    ``WANDB_MODE=offline`` keeps them on disk.
    """

    def __init__(self, sweep: str, _folder: Path) -> None:
        import wandb

        # W&B takes settings, such as the server that gets the key, from a file beside what it writes.
        self.wandb, self.sweep, self.folder = wandb, sweep, private_folder()
        self._runs: dict[str, Any] = {}

    def begin(self, trial: LoggedTrial) -> None:
        """Begin or continue the run; several are open at a time."""
        self._runs[trial.trial_id] = self.wandb.init(
            project=self.sweep,
            id=trial.trial_id[:16],
            name=trial.label,
            group=str(trial.fields["arm"]),
            config=dict(trial.fields),
            dir=self.folder,
            resume="allow",
            reinit="create_new",
            settings=self.wandb.Settings(silent=True, console="off"),
        )

    def add(self, trial: LoggedTrial, step: int, values: Mapping[str, float]) -> None:
        """Log the values at their step."""
        self._runs[trial.trial_id].log(dict(values), step=step)

    def end(self, trial: LoggedTrial, status: str, result: Mapping[str, float]) -> None:
        """Put the result into the summary and finish the run."""
        run = self._runs.pop(trial.trial_id)
        run.summary.update({"status": status} | {f"result/{name}": value for name, value in result.items()})
        run.finish(exit_code=0 if status in ("completed", "diverged") else 1)

    def close(self) -> None:
        """Finish the runs of trials that go on later."""
        for run in self._runs.values():
            run.finish()


class MlflowLog:
    """Runs in the experiment of the sweep's name, at MLflow's tracking URI; else in the folder, as SQLite."""

    def __init__(self, sweep: str, folder: Path) -> None:
        from mlflow import MlflowClient

        local = f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        self.client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or local)
        known = self.client.get_experiment_by_name(sweep)
        self.experiment = known.experiment_id if known else self.client.create_experiment(sweep)
        self._runs: dict[str, str] = {}

    def begin(self, trial: LoggedTrial) -> None:
        """Find the run of a trial that goes on, else make one."""
        runs = self.client.search_runs([self.experiment], f"tags.`{TAG}` = '{trial.trial_id}'", max_results=1)
        if not runs:
            tags = {TAG: trial.trial_id}
            runs = [self.client.create_run(self.experiment, tags=tags, run_name=trial.label)]
            for name, value in trial.fields.items():
                self.client.log_param(runs[0].info.run_id, name, value)
        self._runs[trial.trial_id] = runs[0].info.run_id

    def add(self, trial: LoggedTrial, step: int, values: Mapping[str, float]) -> None:
        """Log the values at their step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        self.client.log_batch(self._runs[trial.trial_id], metrics)

    def end(self, trial: LoggedTrial, status: str, result: Mapping[str, float]) -> None:
        """Log the result as metrics and end the run."""
        self.add(trial, int(result.get("steps", 0)), {f"result.{name}": v for name, v in result.items()})
        self.client.set_terminated(self._runs.pop(trial.trial_id), _MLFLOW_STATUS.get(status, "FAILED"))

    def close(self) -> None:
        """Runs of trials that go on later stay open."""
