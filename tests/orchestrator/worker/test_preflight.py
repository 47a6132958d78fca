"""What a worker finds that its machine lacks, in its first second."""

import importlib.metadata
import sys

import pytest

from scalevec.model.config import RunOptions
from scalevec.model.data import CorpusConfig
from scalevec.model.data.prepare import prepare
from scalevec.orchestrator.attempts.jobs import WORKER
from scalevec.orchestrator.worker import preflight as module
from scalevec.orchestrator.worker.preflight import lacking, versions_sent_with, versions_to_send
from support import run_python

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
    def installed(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", installed)
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
