"""What a worker looks at before it trains."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recorded_sweep import directory_of
from scalevec.model.config import RunOptions
from scalevec.model.fields import PlainValues
from scalevec.model.identity import IDENTITY_VERSION
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.worker import train as worker
from scalevec.results.claims import ClaimObserver, newest_attempt
from scalevec.results.masking import MaskedStream
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import ForeignTrial, Trainer


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    """Of a trial whose corpus is not there: to train it is an error."""
    built = directory_of(tmp_path, "baseline", 3)
    built.append_event("queued", executor="slurm")
    return built


@pytest.fixture
def attempt(tmp_path: Path, directory: RunDirectory, monkeypatch):
    """Runs one attempt in this process, whose signals are left as they were; it looks at no machine."""
    monkeypatch.setattr(worker, "lacking", lambda *_: [])
    before = {number: signal.getsignal(number) for number in worker.STOP_SIGNALS}
    yield lambda: worker.run_attempt(worker.TrialAttempt(tmp_path, directory.trial_id, RunOptions()), "token")
    for number, handler in before.items():
        signal.signal(number, handler)


def states(directory: RunDirectory) -> list[str]:
    return [event["state"] for event in directory.events()]


def test_a_cancelled_trial_is_not_trained_by_a_job_that_nobody_knew_of(directory, attempt):
    directory.append_event("cancelled", cause="cancelled")
    assert attempt() is WorkerExit.STOPPED
    assert states(directory) == ["queued", "cancelled"]
    assert not ClaimObserver().is_alive(directory)


def test_a_cancelled_trial_that_was_queued_anew_is_trained(directory, attempt):
    directory.append_event("cancelled", cause="cancelled")
    directory.append_event("pending", cause="asked for again")
    directory.append_event("queued", executor="slurm")
    assert attempt() is WorkerExit.ERROR  # for want of its corpus
    assert "running" in states(directory)


def test_a_trial_of_another_identity_version_is_not_trained(directory, attempt, capsys):
    record = directory.trial()
    record["semantic"]["identity_version"] = 1
    directory.trial_path.write_text(json.dumps(record))
    assert attempt() is WorkerExit.ERROR
    assert f"is of identity version 1, not {IDENTITY_VERSION}; not trained" in capsys.readouterr().out
    assert states(directory) == ["queued"]


def test_fields_that_are_not_those_of_the_trial_with_this_id_are_not_trained(
    directory, attempt, capsys, tmp_path
):
    """They name a command."""
    theirs = Trainer(("touch", str(tmp_path / "ran")))
    trial = ForeignTrial(theirs, PlainValues(width=8), 500, 1000, 3, "ab" * 32)
    record = directory.trial() | {"semantic": trial.semantic_fields()}
    directory.trial_path.write_text(json.dumps(record))
    assert attempt() is WorkerExit.ERROR
    assert "trial.json: holds other fields than those of the trial with this id" in capsys.readouterr().out
    assert not (tmp_path / "ran").exists()


class FullLog:
    """A log on a full disk."""

    def write(self, _text=""):
        raise OSError(errno.ENOSPC, "No space left on device")

    flush = write


def test_no_space_is_told_where_the_log_has_none_either(directory, monkeypatch):
    monkeypatch.setattr(worker.sys, "stderr", MaskedStream(FullLog()))
    problem = OSError(errno.ENOSPC, "No space left on device")
    assert worker._record_failure(directory, problem) is WorkerExit.NO_SPACE


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_worker_whose_log_is_full_keeps_its_exit_code(unbuffered):
    code = (
        "import sys; from scalevec.orchestrator.worker import train;"
        "train.run_attempt = lambda *_: print('no space left') or train.WorkerExit.NO_SPACE;"
        f"sys.exit(train.main(['--runs', '.', '{'a' * 64}']))"
    )
    with Path("/dev/full").open("wb") as full:
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=full, env=environment)
    assert done.returncode == WorkerExit.NO_SPACE


def test_an_error_that_passes_counts_as_an_interruption(directory, capsys):
    for number in (errno.ESTALE, errno.EACCES):
        worker._record_failure(directory, OSError(number, "refused"))
    assert [event["cause"] for event in directory.events()[-2:]] == ["node_failure", "error"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_for_the_claim_is_said_as_such(directory, attempt, monkeypatch, number):
    refuse_claims(monkeypatch, OSError(number, "full", "claims/0001.json"))
    assert attempt() is WorkerExit.NO_SPACE
    assert states(directory) == ["queued"]


def refuse_claims(monkeypatch, problem: OSError) -> None:
    def refuse(*_):
        raise problem

    monkeypatch.setattr(worker, "acquire", refuse)


def test_a_machine_that_lacks_something_leaves_the_trial_unclaimed_and_says_all_of_it(
    directory, attempt, monkeypatch, capsys
):
    monkeypatch.setattr(worker, "lacking", lambda *_: ["CUDA: none", "corpus: gone"])
    assert attempt() is WorkerExit.MACHINE_LACKS
    last = directory.events()[-1]
    assert (last["state"], last["cause"], last["job"]) == ("pending", "not_started", "token")
    assert last["lacks"] == ["CUDA: none", "corpus: gone"]
    assert "the machine lacks what the trial needs: corpus: gone" in capsys.readouterr().out
    assert not newest_attempt(directory)


def test_the_versions_that_the_job_was_sent_with_are_looked_for(directory, attempt, monkeypatch):
    directory.append_event("queued", executor="slurm", job="token", versions={"torch": "9"})
    directory.append_event("queued", executor="slurm", job="another", versions={"torch": "8"})
    monkeypatch.setattr(worker, "lacking", lambda *given: [str(given[-1])])
    assert attempt() is WorkerExit.MACHINE_LACKS
    assert directory.events()[-1]["lacks"] == ["{'torch': '9'}"]


def test_a_runs_folder_without_the_trial_is_another_one(attempt, directory, capsys):
    directory.path.rename(directory.path.with_name("elsewhere"))
    assert attempt() is WorkerExit.MACHINE_LACKS
    assert "runs directory: " in (printed := capsys.readouterr().out)
    assert "is another folder there" in printed


def test_a_file_system_without_hard_links_is_what_the_machine_lacks(directory, attempt, monkeypatch):
    refuse_claims(monkeypatch, PermissionError(errno.EPERM, "Operation not permitted"))
    assert attempt() is WorkerExit.MACHINE_LACKS
    assert "takes no files, or no hard links: " in directory.events()[-1]["lacks"][0]


def test_a_file_server_that_is_away_is_no_lack(directory, attempt, monkeypatch):
    refuse_claims(monkeypatch, OSError(errno.ESTALE, "Stale file handle"))
    with pytest.raises(OSError, match="Stale"):
        attempt()
    assert states(directory) == ["queued"]
