"""A command that trains: how it is started, followed, asked to stop, and what its end means."""

import hashlib
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalevec.model.train.record import Recorder, TrainingInterruptedError
from scalevec.orchestrator.worker.failures import AttemptFailedError, DefiniteError
from scalevec.orchestrator.worker.guard import CANNOT_RUN
from scalevec.orchestrator.worker.ranks import LOOPBACK, Ranks
from scalevec.orchestrator.worker.trainers.foreign_attempt import FIELDS, ForeignAttempt
from scalevec.orchestrator.worker.trainers.guarded_command import GuardedCommand
from scalevec.orchestrator.worker.trainers.kept_source import from_source, module_variables
from scalevec.orchestrator.worker.trainers.metric_rows import (
    LinePattern,
    LossNotFiniteError,
    MetricRows,
    MetricsFile,
)

POLL_S = 0.2
OWNER_S = 5.0
"""Seconds between two looks whether the trial is still this worker's."""
NOT_FOUND = 127
ENDINGS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals by which others end a process; of the rest it dies of its own."""
OF_WORKERS = ("PYTHONSAFEPATH", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
"""Variables that our own processes are started with."""


class CommandTrainer(ForeignAttempt):
    """Trains by the trial's command, started once on each machine."""

    def train(self, ranks: Ranks, recorder: Recorder) -> dict[str, Any]:
        """Run the command to its end; returns the result, and nothing on other machines than the first."""
        folder, source = self.folder, self.source()
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
            with suppress(*([DefiniteError] if following.was_asked else [])):
                return self.result(rows, ranks) if rows is not None else {}
        if following.was_asked or code == self.protocol.stop_exit:
            raise TrainingInterruptedError(rows.step if rows is not None and self.goes_on() else 0)
        if code in (CANNOT_RUN, NOT_FOUND):
            raise DefiniteError(f"the command cannot be run on {socket.gethostname()}: {last_line}")
        raise _failure(code, last_line)


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
                self._looked = time.monotonic()
            self._pass_on_stop()
        self.running.output.finish()
        self._take_rows(is_whole=True)
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
        self.rows.take(self.running.output.new_rows())

    def _pass_on_stop(self) -> None:
        trainer, protocol = self.trainer, self.trainer.protocol
        if not self.recorder.stop_requested():
            return
        if not self.was_asked:
            self.was_asked = True
            self._patience_ends = time.monotonic() + protocol.grace_s
            self.running.tell(signal.Signals[protocol.stop_signal])
        elif time.monotonic() > self._patience_ends:
            self.recorder.say(trainer.not_ended(protocol.stop_signal))
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
