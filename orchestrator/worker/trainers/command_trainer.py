"""An attempt by a command of other people: its start and end, its files, and its result."""

import hashlib
import math
import os
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from scalevec.model.train.record import Recorder, TrainingInterruptedError
from scalevec.orchestrator.attempts.kept_files import checkpoints_in, newest_checkpoint, others_in
from scalevec.orchestrator.attempts.retry_policy import since_retry
from scalevec.orchestrator.worker.failures import AttemptFailedError, DefiniteError
from scalevec.orchestrator.worker.guard import CANNOT_RUN
from scalevec.orchestrator.worker.provenance import commit_of
from scalevec.orchestrator.worker.ranks import LOOPBACK, Ranks
from scalevec.orchestrator.worker.trainers.guarded_command import GuardedCommand
from scalevec.orchestrator.worker.trainers.kept_source import (
    folder_of_source,
    from_source,
    module_variables,
    require_no_new_input,
)
from scalevec.orchestrator.worker.trainers.line_pattern import LinePattern
from scalevec.orchestrator.worker.trainers.metric_rows import LossNotFiniteError, MetricRows, MetricsFile
from scalevec.orchestrator.worker.trainers.readings import (
    losses_of_rows,
    number,
    require_end,
    require_params,
    result_file,
    terminal_losses,
)
from scalevec.results.files import write_json
from scalevec.results.opening import make_folder, remove_folder
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import ForeignTrial, Protocol

