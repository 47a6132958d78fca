"""Who advances a sweep, as those who watch it see it."""

from unittest.mock import Mock

import pytest

from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.sweep import controller as ownership
from scalevec.orchestrator.sweep.controller import is_owned, owned, owner_directory
from scalevec.results.claims import ClaimObserver, newest_attempt
from scalevec.results.run_directory import RunDirectory


def wait_for_claim(runs_dir) -> None:
    while not newest_attempt(owner_directory(runs_dir, "s")):
        pass


def test_a_sweep_is_owned_while_somebody_runs_it(tmp_path):
    assert not is_owned(tmp_path, "s", ClaimObserver())
    with owned(tmp_path, "s"):
        wait_for_claim(tmp_path)
        assert is_owned(tmp_path, "s", ClaimObserver())
    assert not is_owned(tmp_path, "s", ClaimObserver())


def test_a_second_scheduler_is_let_in(tmp_path):
    with owned(tmp_path, "s"):
        wait_for_claim(tmp_path)
        with owned(tmp_path, "s"):
            assert is_owned(tmp_path, "s", ClaimObserver())


def test_runs_that_cannot_be_written_are_no_reason_not_to_run(tmp_path):
    (tmp_path / "sweeps").write_text("a file")
    ran = []
    with owned(tmp_path, "s"):
        ran.append("s")
    assert ran == ["s"]
    assert (tmp_path / "sweeps").read_text() == "a file"


class Queue:
    """A cluster's queue, or why it cannot be asked."""

    cluster = "here"
    jobs: set[str] | Exception

    def adopt(self, numbers):
        if isinstance(self.jobs, Exception):
            raise self.jobs
        return set(numbers) & self.jobs

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def queue(tmp_path, monkeypatch) -> Queue:
    """The queue that holds the controller of sweep ``s``, job 17; each look asks it."""
    controller = RunDirectory(tmp_path / "sweeps" / "s" / "controller")
    controller.path.mkdir(parents=True)
    controller.write_job("queue", "17", token="", cluster="here")
    queue = Queue()
    monkeypatch.setitem(EXECUTORS, "queue", Mock(build=lambda _: queue))
    monkeypatch.setattr(ownership, "QUEUE_LOOK_S", 1e-9)
    return queue


def test_a_controller_that_waits_in_the_queue_owns_its_sweep_until_it_has_run(tmp_path, queue):
    queue.jobs = {"17"}
    assert is_owned(tmp_path, "s", ClaimObserver())
    with owned(tmp_path, "s"):
        wait_for_claim(tmp_path)
    assert not is_owned(tmp_path, "s", ClaimObserver())


def test_a_controller_that_failed_before_it_claimed_its_sweep_owns_it_no_more(tmp_path, queue):
    queue.jobs = set()
    assert not is_owned(tmp_path, "s", ClaimObserver())


@pytest.mark.parametrize(
    "problem",
    [MissingRequirementError("no answer"), PermissionError("places.json"), KeyError("jobs"), TypeError()],
)
def test_where_the_queue_cannot_be_asked_its_controller_may_still_come(tmp_path, queue, problem):
    queue.jobs = problem
    assert is_owned(tmp_path, "s", ClaimObserver())


def test_a_queue_whose_executor_takes_no_such_folder_cannot_be_asked(tmp_path, queue, monkeypatch):
    monkeypatch.setitem(EXECUTORS, "queue", Mock(build=Mock(side_effect=InvalidInputError("no %"))))
    assert is_owned(tmp_path, "s", ClaimObserver())


@pytest.mark.parametrize("cluster", [{"cluster": "elsewhere"}, {}])
def test_the_queue_of_another_cluster_does_not_know_that_a_controller_ended(tmp_path, queue, cluster):
    RunDirectory(tmp_path / "sweeps" / "s" / "controller").write_job("queue", "18", token="", **cluster)
    queue.jobs = set()
    assert is_owned(tmp_path, "s", ClaimObserver())


def test_a_watch_asks_the_queue_now_and_then_only(tmp_path, queue, monkeypatch):
    monkeypatch.setattr(ownership, "QUEUE_LOOK_S", 3600.0)
    queue.jobs = {"17"}
    assert is_owned(tmp_path, "s", ClaimObserver())
    queue.jobs = set()
    assert is_owned(tmp_path, "s", ClaimObserver())


def test_a_damaged_record_of_a_controller_is_no_owner(tmp_path):
    controller = RunDirectory(tmp_path / "sweeps" / "s" / "controller")
    controller.path.mkdir(parents=True)
    for damaged in ('{"job": "1\n', "{}\n"):
        controller.jobs_path.write_text(damaged)
        assert not is_owned(tmp_path, "s", ClaimObserver())
