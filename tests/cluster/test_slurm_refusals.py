"""Refusals of a real SLURM that pass, and answers that never come."""

import shutil
from pathlib import Path

import pytest

from cluster.slurm_daemons import until
from contracts.bench import ProcessBench
from contracts.executor_contract import collect
from scalevec.orchestrator.errors import TryLaterError
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import submission
from scalevec.results.run_directory import RunDirectory

TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


@pytest.fixture
def bench(slurm_commands, tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "LOOKS_AFTER_S", (0.5, 2.0))
    built = ProcessBench("slurm", tmp_path, Profile(poll_s=0.2))
    yield built
    built.close()


@pytest.fixture
def times_out_once(tmp_path, monkeypatch):
    """The first sbatch gives no answer, whether SLURM has heard of it or not."""

    def begin(*, heard: bool) -> None:
        folder = tmp_path / "commands"
        folder.mkdir()
        real = shutil.which("sbatch")
        sends = f'"{real}" "$@" >/dev/null' if heard else ":"
        script = (
            f'#!/bin/sh\nif mkdir "{folder}/struck" 2>/dev/null; then\n'
            f'  {sends}\n  echo "{TIMED_OUT}" >&2\n  exit 1\nfi\nexec "{real}" "$@"\n'
        )
        (folder / "sbatch").write_text(script)
        (folder / "sbatch").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")

    return begin


def submissions(bench: ProcessBench) -> list[Path]:
    return list(bench.folder.glob("runs/sweeps/contract/slurm/2*"))


@pytest.mark.parametrize("count", [1, 3])
def test_a_job_whose_sbatch_timed_out_is_found_by_its_name_and_not_sent_again(bench, times_out_once, count):
    times_out_once(heard=True)
    executor, given = bench.executor(1), [bench.job("completes") for _ in range(count)]
    numbers = executor.submit(given)
    ends = collect(executor, count)
    assert [ends[number].exit_code for number in numbers] == [0] * count
    assert len(submissions(bench)) == 1
    assert [RunDirectory(job.directory).job()["job"] for job in given] == numbers


def test_where_slurm_has_no_such_job_it_is_refused_for_now_and_sent_later(bench, times_out_once):
    times_out_once(heard=False)
    executor, job = bench.executor(1), bench.job("completes")
    with pytest.raises(TryLaterError, match="timed out"):
        executor.submit([job])
    (unanswered,) = RunDirectory(job.directory).open_jobs()
    assert executor.adopt([unanswered["job"]]) == set()
    (number,) = executor.submit([job])
    assert collect(executor, 1)[number].exit_code == 0


def test_a_job_whose_sender_died_before_the_answer_is_found_by_the_next(
    bench, times_out_once, monkeypatch, slurm
):
    monkeypatch.setattr(submission, "LOOKS_AFTER_S", ())
    times_out_once(heard=True)
    job = bench.job("listens")
    with pytest.raises(TryLaterError):
        bench.executor(1).submit([job])
    directory = RunDirectory(job.directory)
    (unanswered,) = directory.open_jobs()
    following = bench.executor(1)
    assert following.adopt([unanswered["job"]]) == set()
    (known,) = directory.open_jobs()
    assert following.adopt([known["job"]]) == {known["job"]}
    bench.wait_until_it_runs(job, following)
    following.cancel([known["job"]])
    assert set(collect(following, 1)) == {known["job"]}
    until(lambda: not slurm.run("squeue", "-h").strip(), "the queue is empty")
