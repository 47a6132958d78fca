"""What a worker looks at before it trains, and what it finds that its machine lacks."""

import errno
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from foreign_trials import same_signals
from recorded_sweep import directory_of
from scalevec.model.config import RunOptions
from scalevec.model.data import CorpusConfig
from scalevec.model.data.prepare import prepare
from scalevec.model.fields import PlainValues
from scalevec.model.identity import IDENTITY_VERSION
from scalevec.orchestrator.attempts.jobs import WORKER, WorkerExit
from scalevec.orchestrator.worker import preflight as module
from scalevec.orchestrator.worker import train as worker
from scalevec.orchestrator.worker.preflight import lacking, versions_sent_with, versions_to_send
from scalevec.results.claims import ClaimObserver, newest_attempt
from scalevec.results.masking import MaskedStream
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import ForeignTrial, Trainer
from support import run_python


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
    attempted = worker.TrialAttempt(tmp_path, directory.trial_id, RunOptions())
    with same_signals():
        yield lambda: worker.run_attempt(attempted, "token")


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


def test_fields_that_are_not_those_of_the_trials_id_are_not_trained(directory, attempt, capsys, tmp_path):
    """They name a command."""
    theirs = Trainer(("touch", str(tmp_path / "ran")))
    trial = ForeignTrial(theirs, PlainValues(width=8), 500, 1000, 3, "ab" * 32)
    record = directory.trial() | {"semantic": trial.semantic_fields()}
    directory.trial_path.write_text(json.dumps(record))
    assert attempt() is WorkerExit.ERROR
    assert "trial.json: holds other fields than those of the trial with this id" in capsys.readouterr().out
    assert not (tmp_path / "ran").exists()


def test_no_space_is_told_where_the_log_has_none_either(directory, monkeypatch):
    problem = OSError(errno.ENOSPC, "No space left on device")
    full = Mock(write=Mock(side_effect=problem), flush=Mock(side_effect=problem))
    monkeypatch.setattr(worker.sys, "stderr", MaskedStream(full))
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
    full = OSError(number, "full", "claims/0001.json")
    monkeypatch.setattr(worker, "acquire", Mock(side_effect=full))
    assert attempt() is WorkerExit.NO_SPACE
    assert states(directory) == ["queued"]


def test_a_machine_that_lacks_something_claims_no_trial_and_says_all(directory, attempt, monkeypatch, capsys):
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


def test_a_script_that_removed_its_runs_files_is_named(attempt, directory, capsys):
    directory.log_path.touch()
    directory.trial_path.unlink()
    assert attempt() is WorkerExit.MACHINE_LACKS
    assert "trial.json, which an attempt has removed: a script may write to {out} alone" in (
        capsys.readouterr().out
    )


def test_a_file_system_without_hard_links_is_what_the_machine_lacks(directory, attempt, monkeypatch):
    refusal = PermissionError(errno.EPERM, "Operation not permitted")
    monkeypatch.setattr(worker, "acquire", Mock(side_effect=refusal))
    assert attempt() is WorkerExit.MACHINE_LACKS
    assert "takes no files, or no hard links: " in directory.events()[-1]["lacks"][0]


def test_a_file_server_that_is_away_is_no_lack(directory, attempt, monkeypatch):
    stale = OSError(errno.ESTALE, "Stale file handle")
    monkeypatch.setattr(worker, "acquire", Mock(side_effect=stale))
    with pytest.raises(OSError, match="Stale"):
        attempt()
    assert states(directory) == ["queued"]


HERE = versions_to_send((sys.executable,))
THEIRS = {"trainer": {"command": ["true"]}}
"""Of a trial that needs no corpus of ours."""


def test_this_machine_is_like_itself(tmp_path):
    assert HERE.keys() == {"Python", "torch", "scalevec"}
    assert lacking(tmp_path, THEIRS, RunOptions(), HERE) == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", HERE)
