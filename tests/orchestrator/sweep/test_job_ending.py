"""Whether a worker is alive, asked where the file server does not answer."""

import errno
from pathlib import Path

import pytest

from scalevec.orchestrator.sweep.job_ending import _has_worker
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory


class Raising:
    """An observer that cannot look."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem

    def is_alive(self, _directory):
        raise self.problem


@pytest.mark.parametrize(
    ("problem", "alive"),
    [
        (OSError(errno.ESTALE, "Stale file handle"), True),
        (CorruptRecordError(Path("x"), "is damaged"), False),
    ],
)
def test_a_worker_that_cannot_be_looked_for_is_not_taken_for_gone(problem, alive, tmp_path):
    directory = RunDirectory.of(tmp_path, "a" * 64)
    directory.create({}, {})
    assert _has_worker(directory, Raising(problem)) is alive
