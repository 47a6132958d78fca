"""The process that trains one trial: claims it, trains, records into the run directory, and ends.

``python -P -m scalevec.orchestrator.worker.train --runs RUNS_DIR [--options JSON] TRIAL_ID``
"""

import argparse
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scalevec.model.config import RunOptions, Trial
from scalevec.model.data.corpus import open_corpus
from scalevec.model.fields import from_dict
from scalevec.model.identity import IDENTITY_VERSION, digest, trunk_id
from scalevec.model.train import newest_step
from scalevec.model.train.loop import train
from scalevec.model.train.record import Recorder, SilentRecorder, TrainingInterruptedError
from scalevec.model.train.step import keep_compiled_in
from scalevec.orchestrator.attempts.jobs import STOP_SIGNALS, WorkerExit
from scalevec.orchestrator.attempts.kept_files import prune_trained
from scalevec.orchestrator.attempts.retry_policy import PASSING_ERRORS, was_called_off
from scalevec.orchestrator.errors import NO_SPACE
from scalevec.orchestrator.private import private_folder
from scalevec.orchestrator.worker.failures import AttemptFailedError, RankKilledError, as_record
from scalevec.orchestrator.worker.preflight import lacking, load_plugins, versions_sent_with
from scalevec.orchestrator.worker.provenance import environment, machine, snapshot_name
from scalevec.orchestrator.worker.ranks import Ranks, ranks_here, ranks_there
from scalevec.orchestrator.worker.recording import RunDirectoryRecorder, StopRequest, SupersededError
from scalevec.orchestrator.worker.trainers.command_trainer import CommandTrainer
from scalevec.results.claims import AlreadyClaimedError, Claim, acquire
from scalevec.results.files import AlreadyWrittenError, CorruptRecordError
from scalevec.results.masking import MaskedStream
from scalevec.results.opening import require_no_link
from scalevec.results.run_directory import RunDirectory, trunk_path
from scalevec.sweeps.plugins.locate import sent_plugins
from scalevec.sweeps.trainers.any_trial import ForeignTrial, Protocol, trial_from_fields

BEAT_S = 15.0
"""Seconds between two beats of a claim; a claim is stale after 180 s without one."""


@dataclass(frozen=True)
class OwnLoop:
    """Trains ``trial`` by ``model.train.loop``."""

    runs_dir: Path
    directory: RunDirectory
    trial: Trial
    forks_ranks = True

    def reached(self) -> dict[str, Any]:
        """The step of the newest checkpoint."""
        return {"step": newest_step(self.directory.checkpoints_path)}

    def failed(self) -> dict[str, Any]:
        """Nothing: a damaged checkpoint is set aside where it is read."""
        return {}

    def origin(self) -> dict[str, Any]:
        """The digests of the plugins that were sent along."""
        plugins = {plugin.module: plugin.digest for plugin in sent_plugins()}
        return {"plugins": plugins} if plugins else {}

    def train(self, ranks: Ranks, recorder: Recorder) -> dict[str, Any]:
        """Train to the end, at each rank of the trial."""
        load_plugins(self.trial)
        corpus = open_corpus(self.runs_dir / "corpora", self.trial.corpus)
        trunk, folder = self._trunk(), self.directory.checkpoints_path
        with ranks.meet(corpus) as world:
            return train(self.trial, corpus, ranks.options, recorder, folder, trunk, world)

    def _trunk(self) -> Path | None:
        """Where the states of the trial's trunk are kept; None where its schedule has none."""
        if not (name := trunk_id(self.trial)):
            return None
        folder = trunk_path(self.runs_dir, name)
        require_no_link(folder)
        return folder


AttemptTrainer = OwnLoop | CommandTrainer
"""What trains in one attempt at one trial: where ``forks_ranks`` holds, a trial's processes on a machine are
forks of the worker, else the trainer starts them."""
OF_NONE = Protocol()


