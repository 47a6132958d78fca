"""Work that processes share out: every task is done once, and what fails is said in this process."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalevec.model.data.documents import piece_limit
from scalevec.model.data.preparation.processes import Workers
from scalevec.model.data.specification import CorpusError, matching


@pytest.mark.parametrize("count", [0, 1, 3])
def test_every_task_is_answered_once(count):
    tasks = list(range(2_000_000, 2_000_007))
    with Workers(count) as workers:
        assert sorted(workers.each(piece_limit, tasks)) == [piece_limit(task) for task in tasks]
        assert list(workers.each(piece_limit, [])) == []
        assert list(workers.each(piece_limit, [512 * 600])) == [600]


def test_what_is_wrong_with_a_corpus_is_said_as_it_is_without_processes(tmp_path):
    with (
        Workers(1) as workers,
        pytest.raises(CorpusError, match=r"^corpus file '.*none' does not exist; give"),
    ):
        list(workers.each(matching, [[f"{tmp_path}/none"]]))


def test_a_process_that_is_killed_is_said():
    with Workers(1) as workers, pytest.raises(ChildProcessError, match=r"was ended by signal 9, perhaps for"):
        list(workers.each(signal.raise_signal, [signal.SIGKILL]))


LEFT_ALONE = """
import os, signal, sys, time
from scalevec.model.data.preparation.processes import Workers
with Workers(1) as workers:
    answers = workers.each(time.sleep, [0, 600])
    next(answers)
    print(workers._processes[0].pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_ends_in_the_middle_of_its_work_with_the_one_that_started_it():
    done = subprocess.run([sys.executable, "-c", LEFT_ALONE], capture_output=True, text=True, check=False)
    left = int(done.stdout)
    deadline = time.monotonic() + 300
    while is_alive(left):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
