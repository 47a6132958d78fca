"""A trial of several processes on this machine: one attempt, of which no process is left behind."""

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch

from parallel_worlds import small_trial
from scalevec.model.config import RunOptions
from scalevec.model.data import CorpusConfig
from scalevec.model.data.corpus import Corpus
from scalevec.model.data.prepare import prepare
from scalevec.model.fields import to_dict
from scalevec.model.identity import semantic_fields, trial_id
from scalevec.model.train import checkpoint_steps, ddp
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.sources.runs import TrainedTrial
from scalevec.orchestrator.worker import ranks
from scalevec.orchestrator.worker import train as worker
from scalevec.orchestrator.worker.failures import AttemptFailedError
from scalevec.results.run_directory import RunDirectory
from support import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks end with their leader on Linux alone")
PATIENCE_S = 300


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, text_files) -> Corpus:
    config = CorpusConfig("text", "bytes", 256, (str(text_files / "*.txt"),))
    return prepare(config, tmp_path_factory.mktemp("ranks") / "corpora", lambda _: None)


class Attempts:
    """Attempts at one trial in a runs directory of its own."""

    def __init__(self, folder: Path, corpus: Corpus, **options) -> None:
        trial = small_trial(corpus, "muon")
        folder.mkdir()
        (folder / "corpora").symlink_to(corpus.directory.parent)
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
        others = leader.children(recursive=True)
        code = os.waitstatus_to_exitcode(os.waitpid(leader.pid, 0)[1])
        _, left = psutil.wait_procs(others, timeout=PATIENCE_S)
        assert not left
        return code

    def losses(self) -> list[float]:
        result = self.directory.result()
        rows = [row["loss"] for row in self.directory.metrics_before_damage()]
        return [result["loss"], result["loss_validation"], *rows]

    def last(self) -> dict:
        return self.directory.events()[-1]


def stand_at(step: int, hold: Path) -> None:
    """Lets rank 0 wait before it records ``step``, while ``hold`` is there."""
    record = worker.RunDirectoryRecorder.record

    def waiting(self, row) -> None:
        if row["step"] == step:
            hold.with_suffix(".reached").touch()
        while row["step"] == step and hold.exists() and not self.stop_requested():
            time.sleep(0.01)
        record(self, row)

    worker.RunDirectoryRecorder.record = waiting


@pytest.fixture
def make(tmp_path, corpus) -> Callable[..., Attempts]:
    return lambda name, **options: Attempts(tmp_path / name, corpus, **options)


def until(attempts: Attempts, step: int) -> None:
    wait_until(lambda: len(attempts.directory.metrics_before_damage()) >= step)


@pytest.mark.slow
@pytest.mark.parametrize(("of", "shard"), [("rank 0", True), ("rank 1", False), ("the worker", False)])
def test_after_kill_9_of_a_rank_none_is_left_and_the_next_ends_with_the_same_bits(of, shard, make, tmp_path):
    undisturbed = make("whole", shard=shard)
    undisturbed.end(undisturbed.begin())
    hold, attempts = tmp_path / "hold", make("killed", checkpoint_s=1e-9, shard=shard)
    hold.touch()
    worker_process = attempts.begin(partial(stand_at, 4, hold))
    until(attempts, 3)
    first, second = ranks_of(worker_process)
    {"rank 0": first, "rank 1": second, "the worker": worker_process}[of].kill()
    hold.unlink()
    assert attempts.end(worker_process) == -signal.SIGKILL
    assert attempts.directory.result() is None
    assert attempts.end(attempts.begin()) == WorkerExit.RESULT
    assert attempts.directory.result()["resumes"] == 1
    assert attempts.losses() == undisturbed.losses()


def ranks_of(worker_process: psutil.Process) -> list[psutil.Process]:
    return sorted(worker_process.children(), key=lambda rank: rank.pid)


