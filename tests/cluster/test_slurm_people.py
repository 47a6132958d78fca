"""What people and their own scripts meet on a real SLURM: names, comments, scripts sent by hand."""

import pytest

from cluster.slurm_daemons import until
from contracts.bench import ProcessBench, log_of
from contracts.executor_contract import collect
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.results.run_directory import RunDirectory


@pytest.fixture
def make_bench(slurm_commands, tmp_path):
    benches = []

    def make(**profile) -> ProcessBench:
        benches.append(ProcessBench("slurm", tmp_path, Profile(poll_s=0.2, **profile)))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


def test_a_queue_shows_sweep_rung_and_comment(make_bench, slurm):
    bench = make_bench(flags={"comment": "two words", "begin": "now+1hour"})
    executor = bench.executor(1)
    (number,) = executor.submit([bench.job("completes", rung="large")])
    shown = slurm.run("squeue", "-h", "-o", "%j|%k", "-j", number.partition("/")[0]).strip()
    assert shown == f"contract.large.{number.partition('@')[2]}|two words"
    executor.stop()


def test_a_script_that_was_kept_runs_by_hand_and_its_job_is_adopted(make_bench, slurm):
    bench = make_bench()
    executor, job = bench.executor(1), bench.job("listens", rung="a")
    (number,) = executor.submit([job])
    bench.wait_until_it_runs(job, executor)
    executor.cancel([number])
    collect(executor, 1)
    for mark in ("ready", "heard"):
        (job.directory / mark).unlink()
    slurm.run("sbatch", str(job.directory / "submit.sh"))
    until(lambda: (job.directory / "ready").exists(), "it runs by hand", lambda: log_of(job))
    sent = RunDirectory(job.directory).job()["job"]
    assert sent.partition("@")[2] != number.partition("@")[2]
    later = bench.executor(1)
    assert later.adopt([sent]) == {sent}
    later.cancel([sent])
    assert collect(later, 1)[sent].cause == "cancelled"
    assert bench.heard(job)


def test_a_line_of_setup_that_fails_is_told_in_its_own_words(make_bench):
    executor = (bench := make_bench(setup=["no_such_command --here"])).executor(1)
    (number,) = executor.submit([bench.job("completes")])
    end = collect(executor, 1)[number]
    assert "no_such_command: command not found" in end.message
    assert "this line of setup failed: no_such_command --here" in end.message
