"""The preflight job: what it finds on the machine that runs trials, and how that is told."""

import importlib.metadata
import json
from dataclasses import replace
from pathlib import Path

import pytest

from scalevec.model.data import CorpusConfig
from scalevec.model.data.prepare import prepare
from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.base import Ended, Site
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.sweep import preflight as module
from scalevec.orchestrator.sweep.machine_checks import Machine, preflight
from scalevec.orchestrator.sweep.preflight import Expected, code_here, look
from support import run_python


@pytest.fixture
def here(tmp_path) -> Expected:
    """What this machine has, and a folder with its token."""
    (tmp_path / "token").write_text("abc")
    return Expected(code_here(), folder=str(tmp_path), token="abc")


def problems(runs: Path, expected: Expected) -> dict[str, str]:
    return {check.name: check.problem for check in look(runs, expected) if check.problem}


def test_this_machine_is_like_itself(tmp_path, here):
    assert problems(tmp_path, here) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["token"]


@pytest.mark.parametrize("name", code_here())
def test_another_version_is_named_with_both(tmp_path, here, name):
    code = here.code | {name: "other"}
    assert problems(tmp_path, replace(here, code=code)) == {name: f"{here.code[name]} there, other here"}


def test_a_machine_without_torch_is_noticed_beside_all_else(tmp_path, here, monkeypatch):
    def installed(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", installed)
    expected = replace(here, free_bytes=10**18, code={"torch": here.code["torch"]})
    lacking = problems(tmp_path, expected)
    assert lacking.keys() == {"torch", "space"}
    assert lacking["torch"] == f"None there, {here.code['torch']} here"


def test_a_missing_compiler_is_noticed_where_blocks_are_to_be_compiled(tmp_path, here, monkeypatch):
    monkeypatch.setattr(module, "missing_compiler", lambda device: f"a compiler for {device}")
    assert problems(tmp_path, here) == {}
    lacking = problems(tmp_path, replace(here, compiles="cuda"))["compiler"]
    assert "lacks a compiler for cuda: load it in the profile's setup, or give compile: never" in lacking


def test_another_folder_of_the_same_name_is_noticed(tmp_path, here):
    assert problems(tmp_path, replace(here, token="xyz")) == {
        "runs directory": f"{tmp_path} is another folder there"
    }


def test_a_folder_that_is_not_mounted_is_noticed(tmp_path, here):
    lacking = problems(
        tmp_path / "absent", replace(here, folder=str(tmp_path / "absent" / "x"), free_bytes=1)
    )
    assert set(lacking) == {"runs directory", "writing", "space"}


def test_a_file_system_without_hard_links_is_noticed(tmp_path, here, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("scalevec.results.files.os.link", refuse)
    assert "no hard links" in problems(tmp_path, here)["writing"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["token"]


def test_a_corpus_that_is_not_there_is_noticed(tmp_path, here):
    assert "is not under" in problems(tmp_path, replace(here, corpora=("f" * 64,)))["corpus"]


def test_a_corpus_that_is_there_is_good(tmp_path, here, text_files):
    files = tuple(str(path) for path in sorted(text_files.glob("*.txt")))
    corpus = prepare(CorpusConfig("text", "bytes", 256, files), tmp_path / "corpora", lambda _: None)
    assert problems(tmp_path, replace(here, corpora=(corpus.facts.fingerprint,))) == {}


def test_a_corpus_whose_shard_has_changed_is_noticed(tmp_path, here, text_files):
    files = tuple(str(path) for path in sorted(text_files.glob("*.txt")))
    corpus = prepare(CorpusConfig("text", "bytes", 256, files), tmp_path / "corpora", lambda _: None)
    shard = corpus.directory / "test.bin"
    shard.write_bytes(shard.read_bytes()[::-1])
    told = problems(tmp_path, replace(here, corpora=(corpus.fingerprint,)))["corpus"]
    assert f"{shard} is not what was written" in told


def test_too_little_space_is_noticed(tmp_path, here):
    assert "are needed" in problems(tmp_path, replace(here, free_bytes=10**18))["space"]


def test_a_machine_without_the_gpus_asked_for_is_noticed(tmp_path, here, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "sees no GPU" in problems(tmp_path, replace(here, gpus=True))["CUDA"]


def test_the_job_writes_one_report_and_returns_what_it_says(tmp_path, here, capsys):
    for token, code in (("abc", 0), ("xyz", 1)):
        expected = json.dumps(vars(replace(here, token=token)))
        arguments = ["--runs", str(tmp_path), "--expect", expected, "--report", str(tmp_path / "report.json")]
        assert module.main(arguments) == code
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["ok"] is (code == 0)
    assert "runs directory: " in capsys.readouterr().out


def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "runs", "small", 1)


def test_a_good_machine_lets_the_grid_go_out_and_is_asked_once(tmp_path):
    executor = EXECUTORS["local"].build(site(tmp_path))
    preflight(executor, site(tmp_path))
    (report,) = tmp_path.glob("runs/preflight/*/*/report.json")
    written = report.stat().st_mtime_ns
    preflight(executor, site(tmp_path))
    assert report.stat().st_mtime_ns == written


class Here:
    """An executor that does the job at once, in this process."""

    name = "here"

    def __init__(self) -> None:
        self.n_jobs = 0

    def submit(self, jobs):
        self.n_jobs += len(jobs)
        self.codes = [module.main(list(job.command[4:])) for job in jobs]
        return [str(code) for code in self.codes]

    def wait(self, timeout_s):
        return [Ended(str(code), code) for code in self.codes]


def test_only_more_space_than_was_found_is_looked_for_again(tmp_path):
    executor = Here()
    for n_bytes, n_jobs in ((10, 1), (5, 1), (11, 2), (11, 2)):
        preflight(executor, site(tmp_path), free_bytes=n_bytes)
        assert executor.n_jobs == n_jobs


def test_a_bad_machine_is_lacking_with_a_list(tmp_path):
    with pytest.raises(MissingRequirementError) as lacking:
        preflight(Here(), site(tmp_path), corpora=["e" * 64, "f" * 64], free_bytes=10**18)
    lines = str(lacking.value).splitlines()
    assert lines[0] == "the machines of here are not ready for the trials:"
    assert [line.split(":")[0] for line in lines[1:]] == ["- corpus", "- corpus", "- space"]


class Silent:
    """An executor whose job ends without having done anything, or never."""

    name = "silent"

    def __init__(self, *ends: Ended) -> None:
        self.ends, self.jobs, self.cancelled = list(ends), [], []

    def submit(self, jobs):
        self.jobs += jobs
        return ["1"]

    def wait(self, timeout_s):
        ended, self.ends = self.ends, []
        return ended

    def cancel(self, numbers):
        self.cancelled += numbers


def test_a_job_without_a_report_is_told_with_its_end(tmp_path):
    executor = Silent(Ended("1", None, "node_failure", "n1", "SLURM: NODE_FAIL"))
    with pytest.raises(MissingRequirementError, match="left no report \\(SLURM: NODE_FAIL\\)"):
        preflight(executor, site(tmp_path))


def test_a_job_that_does_not_end_is_called_off(tmp_path):
    executor = Silent()
    with pytest.raises(MissingRequirementError, match="did not end in time"):
        preflight(executor, site(tmp_path), patience_s=3)
    assert executor.cancelled == ["1"]


def test_the_job_asks_for_what_the_trials_ask_for(tmp_path):
    executor = Silent(Ended("1", 1))
    with pytest.raises(MissingRequirementError):
        preflight(executor, site(tmp_path), [Machine("2B", ResourceRequest(4, 0.5, 16.0, 9e9))])
    (job,) = executor.jobs
    assert (job.rung, job.request) == ("2B", ResourceRequest(4, 0.5, 16.0, 600.0))
    assert job.directory.is_dir()


def test_the_module_loads_no_torch():
    assert (
        run_python("import scalevec.orchestrator.sweep.preflight, sys; print('torch' in sys.modules)").stdout
        == "False\n"
    )
