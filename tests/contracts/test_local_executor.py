"""The executor of this machine keeps the contract, and what only it promises."""

import subprocess
import sys

import pytest

from contracts.bench import ProcessBench, log_of
from contracts.executor_contract import *  # noqa: F403
from contracts.executor_contract import collect
from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.errors import InvalidInputError


@pytest.fixture
def bench(tmp_path):
    bench = ProcessBench("local", tmp_path)
    yield bench
    bench.close()


def test_what_a_job_prints_is_in_its_log(bench):
    executor, job = bench.executor(1), bench.job("completes")
    executor.submit([job])
    collect(executor, 1)
    assert log_of(job) == "hello\n"


def test_a_job_has_as_many_threads_as_it_asks_for(bench):
    show = "import os; print(os.environ['OMP_NUM_THREADS'])"
    executor = bench.executor(2)
    jobs = [bench.job(show), bench.job(show, request=ResourceRequest(cpus=2))]
    executor.submit(jobs)
    collect(executor, 2)
    assert [log_of(job) for job in jobs] == ["1\n", "2\n"]


SHOW_GPUS = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
ONE_GPU = ResourceRequest(gpus=1)


def test_each_job_gets_the_gpus_that_are_used_least(bench, gpus_of_torch):
    gpus_of_torch(3)
    executor = bench.executor(3)
    jobs = [bench.job(SHOW_GPUS, request=ResourceRequest(gpus=gpus)) for gpus in (2, 0.5, 0.5)]
    executor.submit(jobs)
    collect(executor, 3)
    assert [log_of(job) for job in jobs] == ["0,1\n", "2\n", "2\n"]


def test_an_adopted_job_keeps_the_gpus_that_it_has(bench, gpus_of_torch):
    gpus_of_torch(2)
    first = bench.executor(3)
    waiting, job = bench.job("listens", request=ONE_GPU), bench.job(SHOW_GPUS, request=ONE_GPU)
    (number,) = first.submit([waiting])
    bench.wait_until_it_runs(waiting, first)
    second = bench.executor(3)
    assert second.adopt([number]) == {number}
    second.submit([job])
    collect(second, 1)
    assert log_of(job) == "1\n"
    second.cancel([number])
    collect(second, 1)


def test_more_gpus_than_there_are_are_refused(bench, monkeypatch, gpus_of_torch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,-1,1")
    gpus_of_torch(1)
    with pytest.raises(InvalidInputError, match="big: asks for 2 GPUs; torch sees 1 here"):
        bench.executor(1).submit([bench.job("completes", rung="big", request=ResourceRequest(gpus=2))])


SCHEDULER = """
import os, sys, time
from contracts.bench import ProcessBench
from pathlib import Path
bench = ProcessBench("local", Path(sys.argv[1]))
executor, job = bench.executor(1), bench.job("listens")
print(executor.submit([job])[0], flush=True)
bench.wait_until_it_runs(job, executor)
os.kill(os.getpid(), 9)
"""


def test_a_job_survives_the_kill_of_its_scheduler_and_is_adopted(bench, tmp_path):
    command = [sys.executable, "-c", SCHEDULER, str(tmp_path)]
    environment = {"PYTHONPATH": "tests"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    number = done.stdout.strip()
    executor = bench.executor(1)
    assert executor.adopt([number]) == {number}
    assert executor.free_slots == 0
    executor.cancel([number])
    assert set(collect(executor, 1)) == {number}