@dataclass(frozen=True)
class TrialAttempt:
    """What is attempted: a trial in RUNS_DIR, on machine ``node`` (from 0) of its ``nodes``.

    ``meeting`` is the file by which these find each other; ``protocol`` is that of a foreign trainer.
    """

    runs_dir: Path
    trial_id: str
    options: RunOptions
    node: int = 0
    nodes: int = 1
    meeting: Path | None = None
    protocol: Protocol = OF_NONE

    @property
    def directory(self) -> RunDirectory:
        """That of the trial."""
        return RunDirectory.of(self.runs_dir, self.trial_id)

    def fields(self) -> dict[str, Any]:
        """The trial's, which name the command of a foreign trainer, and which others may write.

        Raises ``CorruptRecordError`` for any but those that its id is the digest of.
        """
        fields: dict[str, Any] = self.directory.trial()["semantic"]
        version = fields.get("identity_version")
        if version != IDENTITY_VERSION:
            # Its random numbers would be others than its id says.
            problem = f"is of identity version {version}, not {IDENTITY_VERSION}"
        elif digest(fields) != self.trial_id:
            problem = "holds other fields than those of the trial with this id"
        else:
            return fields
        raise CorruptRecordError(self.directory.trial_path, problem)

    def trainer(self) -> AttemptTrainer:
        """What trains it. Raises as :meth:`fields`."""
        trial, processes = trial_from_fields(self.fields()), self.options.processes // self.nodes
        if not isinstance(trial, ForeignTrial):
            return OwnLoop(self.runs_dir, self.directory, trial)
        return CommandTrainer(self.runs_dir, self.directory, trial, self.protocol, self.node, processes)


def join_attempt(attempt: TrialAttempt) -> int:
    """The part that a machine has in an attempt whose claim another holds; returns an exit code."""
    trainer, stop = attempt.trainer(), StopRequest()
    assert attempt.meeting is not None
    for number in STOP_SIGNALS:
        signal.signal(number, stop.take)
    ranks = None
    try:
        ranks = ranks_there(attempt.options, attempt.node, attempt.nodes, attempt.meeting)
        if ranks is not None:
            _trained(trainer, ranks, SilentRecorder(stop.is_made), lambda: None)
    except TrainingInterruptedError:
        return WorkerExit.RESULT
    except Exception as problem:  # noqa: BLE001 (for the first machine, which has it on record)
        print(problem, file=sys.stderr)
        if ranks is not None:
            ranks.report(problem)
        return WorkerExit.ERROR
    return WorkerExit.RESULT


def run_attempt(attempt: TrialAttempt, token: str) -> WorkerExit:
    """One attempt at a trial, from the claim to its end; what happened is in the run directory."""
    directory, options = attempt.directory, attempt.options
    if not directory.trial_path.exists():
        removed = f"{directory.trial_path}, which an attempt has removed: a script may write to {{out}} alone"
        elsewhere = f"runs directory: {attempt.runs_dir} is another folder there"
        return _refuse(attempt, token, [removed if directory.log_path.exists() else elsewhere])
    try:
        trainer = attempt.trainer()
        versions = versions_sent_with(directory.events(), token)
        if problems := lacking(attempt.runs_dir, attempt.fields(), options, versions):
            return _refuse(attempt, token, problems)
    except CorruptRecordError as problem:
        print(f"{problem}; not trained")
        return WorkerExit.ERROR
    try:
        claim = acquire(directory, {"options": vars(options), "job": token})
    except AlreadyClaimedError as owner:
        print(f"left alone: {owner}")
        return WorkerExit.NOT_OWNER
    except OSError as problem:
        if problem.errno in NO_SPACE:
            print(f"no space left for a claim: {problem}", file=sys.stderr)
            return WorkerExit.NO_SPACE
        if problem.errno in PASSING_ERRORS:
            raise
        # A claim is the first file that is linked into place there.
        lacks = f"runs directory: {directory.path} takes no files, or no hard links: {problem}"
        return _refuse(attempt, token, [lacks])
    try:
        result = directory.result()
        if result is not None:  # finished between the scheduler's look and our claim
            prune_trained(directory, result)
            return WorkerExit.RESULT
        if was_called_off(directory.events()):  # and nobody knew of this job, to end it
            print("this trial was cancelled; scalevec run asks for it again")
            return WorkerExit.STOPPED
        recorder = RunDirectoryRecorder(directory, claim)
        # A signal before this line simply kills; whoever sees the job gone ends the claim by its token.
        for number in STOP_SIGNALS:
            signal.signal(number, recorder.stop.take)
        ranks = ranks_here(options, attempt.nodes, attempt.meeting)
        if trainer.forks_ranks:  # else the trainer does so, once its folder is ready
            ranks.call_others()
        with _beating(claim):
            return _train_and_record(trainer, ranks, recorder)
    finally:
        # A full disk, or a link there, cannot take the mark; our death will show that we are gone.
        with suppress(OSError, CorruptRecordError):
            claim.release()


def _refuse(attempt: TrialAttempt, token: str, problems: list[str]) -> WorkerExit:
    """The machine lacks something: as if the job had not been sent, but for what is said of it."""
    for problem in problems:
        print(f"the machine lacks what the trial needs: {problem}", flush=True)
    with suppress(OSError, CorruptRecordError):  # the runs folder may be what is lacking
        attempt.directory.append_event("pending", cause="not_started", job=token, lacks=problems)
    return WorkerExit.MACHINE_LACKS


