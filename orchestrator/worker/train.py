"""The process that trains one trial: claims it, trains, records into the run directory, and ends.

``python -P -m scalevec.orchestrator.worker.train --runs RUNS_DIR [--options JSON] TRIAL_ID``
"""

import argparse
import errno
import hashlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from scalevec.model.config import RunOptions, Trial
from scalevec.model.fields import from_dict
from scalevec.model.identity import IDENTITY_VERSION, trial_from_fields
from scalevec.model.training.checkpoints.folder import newest_step, prune_finished
from scalevec.model.training.corpora.prepare import open_corpus
from scalevec.model.training.loop import train
from scalevec.model.training.out_of_memory import is_out_of_memory
from scalevec.model.training.parallel.meeting import NobodyCameError
from scalevec.model.training.recorder import Recorder, SilentRecorder, TrainingInterruptedError
from scalevec.model.trunks import trunk_id
from scalevec.orchestrator.attempts.jobs import STOP_SIGNALS, WorkerExit
from scalevec.orchestrator.attempts.retry_policy import was_called_off
from scalevec.orchestrator.worker.provenance import environment, foreign_package, machine, snapshot_name
from scalevec.orchestrator.worker.ranks import (
    RankFailedError,
    RankKilledError,
    Ranks,
    lost_connection,
    ranks_here,
    ranks_there,
)
from scalevec.results.claims import AlreadyClaimedError, Claim, acquire
from scalevec.results.files import AlreadyWrittenError
from scalevec.results.run_directory import RunDirectory, trunk_path

BEAT_S = 15.0
"""Seconds between two beats of a claim; a claim is stale after 180 s without one."""
LOOK_S = 1.0
"""Seconds without a look at the claim after which the next row waits for one: a process that was stopped
past its lease was stopped for longer."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class SupersededError(Exception):
    """A later claim exists: another worker has taken over, and this one must not write any more."""


class RunDirectoryRecorder:
    """Implements ``model.training.recorder.Recorder`` on a run directory."""

    def __init__(self, directory: RunDirectory, claim: Claim) -> None:
        self.directory, self.claim = directory, claim
        # No Event: its lock would be taken twice where a second signal interrupts the handler of the first.
        self._stop = False
        self.stop_cause = "preempted"
        self._looked = _now()

    def record(self, row: Mapping[str, Any]) -> None:
        """Append ``row`` to metrics.jsonl; a process that was stopped for long looks at its claim first."""
        if _now() - self._looked > LOOK_S:
            self.require_ownership()
        self.directory.append_metrics(dict(row))

    def cut_back(self, step: int) -> None:
        """Drop the rows after ``step`` from metrics.jsonl."""
        self.directory.cut_metrics(step)

    def recorded(self) -> list[dict[str, Any]]:
        """Everything in metrics.jsonl that is whole."""
        return self.directory.metrics_before_damage()

    def replace_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Make metrics.jsonl hold ``rows`` alone."""
        self.directory.replace_metrics([dict(row) for row in rows])

    def sync(self) -> None:
        """Make metrics and events survive a loss of power."""
        self.directory.sync_records()

    def say(self, message: str, **details: Any) -> None:
        """Print to the log, and keep as an event."""
        print(message, flush=True)
        self.directory.append_event("running", note=message, **details)

    def origin(self) -> dict[str, Any]:
        """The trial and the attempt, and the code that the attempt began with."""
        attempt = self.claim.attempt
        records = (record for record in self.directory.environments() if record.get("attempt") == attempt)
        code = next(records, {})
        known = {name: code.get(name) for name in ("commit", "dirty")}
        return {"trial_id": self.directory.trial_id, "attempt": attempt, **known}

    def require_ownership(self) -> None:
        """Raise :class:`SupersededError` where a later claim exists."""
        if not self.claim.is_current():
            raise SupersededError
        self._looked = _now()

    def stop_requested(self) -> bool:
        """Whether a signal asked this process to stop."""
        return self._stop

    def request_stop(self, number: int, _frame: FrameType | None) -> None:
        """Signal handler: stop at the next step. SIGUSR2 says that the job's time is up."""
        if number == signal.SIGUSR2:
            self.stop_cause = "timeout"
        self._stop = True


def _now() -> float:
    """Seconds that also pass while the machine is suspended, where the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True)
class TrialMachine:
    """On which of a trial's machines this is; ``meeting`` is the file by which they find each other."""

    node: int = 0
    nodes: int = 1
    meeting: Path | None = None