@pytest.mark.parametrize(("number", "to"), [(signal.SIGTERM, "all"), (signal.SIGUSR2, "the worker")])
def test_a_signal_before_the_limit_reaches_all_ranks_and_ends_in_one_checkpoint(number, to, make, tmp_path):
    hold, attempts = tmp_path / "hold", make("stopped")
    hold.touch()
    worker_process = attempts.begin(partial(stand_at, 3, hold))
    until(attempts, 2)
    wait_until(hold.with_suffix(".reached").exists)
    for process in [worker_process, *(ranks_of(worker_process) if to == "all" else [])]:
        process.send_signal(number)
    assert attempts.end(worker_process) == WorkerExit.STOPPED
    last = attempts.last()
    cause = "timeout" if number == signal.SIGUSR2 else "preempted"
    assert (last["state"], last["step"], last["cause"]) == ("pending", 3, cause)
    assert checkpoint_steps(attempts.directory.checkpoints_path) == [3]


def test_two_processes_make_one_attempt_and_the_model_of_a_sharded_trial_is_read_as_any_other(make):
    shared, sharded = (make(str(shard), keep="weights", shard=shard) for shard in (False, True))
    models = []
    for attempts in (shared, sharded):
        assert attempts.end(attempts.begin()) == WorkerExit.RESULT
        models.append(TrainedTrial(attempts.directory.path).model().state_dict())
    result, running = sharded.directory.result(), sharded.directory.events()[-2]
    assert (result["status"], result["world_size"]) == ("completed", 2)
    assert (running["attempt"], running["world_size"]) == (1, 2)
    assert [row["step"] for row in sharded.directory.metrics_before_damage()] == [1, 2, 3, 4, 5]
    # AdamW turns the rounding of a gradient near zero into a step of any size: single entries may differ.
    for name, tensor in models[0].items():
        assert torch.dist(models[1][name], tensor) < 1e-3 * torch.linalg.norm(tensor), name


def fail_at(rank: int, problem: Exception, others_wait_s: float = 0.0) -> None:
    """``rank`` fails before it trains; the others begin later by that time."""
    train = worker.train

    def failing(trial, corpus, options, recorder, checkpoints, trunk, world):
        if world.rank == rank:
            raise problem
        time.sleep(others_wait_s)
        return train(trial, corpus, options, recorder, checkpoints, trunk, world)

    worker.train = failing


@pytest.mark.parametrize(
    ("of_rank", "problem", "cause"),
    [
        (0, torch.OutOfMemoryError("CUDA out of memory"), "out_of_memory"),
        (1, OSError(errno.EIO, "Input/output error"), "node_failure"),
        (1, ValueError("shapes differ"), "error"),
    ],
)
def test_what_fails_at_one_rank_is_on_record_with_its_cause(of_rank, problem, cause, make, capfd):
    attempts = make("scarce")
    assert attempts.end(attempts.begin(partial(fail_at, of_rank, problem))) == WorkerExit.ERROR
    assert attempts.last()["cause"] == cause
    message = f"rank {of_rank} on {os.uname().nodename}: {type(problem).__name__}: {problem}"
    assert message in attempts.last()["error"]
    assert f"rank {of_rank}: Traceback" in capfd.readouterr().err  # log.txt, but for the test's capture


def test_a_full_disk_of_rank_0_is_the_end_of_the_attempt_as_that_of_one_process(make):
    attempts, full = make("full"), OSError(errno.ENOSPC, "No space left on device")
    assert attempts.end(attempts.begin(partial(fail_at, 0, full))) == WorkerExit.NO_SPACE


@pytest.mark.slow
def test_a_rank_that_hangs_beside_one_that_failed_is_ended(make):
    attempts, problem = make("hanging"), torch.OutOfMemoryError("CUDA out of memory")
    hangs = partial(fail_at, 1, problem, PATIENCE_S)  # as for a device that waits for the other one
    assert attempts.end(attempts.begin(hangs)) == WorkerExit.ERROR
    assert attempts.last()["cause"] == "out_of_memory"