def _train_and_record(trainer: AttemptTrainer, ranks: Ranks, recorder: RunDirectoryRecorder) -> WorkerExit:
    directory = recorder.directory
    try:
        result = _trained(trainer, ranks, recorder, lambda: _record_start(recorder, ranks.options, trainer))
        recorder.require_ownership()
        directory.write_result(result)
        directory.append_event(result["status"])
        prune_trained(directory, result)
    except TrainingInterruptedError as stop:
        return _record_stop(recorder, stop.step)
    except (SupersededError, AlreadyWrittenError):
        return _taken_over()
    except Exception as problem:  # noqa: BLE001 (whatever it is, it must be on record)
        # A successor removes the files that this worker was writing: that error is not the trial's.
        if not recorder.claim.is_current():
            return _taken_over()
        return _record_failure(directory, problem, trainer)
    return WorkerExit.RESULT


def _record_stop(recorder: RunDirectoryRecorder, step: int) -> WorkerExit:
    """Keep as an event that the attempt ended as it was asked to; the next goes on after ``step``."""
    try:
        recorder.directory.append_event("pending", cause=recorder.stop.cause, step=step)
    except OSError as problem:
        return _record_failure(recorder.directory, problem)
    return WorkerExit.STOPPED


def _trained(
    trainer: AttemptTrainer, ranks: Ranks, recorder: Recorder, begin: Callable[[], None]
) -> dict[str, Any]:
    """Train at each rank of this machine; returns the result. ``begin`` is done at rank 0, which records."""

    def at_rank(rank: int) -> dict[str, Any]:
        if rank:
            return trainer.train(ranks, SilentRecorder(recorder.stop_requested))
        begin()  # which touches the device: after the fork
        return trainer.train(ranks, recorder)

    are_forked = trainer.forks_ranks and ranks.options.processes > 1
    return ranks.run(at_rank) if are_forked else at_rank(ranks.node)


def _taken_over() -> WorkerExit:
    print("another worker has taken over this trial; nothing more is written here")
    return WorkerExit.NOT_OWNER


def _record_start(recorder: RunDirectoryRecorder, options: RunOptions, trainer: AttemptTrainer) -> None:
    directory, attempt = recorder.directory, recorder.claim.attempt
    directory.require_no_links()
    here = {"attempt": attempt, "device": options.device}
    directory.write_environment(environment() | machine(options.device) | trainer.origin() | here)
    directory.append_event(
        "running",
        attempt=attempt,
        micro_batch=options.micro_batch,
        world_size=options.processes,
        node=os.environ.get("SLURMD_NODENAME"),
        code=snapshot_name(),
        **trainer.reached(),
    )


def _record_failure(
    directory: RunDirectory, problem: Exception, trainer: AttemptTrainer | None = None
) -> WorkerExit:
    """Keep the cause and a digest of the traceback (the same one twice is not tried a third time)."""
    is_said = isinstance(problem, AttemptFailedError)
    text = str(problem) if is_said else "".join(traceback.format_exception(problem))
    print(text, file=sys.stderr, flush=True)
    if isinstance(problem, OSError) and problem.errno in NO_SPACE:
        return WorkerExit.NO_SPACE
    if isinstance(problem, RankKilledError):
        # As if this process had been killed: who watches it finds out by what.
        os.kill(os.getpid(), signal.SIGKILL)
    message = str(problem) if is_said else f"{type(problem).__name__}: {problem}"
    record = as_record(problem, message, is_lost=False)
    cause, more = record["cause"], {"definite": True} if record["definite"] else {}
    if trainer is not None and cause == "error" and not more:
        with suppress(OSError, CorruptRecordError):  # the failure itself has to be on record
            more = trainer.failed()
    if aside := more.get("set_aside"):
        message += f"; two attempts have failed at its checkpoint, which is set aside: {aside}"
    directory.append_event("pending", cause=cause, error=message, traceback=record["digest"], **more)
    return WorkerExit.ERROR


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
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    options = from_dict(RunOptions, values.options)
    if options.compiled:
        keep_compiled_in(private_folder() / "compiled", options.device)
    machine_of_trial = (values.node, values.nodes, values.meeting)
    protocol = from_dict(Protocol, values.protocol)
    attempt = TrialAttempt(values.runs, values.trial_id, options, *machine_of_trial, protocol)
    with redirect_stdout(MaskedStream(sys.stdout)), redirect_stderr(MaskedStream(sys.stderr)):  # log.txt
        code = join_attempt(attempt) if attempt.node else run_attempt(attempt, values.job)
    _let_go_of_the_log()
    return code


def _let_go_of_the_log() -> None:
    """Drop what a full disk did not take: Python would try once more at its end, and exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
