"""A trial of several processes on this machine: one attempt, of which no process is left behind."""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from parallel_worlds import small_trial
from scalevec.model.config import RunOptions, Trial
from scalevec.model.data.prepare import Corpus, CorpusConfig, prepare
from scalevec.model.fields import to_dict
from scalevec.model.identity import semantic_fields, trial_id
from scalevec.model.train import checkpoint as checkpoints
from scalevec.model.train.checkpoint_folder import newest_step
from scalevec.model.train.parallel import meeting
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.attempts.retry_policy import decide
from scalevec.orchestrator.sources.trained import TrainedTrial
from scalevec.orchestrator.worker import ranks, room_here
from scalevec.orchestrator.worker import train as worker
from scalevec.orchestrator.worker.trainers import own_loop
from scalevec.results.run_directory import RunDirectory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks end with their leader on Linux alone")
PATIENCE_S = 300


@pytest.fixture(scope="module")
def corpora(tmp_path_factory, text_files) -> Path:
    return tmp_path_factory.mktemp("ranks") / "corpora"


@pytest.fixture(scope="module")
def corpus(corpora, text_files) -> Corpus:
    return prepare(CorpusConfig("text", "bytes", 256, (str(text_files / "*.txt"),)), corpora, lambda _: None)


class Attempts:
    """Attempts at one trial in a runs directory of its own."""

    def __init__(self, folder: Path, corpora: Path, trial: Trial, **options) -> None:
        folder.mkdir()
        (folder / "corpora").symlink_to(corpora)
        self.runs_dir = folder
        self.options = RunOptions(processes=2, **options)
        self.directory = RunDirectory.of(folder, trial_id(trial))
        self.directory.create(semantic_fields(trial), {})

    def begin(self, change=lambda: None) -> psutil.Process:
        """A process that makes an attempt; ``change`` is done there before."""
        sys.stdout.flush()
        child = os.fork()
        if child:
            return psutil.Process(child)
        code = 1
        try:
            log = os.open(self.directory.log_path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
            os.dup2(log, 1)
            os.dup2(log, 2)
            torch.set_num_threads(1)
            change()
            arguments = ["--runs", str(self.runs_dir), "--options", json.dumps(to_dict(self.options))]
            code = worker.main([*arguments, self.directory.trial_id])
        finally:
            os._exit(code)

    def end(self, leader: psutil.Process) -> int:
        """The exit code of an attempt, when it is over; no process of it is left."""
        others = leader.children()
        code = os.waitstatus_to_exitcode(os.waitpid(leader.pid, 0)[1])
        _, left = psutil.wait_procs(others, timeout=PATIENCE_S)
        assert not left
        return code

    def losses(self) -> list[float]:
        result = self.directory.result()
        assert result is not None
        rows = [row["loss"] for row in self.directory.metrics_before_damage()]
        return [result["loss"], result["loss_validation"], *rows]

    def last(self) -> dict:
        return self.directory.events()[-1]


def stand_at(step: int, hold: Path):
    """A change that lets rank 0 wait before it records ``step``, while ``hold`` is there."""

    def change() -> None:
        record = worker.RunDirectoryRecorder.record

        def waiting(self, row) -> None:
            while row["step"] == step and hold.exists() and not self.stop_requested():
                time.sleep(0.01)
            record(self, row)

        worker.RunDirectoryRecorder.record = waiting

    return change


def wait_at_most(seconds: float) -> None:
    """Within a change: ranks wait so long for each other."""
    seat = meeting.Seat
    meeting.Seat = lambda *values: replace(seat(*values), limit_s=seconds)


@pytest.fixture
def make(tmp_path, corpora, corpus):
    def make(name: str, trial: Trial | None = None, **options) -> Attempts:
        return Attempts(tmp_path / name, corpora, trial or small_trial(corpus, "muon"), **options)

    return make


def until(attempts: Attempts, step: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(attempts.directory.metrics_before_damage()) < step:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_processes_make_one_attempt_with_one_claim_and_one_result(make):
    attempts = make("together")
    assert attempts.end(attempts.begin()) == WorkerExit.RESULT
    result, running = attempts.directory.result(), attempts.directory.events()[-2]
    assert (result["status"], result["world_size"]) == ("completed", 2)
    assert (running["attempt"], running["world_size"]) == (1, 2)
    assert [row["step"] for row in attempts.directory.metrics_before_damage()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("of_rank", [0, 1])
def test_after_kill_9_of_a_rank_none_is_left_and_the_next_attempt_ends_with_the_same_bits(
    of_rank, make, tmp_path
):
    undisturbed = make("whole")
    undisturbed.end(undisturbed.begin())
    hold, attempts = tmp_path / "hold", make("killed", checkpoint_s=1e-9)
    hold.touch()
    leader = attempts.begin(stand_at(4, hold))
    until(attempts, 3)
    (follower,) = leader.children()
    (follower if of_rank else leader).kill()
    hold.unlink()
    assert attempts.end(leader) == -signal.SIGKILL
    assert attempts.directory.result() is None
    assert attempts.end(attempts.begin()) == WorkerExit.RESULT
    assert attempts.directory.result()["resumes"] == 1
    assert attempts.losses() == undisturbed.losses()


def test_after_kill_9_of_a_rank_that_writes_its_shard_the_checkpoint_before_is_used(make):
    def mortal() -> None:
        leader, sync = os.getpid(), checkpoints.sync

        def killed(path) -> None:
            if os.getpid() != leader and "step-000000003" in str(path):
                os.kill(os.getpid(), signal.SIGKILL)
            sync(path)

        checkpoints.sync = killed

    undisturbed, attempts = make("whole", shard=True), make("killed", shard=True, checkpoint_s=1e-9)
    undisturbed.end(undisturbed.begin())
    assert attempts.end(attempts.begin(mortal)) == -signal.SIGKILL
    assert newest_step(attempts.directory.checkpoints_path) == 2
    assert attempts.end(attempts.begin()) == WorkerExit.RESULT
    assert attempts.directory.result()["resumes"] == 1
    assert attempts.losses() == undisturbed.losses()


def test_the_model_of_a_sharded_trial_is_read_from_its_shards(make):
    shared, sharded = (make(str(shard), keep="weights", shard=shard) for shard in (False, True))
    models = []
    for attempts in (shared, sharded):
        assert attempts.end(attempts.begin()) == WorkerExit.RESULT
        models.append(TrainedTrial(attempts.directory.path).model().state_dict())
    assert sharded.directory.result()["world_size"] == 2
    for name, tensor in models[0].items():
        torch.testing.assert_close(models[1][name], tensor, rtol=1e-3, atol=1e-4)


def test_a_request_to_stop_ends_all_ranks_with_a_checkpoint(make, tmp_path):
    hold, attempts = tmp_path / "hold", make("stopped")
    hold.touch()
    leader = attempts.begin(stand_at(3, hold))
    until(attempts, 2)
    leader.terminate()
    assert attempts.end(leader) == WorkerExit.STOPPED
    assert (attempts.last()["state"], attempts.last()["step"]) == ("pending", 3)


def test_what_another_rank_lacks_memory_for_is_the_end_of_the_attempt(make):
    def scarce() -> None:
        train = own_loop.train

        def lacking(trial, corpus, options, recorder, checkpoints, trunk, world):
            if world.rank == 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return train(trial, corpus, options, recorder, checkpoints, trunk, world)

        own_loop.train = lacking

    attempts = make("scarce")
    assert attempts.end(attempts.begin(scarce)) == WorkerExit.ERROR
    assert attempts.last()["cause"] == "out_of_memory"
    assert attempts.last()["error"].startswith("rank 1 on ")


def test_a_leader_that_hangs_ends_with_what_another_rank_lacked(make):
    def hanging() -> None:
        ranks.HANGING_S = 0.5

        def lacking(trial, corpus, options, recorder, checkpoints, trunk, world):
            if world.rank == 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            time.sleep(PATIENCE_S)  # as for a device that waits for the other one

        own_loop.train = lacking

    attempts = make("hanging")
    assert attempts.end(attempts.begin(hanging)) == WorkerExit.ERROR
    assert attempts.last()["cause"] == "out_of_memory"
    assert attempts.last()["error"].startswith("rank 1 on ")


def test_a_rank_without_room_ends_the_attempt_before_the_training_with_what_would_fit(make):
    def small() -> None:
        leader = os.getpid()
        room_here.memory_limit = lambda: None if os.getpid() == leader else 10**8

    attempts = make("small")
    assert attempts.end(attempts.begin(small)) == WorkerExit.ERROR
    assert not decide(attempts.directory.events(), 4).again
    assert "of memory that it may use here, shared by 2 processes" in attempts.last()["error"]
    assert attempts.directory.metrics_before_damage() == []


def test_a_rank_that_does_not_come_is_a_node_failure_that_names_the_hosts(make):
    def lonely() -> None:
        wait_at_most(0.5)
        worker._follow = lambda *_: 0

    attempts = make("lonely")
    assert attempts.end(attempts.begin(lonely)) == WorkerExit.ERROR
    assert attempts.last()["cause"] == "node_failure"
    assert (
        f"rank 1 of 2 did not come in 0.5 s; there are rank 0 on {os.uname().nodename}"
        in (attempts.last()["error"])
    )


@pytest.mark.slow
@pytest.mark.parametrize("of_rank", [0, 1])
def test_a_rank_that_is_stopped_but_not_dead_ends_the_attempt_and_the_next_goes_on(
    of_rank, make, tmp_path, capfd
):
    hold, attempts = tmp_path / "hold", make("stopped", checkpoint_s=1e-9)
    hold.touch()
    stand = stand_at(4, hold)

    def impatient() -> None:
        stand()
        wait_at_most(5.0)

    leader = attempts.begin(impatient)
    until(attempts, 3)
    (follower,) = leader.children()
    (follower if of_rank else leader).suspend()
    hold.unlink()
    code = attempts.end(leader)
    silence = f"rank {of_rank} on {os.uname().nodename}: no sign of life for 5 s"
    if of_rank:
        assert code == WorkerExit.ERROR
        assert (attempts.last()["cause"], attempts.last()["error"]) == ("node_failure", silence)
    else:
        assert code == -signal.SIGKILL
        assert silence in capfd.readouterr().out
    assert attempts.end(attempts.begin()) == WorkerExit.RESULT
    assert attempts.directory.result()["resumes"] == 1


@pytest.mark.parametrize("trait", ["code", "corpus", "kind of device"])
def test_a_rank_that_would_train_something_else_ends_the_attempt_with_both_values(trait, make):
    def unlike() -> None:
        leader, traits = os.getpid(), ranks.traits

        def changed(corpus, device):
            return {**traits(corpus, device), **({} if os.getpid() == leader else {trait: "another"})}

        ranks.traits = changed

    attempts = make("unlike")
    assert attempts.end(attempts.begin(unlike)) == WorkerExit.ERROR
    error = attempts.last()["error"]
    assert f"the ranks of a trial need the same {trait}: rank 1 on " in error
    assert f"has another, rank 0 on {os.uname().nodename} has " in error
