"""What every executor owes. It runs on each one in the registry."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.executors import EXECUTORS
from orchestrator.jobs import Job

PATIENCE_S = 60


@pytest.fixture(params=sorted(EXECUTORS))
def make_executor(request):
    made = []

    def make(slots):
        made.append(EXECUTORS[request.param](slots))
        return made[-1]

    make.name = request.param
    yield make
    for executor in made:
        executor.stop(hard=True)


def job(tmp_path: Path, code: str) -> Job:
    return Job("a" * 64, (sys.executable, "-c", code), tmp_path / "log.txt")


def ended(executor, count):
    """Wait until ``count`` jobs have ended; their exit codes in the order of their numbers."""
    found = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, "the jobs did not end"
        found += executor.wait(1.0)
    return {one.number: one.exit_code for one in found}


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never appeared"
        time.sleep(0.02)


def test_a_job_runs_and_its_end_is_reported(make_executor, tmp_path):
    executor = make_executor(1)
    number = executor.submit(job(tmp_path, "print('hello')"))
    assert ended(executor, 1) == {number: 0}
    assert (tmp_path / "log.txt").read_text() == "hello\n"


def test_exit_codes_are_told_apart(make_executor, tmp_path):
    executor = make_executor(2)
    first = executor.submit(job(tmp_path, "raise SystemExit(75)"))
    second = executor.submit(job(tmp_path, "import os; os.kill(os.getpid(), 9)"))
    assert ended(executor, 2) == {first: 75, second: -9}


def test_a_slot_is_taken_while_a_job_runs_and_free_afterwards(make_executor, tmp_path):
    executor = make_executor(2)
    executor.submit(job(tmp_path, "pass"))
    assert executor.free_slots == 1
    ended(executor, 1)
    assert executor.free_slots == 2


def test_waiting_with_nothing_to_wait_for_returns(make_executor):
    assert make_executor(1).wait(0.0) == []


def test_a_stop_reaches_the_jobs_as_a_request(make_executor, tmp_path):
    executor = make_executor(1)
    code = (
        "import signal, sys, time, pathlib\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
        "time.sleep(600)"
    )
    number = executor.submit(job(tmp_path, code))
    wait_for(tmp_path / "ready")
    executor.stop()
    assert ended(executor, 1) == {number: 75}


def test_a_hard_stop_ends_jobs_that_do_not_listen(make_executor, tmp_path):
    executor = make_executor(1)
    code = (
        "import signal, time, pathlib\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
        "time.sleep(600)"
    )
    executor.submit(job(tmp_path, code))
    wait_for(tmp_path / "ready")
    executor.stop(hard=True)
    assert set(ended(executor, 1).values()) == {-9}


def test_a_job_has_one_thread(make_executor, tmp_path):
    executor = make_executor(1)
    executor.submit(job(tmp_path, "import os; print(os.environ['OMP_NUM_THREADS'])"))
    ended(executor, 1)
    assert (tmp_path / "log.txt").read_text() == "1\n"


SCHEDULER = """
import os, pathlib, sys, time
from orchestrator.executors import EXECUTORS
from orchestrator.jobs import Job
name, folder, code = sys.argv[1:]
folder = pathlib.Path(folder)
EXECUTORS[name](1).submit(Job("a" * 64, (sys.executable, "-c", code, str(folder)), folder / "log.txt"))
while not (folder / "started").exists():
    time.sleep(0.02)
os.kill(os.getpid(), 9)
"""
PATIENT_JOB = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / "started").touch()
while not (folder / "go").exists():
    time.sleep(0.02)
(folder / "done").touch()
"""


def test_a_job_survives_the_death_of_the_scheduler(make_executor, tmp_path):
    command = [sys.executable, "-c", SCHEDULER, make_executor.name, str(tmp_path), PATIENT_JOB]
    assert subprocess.run(command).returncode == -9
    (tmp_path / "go").touch()
    wait_for(tmp_path / "done")