POLL_S = 0.2
OWNER_S = 5.0
"""Seconds between two looks whether the trial is still this worker's."""
NOT_FOUND = 127
ENDINGS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals by which others end a process; of the rest it dies of its own."""
OF_WORKERS = ("PYTHONSAFEPATH", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
"""Variables that our own processes are started with."""


FIELDS = "fields.json"
SET_ASIDE = "set_aside"
"""The folder, in the run directory, of checkpoints at which a trainer failed twice."""
_NO_LOSSES = dict.fromkeys(("loss", "loss_validation", "diverged_at_step"))


@dataclass(frozen=True)
class CommandTrainer:
    """Trains ``trial`` by its command, started once on each machine.

    This one is ``node`` (from 0), and the command starts ``processes`` there.
    """

    runs_dir: Path
    directory: RunDirectory
    trial: ForeignTrial
    protocol: Protocol
    node: int = 0
    processes: int = 1
    forks_ranks = False

    def train(self, ranks: Ranks, recorder: Recorder) -> dict[str, Any]:
        """Run the command to its end; returns the result, and nothing on other machines than the first."""
        folder = self.folder
        source = folder_of_source(self.trial.trainer, folder)
        self.require_inputs()
        rows = self.prepared(recorder) if not self.node else None
        if rows is not None:
            ranks.call_others()
        command = self.command(ranks, source)
        variables = self.variables(command, source)
        readings = self.trial.trainer.readings
        pattern = LinePattern(readings.pattern, readings.step) if readings.pattern else None
        with GuardedCommand(command, variables, folder, self.directory.log_path, pattern) as running:
            following = _Following(self, running, recorder, rows)
            try:
                code = following.to_the_end()
            except LossNotFiniteError:
                assert rows is not None
                return self.diverged(rows, ranks)
        return self._outcome(code, following, ranks)

    def command(self, ranks: Ranks, source: Path) -> list[str]:
        """The arguments, with what only an attempt knows."""
        known = {
            **self.fields(),
            "python": sys.executable,
            "trial_json": self.directory.path.resolve() / FIELDS,
            "gpus": self.processes,
            "node_rank": self.node,
            "master": ranks.address.host if ranks.address else LOOPBACK,
        }
        asked = [*self.trial.trainer.command, *(self.protocol.resume if self.goes_on() else ())]
        return from_source([word.format(**known) for word in asked], self.trial.trainer, source)

    def variables(self, command: Sequence[str], source: Path) -> dict[str, str]:
        """The environment of the command: a scheduler's own is hidden, since some trainers act upon it."""
        hidden = OF_WORKERS if self.protocol.scheduler_variables else (*OF_WORKERS, "SLURM")
        variables = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        if source != self.folder:
            before, modules = variables.get("PYTHONPATH"), module_variables(command, source, self.folder)
            variables |= modules
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, (before, modules["PYTHONPATH"])))
        # Where no python is found else, ours is.
        path = (variables.get("PATH", os.defpath), str(Path(sys.executable).parent))
        return variables | {"PATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}

    def _outcome(self, code: int, following: "_Following", ranks: Ranks) -> dict[str, Any]:
        rows, last_line = following.rows, following.running.output.last_line
        if code == 0:
            # Who was asked to stop may have ended before a result was due.
            try:
                return self.result(rows, ranks) if rows is not None else {}
            except DefiniteError as problem:
                if not following.was_asked:
                    if self._stuck_at() is None:
                        raise
                    # It may have said of a torn checkpoint that all is well.
                    raise AttemptFailedError(str(problem)) from None
        if following.was_asked or code == self.protocol.stop_exit:
            raise TrainingInterruptedError(rows.step if rows is not None and self.goes_on() else 0)
        if code in (CANNOT_RUN, NOT_FOUND):
            raise DefiniteError(f"the command cannot be run on {socket.gethostname()}: {last_line}")
        raise _failure(code, last_line)

    @property
    def out(self) -> Path:
        """The folder that the trainer writes into."""
        return RunDirectory.of(self.runs_dir.resolve(), self.directory.trial_id).out_path

    @property
    def folder(self) -> Path:
        """The sweep file's. Raises ``DefiniteError`` where it is not there."""
        folder = Path(self.protocol.folder or ".").resolve()
        if not folder.is_dir():
            raise DefiniteError(f"{folder}: the folder of the sweep file is not on this machine")
        return folder

    def require_inputs(self) -> None:
        """Raise ``DefiniteError`` where the words name a file that the trial was planned without."""
        require_no_new_input(self.trial, (*self.trial.trainer.command, *self.protocol.resume), self.folder)

    def goes_on(self) -> bool:
        """Whether there is a checkpoint of the trainer's to go on from, which nobody else has written."""
        pattern = self.protocol.checkpoint
        is_there = bool(pattern) and any(checkpoints_in(self.out, pattern))
        return is_there and others_in(self.out, self.protocol.writers_agreed_to) is None

    def reached(self) -> dict[str, Any]:
        """The step; of a trainer that logs none, the time (in ns) of its newest checkpoint beside it."""
        goes_on = self.goes_on()
        step = self.directory.last_step() if goes_on else 0
        written = newest_checkpoint(self.out, self.protocol.checkpoint)[1] if goes_on and not step else 0
        return {"step": step} | ({"checkpoint": written} if written else {})

    def origin(self) -> dict[str, Any]:
        """Of which commit the sweep's folder is; None outside a repository."""
        return {"trainer": {"commit": commit_of(Path(self.protocol.folder))}}

    def prepared(self, recorder: Recorder) -> MetricRows:
        """Make the folder ready, and hand out what takes the rows of metrics."""
        goes_on = self.goes_on()
        if not goes_on:
            if self.protocol.checkpoint and (others := others_in(self.out, self.protocol.writers_agreed_to)):
                recorder.say(
                    f"the trial starts afresh: {others} may have written its checkpoints, and to load them "
                    "may run code; to go on from them: scalevec run --trust"
                )
            # Where the checkpoints alone were the fault, what the script knows else stays.
            if not any("set_aside" in event for event in since_retry(self.directory.events())):
                remove_folder(self.out)
                if self.out.exists():  # it is another user's, who alone may empty it
                    self.out.rename(self.out.with_name(f"{self.out.name}.{secrets.token_hex(4)}"))
            recorder.cut_back(0)
        make_folder(self.out)
        if goes_on and (name := self.trial.trainer.readings.metrics):
            MetricsFile(self.out, name).cut_torn_end()
        if (name := self.trial.trainer.readings.result) and not (goes_on and self._says_the_end()):
            with suppress(FileNotFoundError):  # of an earlier attempt, which had not trained all
                (self.out / name).unlink()
        write_json(self.directory.path / FIELDS, self.fields())
        return MetricRows(recorder, self.trial, goes_on)

    def _says_the_end(self) -> bool:
        """Whether the result says that it is of the planned end: a script that goes on has nothing to add."""
        with suppress(DefiniteError):
            _, step, tokens = self._ended()
            require_end(step, tokens, self.trial, self.trial.trainer.readings.result)
            return step is not None
        return False

    def _ended(self) -> tuple[Mapping[str, Any], float | None, float | None]:
        """The result that the trainer wrote, and the step and tokens that it says."""
        readings = self.trial.trainer.readings
        record = result_file(self.out, readings.result)
        tokens = number(record, readings.tokens, readings.result) if readings.tokens else None
        key = next((key for key in (readings.step, "step", "global_step") if key in record), "")
        return record, number(record, key, readings.result), tokens

    def failed(self) -> dict[str, Any]:
        """What the record of a failure says of the checkpoint at which the attempt began and ended.

        One at which two attempts have failed is set aside, once by its name: the next goes on from the one
        before, or afresh.
        """
        if (stuck_at := self._stuck_at()) is None:
            return {}
        path, written = stuck_at
        checkpoint = f"{path.relative_to(self.out)} of {written}"
        errors = [event for event in since_retry(self.directory.events()) if event.get("cause") == "error"]
        name = "-".join(path.relative_to(self.out).parts)
        known = any(event.get("set_aside", "").endswith(f"-{name}") for event in errors)
        if known or not errors or errors[-1].get("failed_at") != checkpoint:
            return {"failed_at": checkpoint}
        aside = self.directory.path / SET_ASIDE / f"{written}-{name}"
        make_folder(aside.parent)
        path.rename(aside)
        return {"failed_at": checkpoint, "set_aside": str(aside)}

    def _stuck_at(self) -> tuple[Path, int] | None:
        """The checkpoint at which the attempt began, if it got no further, and when that was written."""
        events = since_retry(self.directory.events())
        start = next((event for event in reversed(events) if event["state"] in ("running", "pending")), None)
        if start is None or start["state"] == "pending":  # it failed before it began
            return None
        began_at = {name: start[name] for name in ("step", "checkpoint") if name in start}
        path, written = newest_checkpoint(self.out, self.protocol.checkpoint) if self.goes_on() else (None, 0)
        return None if path is None or self.reached() != began_at else (path, written)

    def fields(self) -> dict[str, Any]:
        """What a trainer is told of the trial."""
        return {
            **self.trial.placeholders,
            "seed": self.trial.seed_value,
            "seed_index": self.trial.seed,
            "trial_id": self.directory.trial_id,
            "out": str(self.out),
        }

    def result(self, rows: MetricRows, ranks: Ranks) -> dict[str, Any]:
        """The result of training that came to its end.

        Raises ``DefiniteError`` for one that is absent, or not what the plan has.
        """
        if rows.diverged_at is not None:
            return self.diverged(rows, ranks)
        losses = self._losses(rows)
        if not all(map(math.isfinite, losses.values())):
            return self.diverged(rows, ranks)
        return _NO_LOSSES | {"status": "completed"} | losses | self._facts(rows, ranks)

    def _losses(self, rows: MetricRows) -> dict[str, float]:
        readings = self.trial.trainer.readings
        if not readings.result:
            row, losses = losses_of_rows(rows.recorder.recorded(), readings, rows.keys)
            require_end(row["step"], row.get("tokens"), self.trial, "the last row with the losses")
            return losses
        where, (record, step, tokens) = readings.result, self._ended()
        if step is None and (step := self._broken_off(rows)) is not None:
            where = f"{where} says no {readings.step!r}, and the last row of metrics"
        require_end(step, rows.tokens if tokens is None else tokens, self.trial, where)
        require_params(record, self.trial, where)
        return terminal_losses(record, readings, where)

    def _broken_off(self, rows: MetricRows) -> int | None:
        """The last step of the metrics where a further row was due before the planned end."""
        steps = [0, *(row["step"] for row in rows.recorder.recorded())]
        apart = max((after - before for before, after in pairwise(steps)), default=0)
        due = self.trial.steps or 0
        return steps[-1] if due - steps[-1] > apart > 0 else None

    def diverged(self, rows: MetricRows, ranks: Ranks) -> dict[str, Any]:
        """The result of training that had a loss that is not finite."""
        step = rows.diverged_at or rows.step
        return _NO_LOSSES | {"status": "diverged", "diverged_at_step": step} | self._facts(rows, ranks)

    def _facts(self, rows: MetricRows, ranks: Ranks) -> dict[str, Any]:
        trial, options, initial, wall_s = self.trial, ranks.options, rows.loss_initial, rows.wall_s
        starts = [event for event in self.directory.events() if event["state"] == "running"]
        return {
            "loss_initial": initial if initial is not None and math.isfinite(initial) else None,
            "steps": rows.step or None,
            "n_tokens": trial.tokens,
            "n_params": trial.n_params,
            # C = 6 N D (Kaplan et al., arXiv 2001.08361).
            "flops": 6 * trial.n_params * trial.tokens,
            "wall_s": wall_s,
            "tokens_per_s": trial.tokens / wall_s,
            "device": options.device,
            "world_size": options.processes,
            "resumes": sum(bool(event.get("step") or event.get("checkpoint")) for event in starts),
            "keep": options.keep,
            "checkpoint": self.protocol.checkpoint,
        }


@dataclass
class _Following:
    """Looks after a running command: its rows, whose the trial is, and requests to stop."""

    trainer: CommandTrainer
    running: GuardedCommand
    recorder: Recorder
    rows: MetricRows | None
    was_asked: bool = False
    """Whether the command was asked to stop."""

    def __post_init__(self) -> None:
        readings = self.trainer.trial.trainer.readings
        self._file = MetricsFile(self.trainer.out, readings.metrics) if readings.metrics else None
        self._patience_ends = self._looked = time.monotonic()

    def to_the_end(self) -> int:
        """Return the command's exit code, negative for a signal.

        Raises what is wrong with its rows, or that another worker has taken over; the command runs on then.
        """
        while (code := self.running.ended(POLL_S)) is None:
            self._take_rows()
            if time.monotonic() - self._looked > OWNER_S:
                self.recorder.require_ownership()
                self.trainer.require_inputs()
                self._looked = time.monotonic()
            self._pass_on_stop()
        self.running.output.finish()
        self._take_rows(is_whole=code == 0)  # what was killed may have been in the middle of a row
        if code == 0:
            self.trainer.require_inputs()
        if -code in ENDINGS and not self.was_asked:
            # SLURM signals every process of a step: ours may be on its way.
            time.sleep(POLL_S)
            self.was_asked = self.recorder.stop_requested()
        return code

    def _take_rows(self, *, is_whole: bool = False) -> None:
        if self.rows is None:
            return
        if self._file is not None:
            self.rows.take(self._file.new_rows(is_whole=is_whole))
        self.rows.take(self.running.output.new_rows(is_whole=is_whole))

    def _pass_on_stop(self) -> None:
        protocol = self.trainer.protocol
        if not self.recorder.stop_requested():
            return
        if not self.was_asked:
            self.was_asked = True
            self._patience_ends = time.monotonic() + protocol.grace_s
            self.running.tell(signal.Signals[protocol.stop_signal])
        elif time.monotonic() > self._patience_ends:
            late = f"the command did not end within {protocol.grace_s:g} s of {protocol.stop_signal}"
            self.recorder.say(f"{late}; it is killed")
            self.running.kill()


def _failure(code: int, last_line: str) -> AttemptFailedError:
    """What an exit code says that is no success; the same last line, but for numbers, is the same error."""
    words = f": {last_line}" if last_line else ""
    if -code in ENDINGS:
        name = signal.Signals(-code).name
        return AttemptFailedError(f"the command was ended by {name}{words}", "killed")
    how = f"exit code {code}" if code > 0 else signal.Signals(-code).name
    digest = hashlib.sha256(re.sub(r"(0x)?\d+", "", f"{how} {last_line}").encode()).hexdigest()
    return AttemptFailedError(f"the command ended with {how}{words}", "error", digest)