ONE_MACHINE = TrialMachine()


def join_attempt(runs_dir: Path, trial_id: str, options: RunOptions, here: TrialMachine) -> int:
    """The part that a machine has in an attempt whose claim another holds; returns an exit code."""
    directory = RunDirectory.of(runs_dir, trial_id)
    trial = trial_from_fields(directory.trial()["semantic"])
    assert here.meeting is not None
    try:
        ranks = ranks_there(options, here.node, here.nodes, here.meeting)
    except NobodyCameError as problem:
        print(problem, file=sys.stderr)
        return WorkerExit.ERROR
    if ranks is None:
        return WorkerExit.RESULT
    others = options.processes // here.nodes - 1
    ranks.fork(others, lambda fork: _follow(runs_dir, directory, trial, fork))
    with ranks:
        return _follow(runs_dir, directory, trial, ranks)


def run_attempt(
    runs_dir: Path, trial_id: str, options: RunOptions, token: str, here: TrialMachine = ONE_MACHINE
) -> WorkerExit:
    """One attempt at a trial, from the claim to its end; what happened is in the run directory."""
    directory = RunDirectory.of(runs_dir, trial_id)
    fields = directory.trial()["semantic"]
    if fields.get("identity_version") != IDENTITY_VERSION:
        # Its random numbers would be others than its id says.
        version = fields.get("identity_version")
        print(f"{directory.path}: is of identity version {version}, not {IDENTITY_VERSION}; not trained")
        return WorkerExit.ERROR
    trial = trial_from_fields(fields)
    try:
        claim = acquire(directory, {"options": vars(options), "job": token})
    except AlreadyClaimedError as owner:
        print(f"left alone: {owner}")
        return WorkerExit.NOT_OWNER
    except OSError as problem:
        if problem.errno not in NO_SPACE:
            raise
        print(f"no space left for a claim: {problem}", file=sys.stderr)
        return WorkerExit.NO_SPACE
    try:
        result = directory.result()
        if result is not None:  # finished between the scheduler's look and our claim
            prune_finished(directory.checkpoints_path, result)
            return WorkerExit.RESULT
        if was_called_off(directory.events()):  # and nobody knew of this job, to end it
            print("this trial was cancelled; scalevec run asks for it again")
            return WorkerExit.STOPPED
        recorder = RunDirectoryRecorder(directory, claim)
        # A signal before this line simply kills; whoever sees the job gone ends the claim by its token.
        for number in STOP_SIGNALS:
            signal.signal(number, recorder.request_stop)
        ranks = ranks_here(options, here.nodes, here.meeting)
        ranks.fork(
            options.processes // here.nodes - 1, lambda fork: _follow(runs_dir, directory, trial, fork)
        )
        with _beating(claim):
            return _train_and_record(runs_dir, trial, ranks, recorder)
    finally:
        with suppress(OSError):  # a full disk cannot take the mark; our death will show that we are gone
            claim.release()


def _train_and_record(
    runs_dir: Path, trial: Trial, ranks: Ranks, recorder: RunDirectoryRecorder
) -> WorkerExit:
    directory = recorder.directory
    try:
        with ranks:
            _record_start(recorder, ranks.options)
            result = _trained(runs_dir, directory, trial, ranks, recorder)
        recorder.require_ownership()
        directory.write_result(result)
        directory.append_event(result["status"])
        prune_finished(directory.checkpoints_path, result)
    except TrainingInterruptedError as stop:
        directory.append_event("pending", cause=recorder.stop_cause, step=stop.step)
        return WorkerExit.STOPPED
    except (SupersededError, AlreadyWrittenError):
        return _taken_over()
    except Exception as problem:  # noqa: BLE001 (whatever it is, it must be on record)
        # A successor removes the files that this worker was writing: that error is not the trial's.
        if not recorder.claim.is_current():
            return _taken_over()
        return _record_failure(directory, ranks.cause or problem)
    return WorkerExit.RESULT


def _trained(
    runs_dir: Path, directory: RunDirectory, trial: Trial, ranks: Ranks, recorder: Recorder
) -> dict[str, Any]:
    """The result, at each rank of the trial."""
    corpus = open_corpus(runs_dir / "corpora", trial.corpus)
    trunk, world = _trunk(runs_dir, trial), ranks.meet(corpus)
    return train(trial, corpus, ranks.options, recorder, directory.checkpoints_path, trunk, world)


