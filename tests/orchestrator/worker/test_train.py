"""What a worker owes to the trial that it has claimed."""

import errno
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from scalevec.model.config import RunOptions
from scalevec.model.identity import IDENTITY_VERSION
from scalevec.model.train.checkpoint import Checkpoint, save_checkpoint
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.worker import recording
from scalevec.orchestrator.worker import train as worker
from scalevec.orchestrator.worker.ranks import Ranks
from scalevec.orchestrator.worker.recording import RunDirectoryRecorder, SupersededError
from scalevec.results.claims import acquire, end_claim
from scalevec.results.columns import environment_columns
from scalevec.results.run_directory import RunDirectory

PATIENCE_S = 300


@pytest.fixture
def recorder(tmp_path) -> RunDirectoryRecorder:
    """Of a trial that this process has claimed."""
    directory = RunDirectory.of(tmp_path, "ab12" * 16)
    directory.create({"seed": 1, "identity_version": IDENTITY_VERSION}, {})
    return RunDirectoryRecorder(directory, acquire(directory, {}))


def test_a_beat_that_fails_is_tried_again(monkeypatch):
    beats = threading.Semaphore(0)
    problems = [OSError(errno.EIO, "Input/output error")]

    class FlakyClaim:
        def beat(self) -> None:
            if problems:
                raise problems.pop()
            beats.release()

    monkeypatch.setattr(worker, "BEAT_S", 0.001)
    with worker._beating(FlakyClaim()):
        assert beats.acquire(timeout=PATIENCE_S)


def test_a_machine_that_was_suspended_looks_at_its_claim_before_the_next_row(recorder, monkeypatch):
    clocks = {time.CLOCK_MONOTONIC: 10.0, time.CLOCK_BOOTTIME: 10.0}
    monkeypatch.setattr(recording.time, "clock_gettime", clocks.__getitem__)
    monkeypatch.setattr(recording.time, "monotonic", lambda: 10.0)
    recorder.require_ownership()
    recorder.record({"step": 1})
    end_claim(recorder.directory, recorder.claim.attempt, "found stale by another machine")
    clocks[time.CLOCK_BOOTTIME] += 3600
    with pytest.raises(SupersededError):
        recorder.record({"step": 2})
    assert recorder.directory.last_step() == 1


def test_a_process_stopped_just_after_its_look_does_not_touch_what_its_successor_wrote(recorder, monkeypatch):
    recorder.record({"step": 1})
    now = recording._now

    def taken_over_after_the_look() -> float:
        monkeypatch.setattr(recording, "_now", now)
        looked_at = now()
        end_claim(recorder.directory, recorder.claim.attempt, "found stale by another machine")
        successor = RunDirectoryRecorder(recorder.directory, acquire(recorder.directory, {}))
        successor.cut_back(0)
        successor.record({"step": 1})
        return looked_at

    monkeypatch.setattr(recording, "_now", taken_over_after_the_look)
    recorder.record({"step": 2})
    assert recorder.directory.metrics() == [{"step": 1}]


def attempt(recorder: RunDirectoryRecorder, train) -> WorkerExit:
    trainer = SimpleNamespace(
        train=train, forks_ranks=True, reached=lambda: {"step": 0}, origin=dict, failed=dict
    )
    return worker._train_and_record(trainer, Ranks(RunOptions()), recorder)


def test_what_fails_in_a_worker_that_was_taken_over_is_not_recorded_as_the_trials(recorder):
    def train(*_):
        end_claim(recorder.directory, recorder.claim.attempt, "found stale")
        acquire(recorder.directory, {})
        recorder.directory.append_event("running", attempt=2)
        raise FileNotFoundError(errno.ENOENT, "its temporary file is gone")

    assert attempt(recorder, train) == WorkerExit.NOT_OWNER
    assert recorder.directory.state().state == "running"


def test_what_fails_in_its_owner_is_recorded(recorder):
    def train(*_):
        raise RuntimeError("wrong")

    assert attempt(recorder, train) == WorkerExit.ERROR
    assert recorder.directory.state().cause == "error"


def test_an_attempt_records_its_machine_and_threads(recorder):
    assert attempt(recorder, lambda *_: {"status": "completed"}) == WorkerExit.RESULT
    (record,) = recorder.directory.environments()
    columns = environment_columns([record])
    assert columns["threads"] == str(torch.get_num_threads())
    assert columns["torch_version"] == record["versions"]["torch"]
    assert columns["cpu_model"]
    assert columns["local_changes"] == record["local_changes"]


THEIRS = {"trainer": {"command": ["true"]}}
"""Of a trial that needs no corpus of ours."""


@pytest.mark.parametrize(("keep", "left"), [("none", 0), ("weights", 1), ("all", 1), (None, 2)])
def test_a_worker_that_finds_a_result_prunes_as_its_maker_would(keep, left, recorder, monkeypatch, tmp_path):
    directory = recorder.directory
    for step in (1, 2):
        save_checkpoint(directory.checkpoints_path, Checkpoint(step, {"a": torch.zeros(1)}, {}))
    directory.write_result({"status": "completed", "keep": keep})
    recorder.claim.release()
    monkeypatch.setattr(worker.TrialAttempt, "trainer", lambda _: None)
    monkeypatch.setattr(worker.TrialAttempt, "fields", lambda _: THEIRS)
    again = worker.TrialAttempt(tmp_path, directory.trial_id, RunOptions(keep="none"))
    assert worker.run_attempt(again, "") == WorkerExit.RESULT
    assert len(list(directory.checkpoints_path.iterdir())) == left


INTERRUPTED = """
import signal, sys
from scalevec.orchestrator.worker.recording import StopRequest

stop, nested = StopRequest(), []

def second(frame, event, argument):
    if not nested:
        nested.append(True)
        stop.take(signal.SIGTERM, frame)
        nested.clear()
    return second

sys.settrace(second)
stop.take(signal.SIGTERM, None)
sys.settrace(None)
print(stop.is_made())
"""


def test_a_second_signal_may_interrupt_the_handler_of_the_first_anywhere():
    """SLURM signals every process of a step, and the job's script passes on what it gets."""
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == "True", ended.stderr
