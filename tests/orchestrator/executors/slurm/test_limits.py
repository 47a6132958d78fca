"""How many jobs may wait at a time: what profile and cluster say, and what follows from a refusal."""

import pytest

from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import partitions
from scalevec.orchestrator.executors.slurm.partitions import QueueRoom, most_submitted


@pytest.mark.parametrize(("settings", "most"), [({}, 5000), ({"MaxJobCount": "100"}, 50)])
def test_half_of_what_the_cluster_holds_may_wait(settings, most):
    assert most_submitted(settings, Profile()) == most


def test_the_profile_has_the_last_word():
    assert most_submitted({"MaxJobCount": "100"}, Profile(max_submitted=70)) == 70


@pytest.fixture
def clock(monkeypatch):
    """The seconds that it is, which a test sets."""
    now = [1000.0]
    monkeypatch.setattr(partitions.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.usefixtures("clock")
def test_after_a_refusal_half_as_many_are_tried():
    room = QueueRoom(5000)
    assert room.free(0) == 5000
    room.refused(1000, in_queue=0)
    assert room.free(0) == 500
    room.refused(500, in_queue=250)
    assert [room.free(250), room.free(500)] == [250, 0]


@pytest.mark.usefixtures("clock")
def test_with_nothing_in_the_queue_one_is_always_tried():
    room = QueueRoom(10)
    room.refused(1, in_queue=0)
    assert room.free(0) == 1


def test_a_quarter_more_is_tried_after_a_while_up_to_what_the_cluster_allows(clock):
    room = QueueRoom(50)
    room.refused(80, in_queue=0)
    assert room.free(40) == 0
    for more in (10, 10):
        clock[0] += partitions.PROBE_S
        assert room.free(40) == more
    clock[0] += partitions.PROBE_S / 2
    room.refused(10, in_queue=40)
    assert room.free(45) == 0
