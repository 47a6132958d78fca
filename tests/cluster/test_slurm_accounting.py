"""What the cluster itself says: its limits, and of jobs that the queue has forgotten."""

import pytest

from cluster.slurm_daemons import until
from contracts.bench import ProcessBench
from contracts.executor_contract import collect
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import partitions
from scalevec.orchestrator.executors.slurm import queue as slurm_queue


@pytest.fixture
def forgetful(slurm_without_accounting, tmp_path, monkeypatch):
    """Makes executors on the cluster without accounting."""
    monkeypatch.setenv("SLURM_CONF", slurm_without_accounting.environment["SLURM_CONF"])
    bench = ProcessBench("slurm", tmp_path, Profile(poll_s=0.2))
    yield bench
    bench.close()


def forgotten(cluster, number: str) -> bool:
    job = number.partition("/")[0]
    return job not in cluster.run("squeue", "-h", "-r", "-t", "all", "-o", "%i").split()


def is_accounted(cluster, name: str) -> bool:
    """The parts of a record come one by one: for a while a job is called ``allocation``."""
    line = cluster.run("sacct", "-n", "-X", "-P", "-o", "State,JobName", "-j", name)
    return "CANCELLED" in line and "allocation" not in line


def test_the_accounting_knows_why_a_forgotten_job_ended(slurm_commands, tmp_path, monkeypatch):
    bench = ProcessBench("slurm", tmp_path, Profile(poll_s=0.2))
    executor, job = bench.executor(1), bench.job("listens")
    (number,) = executor.submit([job])
    bench.wait_until_it_runs(job, executor)
    name = number.partition("/")[0]
    slurm_commands.run("scancel", name)
    until(lambda: is_accounted(slurm_commands, name), "the accounting has all of it")
    monkeypatch.setattr(slurm_queue, "queued", lambda jobs: {})
    end = collect(executor, 1)[number]
    assert (end.cause, end.message.split()[:2]) == ("cancelled", ["SLURM:", "CANCELLED"])


def test_without_accounting_a_job_ends_right(forgetful, slurm_without_accounting):
    executor = forgetful.executor(1)
    numbers = executor.submit([forgetful.job("completes"), forgetful.job("crashes")])
    until(lambda: all(forgotten(slurm_without_accounting, number) for number in numbers), "all is forgotten")
    ends = collect(executor, 2)
    assert [ends[number].exit_code for number in numbers] == [0, 3]


def test_without_accounting_a_job_that_vanished_is_noticed(forgetful, slurm_without_accounting):
    executor, jobs = forgetful.executor(1), [forgetful.job("deaf"), forgetful.job("listens")]
    numbers = executor.submit(jobs)
    for job in jobs:
        forgetful.wait_until_it_runs(job, executor)
    for number in numbers:
        slurm_without_accounting.run("scancel", number.partition("/")[0])
    until(lambda: all(forgotten(slurm_without_accounting, number) for number in numbers), "all is forgotten")
    ends = collect(executor, 2)
    assert [ends[number].cause for number in numbers] == ["killed", "preempted"]
    assert "knows nothing" in ends[numbers[0]].message
    assert forgetful.executor(1).adopt(numbers) == set()


def test_the_cluster_says_how_large_an_array_may_be(slurm_commands):
    assert partitions.largest_array(slurm_queue.configuration()) == 101