def test_another_version_is_named_with_both(tmp_path, name):
    expected = f"{name}: {HERE[name]} there, other where it was sent from"
    assert lacking(tmp_path, THEIRS, RunOptions(), HERE | {name: "other"}) == [expected]


def test_a_package_that_is_not_installed_has_no_version(tmp_path, monkeypatch):
    absent = importlib.metadata.PackageNotFoundError("torch")
    monkeypatch.setattr(importlib.metadata, "version", Mock(side_effect=absent))
    told = lacking(tmp_path, THEIRS, RunOptions(), {"torch": HERE["torch"]})
    assert told == [f"torch: None there, {HERE['torch']} where it was sent from"]


def test_another_interpreter_may_have_another_torch():
    assert versions_to_send(("apptainer", "exec", sys.executable)).keys() == {"scalevec"}
    assert versions_to_send(("/opt/python",)).keys() == {"scalevec"}


def test_a_job_is_compared_with_what_it_was_sent_with_itself():
    events = [
        {"state": "queued", "job": "a", "versions": {"torch": "1"}},
        {"state": "pending", "job": "a"},
        {"state": "queued", "job": "b", "versions": {"torch": "2"}},
    ]
    assert versions_sent_with(events, "a") == {"torch": "1"}
    assert versions_sent_with(events, "c") == {}
    assert versions_sent_with([{"state": "queued", "job": "a", "versions": "1"}], "a") == {}


def test_a_missing_compiler_is_noticed_where_blocks_are_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "missing_compiler", lambda device: f"a compiler for {device}")
    assert lacking(tmp_path, THEIRS, RunOptions(), {}) == []
    (told,) = lacking(tmp_path, THEIRS, RunOptions(compiled=True), {})
    assert "lacks a compiler for cpu: load it in the profile's setup, or give compile: never" in told


@pytest.mark.parametrize("n_gpus", [0, 1])
def test_a_machine_without_the_gpu_asked_for_is_noticed(tmp_path, monkeypatch, n_gpus):
    monkeypatch.setattr("torch.cuda.device_count", lambda: n_gpus)
    told = lacking(tmp_path, THEIRS, RunOptions(device="cuda"), {})
    assert ["sees no GPU there" in problem for problem in told] == [True] * (1 - n_gpus)


def test_a_corpus_that_is_not_there_is_noticed_beside_all_else(tmp_path):
    told = lacking(tmp_path, {"corpus": "f" * 64}, RunOptions(), {"torch": "other"})
    assert [problem.partition(":")[0] for problem in told] == ["torch", "corpus"]
    assert "is not under" in told[1]


@pytest.fixture
def corpus(tmp_path, text_files):
    files = tuple(str(path) for path in sorted(text_files.glob("*.txt")))
    return prepare(CorpusConfig("text", "bytes", 256, files), tmp_path / "corpora", lambda _: None)


def test_a_corpus_that_is_there_is_good(tmp_path, corpus):
    assert lacking(tmp_path, {"corpus": corpus.fingerprint}, RunOptions(), {}) == []


def test_a_corpus_whose_shard_has_changed_is_noticed(tmp_path, corpus):
    shard = corpus.directory / "test.bin"
    shard.write_bytes(shard.read_bytes()[::-1])
    (told,) = lacking(tmp_path, {"corpus": corpus.fingerprint}, RunOptions(), {})
    assert f"{shard} is not what was written" in told


def test_a_plugin_that_cannot_be_imported_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "problems_here", lambda: ["mylab.arms: cannot be imported"])
    assert lacking(tmp_path, THEIRS, RunOptions(), {}) == ["plugin: mylab.arms: cannot be imported"]


def test_the_module_loads_no_torch():
    name = f"{WORKER[-1].rpartition('.')[0]}.preflight"
    assert run_python(f"import {name}, sys; print('torch' in sys.modules)").stdout == "False\n"