@pytest.mark.slow
def test_a_rank_that_is_stopped_but_not_dead_ends_the_attempt_and_the_next_goes_on(make, tmp_path):
    hold, attempts = tmp_path / "hold", make("stopped", checkpoint_s=1e-9)
    hold.touch()

    def impatient() -> None:
        stand_at(4, hold)
        ddp.PATIENCE = timedelta(seconds=5)

    worker_process = attempts.begin(impatient)
    until(attempts, 3)
    ranks_of(worker_process)[0].suspend()
    hold.unlink()
    assert attempts.end(worker_process) == WorkerExit.ERROR
    assert attempts.last()["cause"] == "node_failure"
    assert f"another rank was lost: rank 1 on {os.uname().nodename}" in attempts.last()["error"]
    assert attempts.end(attempts.begin()) == WorkerExit.RESULT
    assert attempts.directory.result()["resumes"] == 1


@pytest.mark.parametrize("trait", ["code", "corpus"])
def test_a_rank_that_would_train_something_else_ends_the_attempt_with_both_values(trait, make):
    def unlike() -> None:
        traits = ranks.traits

        def changed(corpus, device):
            return {**traits(corpus, device), **({trait: "another"} if os.environ["RANK"] == "1" else {})}

        ranks.traits = changed

    attempts = make("unlike")
    assert attempts.end(attempts.begin(unlike)) == WorkerExit.ERROR
    error = attempts.last()["error"]
    assert f"the ranks of a trial need the same {trait}: rank 1 on " in error
    assert f"has another, rank 0 on {os.uname().nodename} has " in error


@pytest.mark.parametrize("node", [0, 1])
def test_machines_that_do_not_meet_are_a_node_failure_that_names_them(node, monkeypatch, tmp_path):
    monkeypatch.setattr(ranks, "LIMIT_S", 1.0)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    first = ranks.ranks_here(RunOptions(processes=2), 2, tmp_path / "meeting.json")
    if node:
        first.listener.close()
        first = replace(first, node=1, listener=None)
    message = r"the 2 machines of this trial, sent to n\[1-2\],"
    with pytest.raises(AttemptFailedError, match=message) as failure:
        first.run(lambda _: {})
    assert failure.value.cause == "node_failure"
    says = f"machine {node}, {os.uname().nodename}, says: "
    assert (says if node else f"{says}not here: machine 1") in str(failure.value)


def test_a_machine_that_failed_before_they_met_is_not_waited_for(monkeypatch, tmp_path):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    first = ranks.ranks_here(RunOptions(processes=2), 2, tmp_path / "meeting.json")
    replace(first, node=1, listener=None).report(AttemptFailedError("no such GPU"))
    with pytest.raises(AttemptFailedError, match="no such GPU"):
        first.run(lambda _: {})


def test_two_machines_run_their_ranks_and_the_first_is_told_what_ended_the_second(monkeypatch, tmp_path):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    first = ranks.ranks_here(RunOptions(processes=4), 2, tmp_path / "meeting.json")
    first.call_others()
    sys.stdout.flush()
    second = os.fork()
    if second == 0:
        there = ranks.ranks_there(RunOptions(processes=4), 1, 2, tmp_path / "meeting.json")
        try:
            there.run(fails_at_3)
        except AttemptFailedError as problem:
            there.report(problem)
        finally:
            os._exit(0)
    with pytest.raises(AttemptFailedError, match=r"rank 3 on .*: OutOfMemoryError: CUDA") as failure:
        first.run(fails_at_3)
    assert failure.value.cause == "out_of_memory"
    os.waitpid(second, 0)


def fails_at_3(rank: int) -> dict:
    if rank == 3:
        raise torch.OutOfMemoryError("CUDA out of memory")
    with ddp.ProcessGroup("cpu") as world:
        world.any_rank(False)
    return {}


def test_the_ranks_of_one_machine_meet_at_its_loopback_alone():
    listener = ranks.ranks_here(RunOptions(processes=2)).listener
    assert listener.getsockname()[0] == "127.0.0.1"
    listener.close()
