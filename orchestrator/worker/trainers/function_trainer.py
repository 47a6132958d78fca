"""A Python function that trains, called in the worker."""

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from scalevec.model.train.record import Recorder, TrainingInterruptedError
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.attempts.kept_files import umask_of_trainers
from scalevec.orchestrator.private import who_may_change
from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.orchestrator.worker.ranks import Ranks
from scalevec.orchestrator.worker.recording import RunDirectoryRecorder
from scalevec.orchestrator.worker.trainers.foreign_attempt import ForeignAttempt
from scalevec.orchestrator.worker.trainers.metric_rows import LossNotFiniteError, MetricRows

POLL_S = 0.2


@dataclass(frozen=True)
class TrainerContext:
    """What a Python function that trains is given beside the trial's fields.

    folder: where it writes what it keeps: checkpoints, if it goes on from some.
    last_step: the last step on record that it is to go on from; 0 where it starts over.
    """

    folder: Path
    last_step: int
    _rows: MetricRows
    _recorder: Recorder

    def record(self, row: Mapping[str, Any]) -> None:
        """Keep a row of metrics, by the names that the sweep file gives: its step, its losses, its tokens.

        Of a repeated step the last counts. Raises an exception that is not to be caught where a loss is not
        finite, or another worker has taken over the trial.
        """
        self._rows.take([row])

    def stop_requested(self) -> bool:
        """Whether it shall save what it goes on from in ``folder``, and return None."""
        return self._recorder.stop_requested()


class FunctionTrainer(ForeignAttempt):
    """Trains by a function ``package.module:name`` of the trial's fields and a :class:`TrainerContext`.

    It returns the result, a mapping with the keys that the sweep file names, or None once it was stopped.
    """

    def train(self, ranks: Ranks, recorder: Recorder) -> dict[str, Any]:
        """Call the function; returns the result."""
        if ranks.are_several:
            raise DefiniteError("a Python function trains in one process; a command may start several")
        assert isinstance(recorder, RunDirectoryRecorder)  # the one process is the one that records
        with contextlib.chdir(self.folder), self._ended_in_time(recorder):
            function = self._function()
            step, returned = self.first_step(), None
            rows = self.prepared(recorder)
            with suppress(LossNotFiniteError), self._umask():
                returned = function(self.fields(), TrainerContext(self.out, step, rows, recorder))
        if rows.diverged_at is not None:
            return self.diverged(rows, ranks)
        if returned is None and recorder.stop_requested():
            raise TrainingInterruptedError(self.first_step())
        if returned is not None and not isinstance(returned, Mapping):
            kind = type(returned).__name__
            name = self.trial.trainer.function
            raise DefiniteError(f"{name} returned {kind}; a mapping is expected, or None once stopped")
        return self.result(rows, ranks, returned)

    def _function(self) -> Callable[[Mapping[str, Any], TrainerContext], Any]:
        """Look it up in the trainer's files, the sweep's folder and site-packages."""
        own_folder = [str(self.folder)] if who_may_change(self.folder) is None else []
        sys.path[:0] = dict.fromkeys([str(self.source()), *own_folder])
        named = self.trial.trainer.function
        module, _, name = named.partition(":")
        try:
            function = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError as problem:
            raise DefiniteError(f"{named}: {problem}") from problem
        if not callable(function):
            raise DefiniteError(f"{named}: {module} has no function {name!r}")
        return cast("Callable[[Mapping[str, Any], TrainerContext], Any]", function)

    @contextmanager
    def _umask(self) -> Iterator[None]:
        """Within it files are made that nobody else may write."""
        before = os.umask(umask_of_trainers())
        try:
            yield
        finally:
            os.umask(before)

    def _end_as_stopped(self, recorder: RunDirectoryRecorder) -> None:
        """End this process, in whatever the function is, with on record what a command's worker has."""
        try:
            if recorder.claim.is_current():
                recorder.say(self.not_ended("a request to stop"))
                recorder.record_stop(self.first_step())
            recorder.claim.release()
        finally:
            os._exit(WorkerExit.STOPPED)

    @contextmanager
    def _ended_in_time(self, recorder: RunDirectoryRecorder) -> Iterator[None]:
        """Within it a request to stop is heeded within the grace period, or this process ends as stopped."""

        def watch() -> None:
            while not recorder.stop_requested():
                if over.wait(POLL_S):
                    return
            if over.wait(self.protocol.grace_s):
                return
            with ending:  # a function that returns now is too late
                if not over.is_set():
                    self._end_as_stopped(recorder)

        over, ending = threading.Event(), threading.Lock()
        threading.Thread(target=watch, daemon=True, name="grace").start()
        try:
            yield
        finally:
            with ending:
                over.set()