def _follow(runs_dir: Path, directory: RunDirectory, trial: Trial, ranks: Ranks) -> int:
    """What a rank does that records nothing; returns its exit code."""
    asked: list[int] = []
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, _frame: asked.append(number))
    try:
        _trained(runs_dir, directory, trial, ranks, SilentRecorder(lambda: bool(asked)))
    except TrainingInterruptedError:
        return 0
    except Exception as problem:  # noqa: BLE001 (for rank 0, which has it on record)
        if not lost_connection(problem):
            print(f"rank {ranks.rank}: {traceback.format_exc()}", file=sys.stderr)
        ranks.report(problem, _cause_of(problem), _digest_of(problem))
        return WorkerExit.ERROR
    return 0


def _taken_over() -> WorkerExit:
    print("another worker has taken over this trial; nothing more is written here")
    return WorkerExit.NOT_OWNER


def _trunk(runs_dir: Path, trial: Trial) -> Path | None:
    """Where the states of the trial's trunk are kept; None where its schedule has none."""
    name = trunk_id(trial)
    return trunk_path(runs_dir, name) if name else None


def _record_start(recorder: RunDirectoryRecorder, options: RunOptions) -> None:
    directory, attempt = recorder.directory, recorder.claim.attempt
    here = {"attempt": attempt, "device": options.device}
    directory.write_environment(environment() | machine(options.device) | here)
    step = newest_step(directory.checkpoints_path)
    directory.append_event(
        "running",
        attempt=attempt,
        step=step,
        micro_batch=options.micro_batch,
        world_size=options.processes,
        node=os.environ.get("SLURMD_NODENAME"),
        code=snapshot_name(),
    )


def _record_failure(directory: RunDirectory, problem: Exception) -> WorkerExit:
    """Keep the cause and a digest of the traceback (the same one twice is not tried a third time)."""
    trace = "".join(traceback.format_exception(problem))
    print(trace, file=sys.stderr)
    if isinstance(problem, OSError) and problem.errno in NO_SPACE:
        return WorkerExit.NO_SPACE
    if isinstance(problem, RankKilledError):
        # As if this process had been killed: who watches it finds out by what.
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    message = str(problem) if isinstance(problem, RankFailedError) else f"{type(problem).__name__}: {problem}"
    directory.append_event("pending", cause=_cause_of(problem), error=message, traceback=_digest_of(problem))
    return WorkerExit.ERROR


def _cause_of(problem: Exception) -> str:
    if isinstance(problem, RankFailedError):
        return problem.cause
    if isinstance(problem, NobodyCameError):
        return "node_failure"
    return "out_of_memory" if is_out_of_memory(problem) else "error"


def _digest_of(problem: Exception) -> str:
    if isinstance(problem, RankFailedError) and problem.digest:
        return problem.digest
    return hashlib.sha256("".join(traceback.format_exception(problem)).encode()).hexdigest()


@contextmanager
def _beating(claim: Claim) -> Iterator[None]:
    """Within it the claim beats in the background."""

    def beat() -> None:
        while not finished.wait(BEAT_S):
            try:
                claim.beat()
            except OSError as problem:  # a file server's bad moment; the lease outlasts several beats
                print(f"a beat of the claim failed ({problem}); the next is in {BEAT_S:g} s", flush=True)

    finished = threading.Event()
    threading.Thread(target=beat, daemon=True, name="beat").start()
    try:
        yield
    finally:
        finished.set()


def main(arguments: list[str] | None = None) -> int:
    """The entry point of a worker process; returns its exit code."""
    parser = argparse.ArgumentParser(prog="scalevec.orchestrator.worker.train", description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--protocol", type=json.loads, default={})
    parser.add_argument("--job", default="")
    parser.add_argument("--node", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--meeting", type=Path)
    parser.add_argument("trial_id")
    values = parser.parse_args(arguments)
    if problem := foreign_package():
        print(problem, file=sys.stderr)
        return WorkerExit.FOREIGN_CODE
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    options = from_dict(RunOptions, values.options)
    here = TrialMachine(values.node, values.nodes, values.meeting)
    if here.node:
        return join_attempt(values.runs, values.trial_id, options, here)
    return run_attempt(values.runs, values.trial_id, options, values.job, here)


if __name__ == "__main__":
    sys.exit(main())
