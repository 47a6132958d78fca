"""How many jobs may wait at a time: what profile, controller and accounting allow, without a SLURM."""

import os
import time
from collections import Counter

import pytest

from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import limits as slurm_limits
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm.limits import QueueRoom, SubmitLimit

ASSOCIATIONS = "ours|normal|41\nothers||11\n"
QUALITIES = "normal|31||\nlong|21||\n"


@pytest.fixture
def kept(tmp_path):
    """The file in which the accounting's answer is kept."""
    return slurm_limits.kept_in(tmp_path, "cluster")


@pytest.fixture
def accounting(monkeypatch):
    """Two accounts of this user and two qualities of service, of which one is a default; what it is asked."""
    texts = {"associations": ASSOCIATIONS, "qos": QUALITIES}
    asked = []

    def call(*command):
        asked.append(command[4])
        return texts[command[4]]

    monkeypatch.setattr(slurm_queue, "call", call)
    return asked


@pytest.fixture
def no_accounting(monkeypatch):
    def call(*_command):
        raise slurm_queue.SlurmCommandError("no accounting")

    monkeypatch.setattr(slurm_queue, "call", call)


@pytest.mark.usefixtures("no_accounting")
@pytest.mark.parametrize(("settings", "most"), [({}, 5000), ({"MaxJobCount": "100"}, 50)])
def test_without_an_accounting_half_of_what_the_cluster_holds_may_wait(settings, most, kept):
    assert (
        slurm_limits.most_submitted(settings, Profile(), slurm_limits.limits_of_user(Profile(), kept)) == most
    )


@pytest.mark.usefixtures("accounting")
@pytest.mark.parametrize(
    ("profile", "most"),
    [
        ({}, 10),
        ({"account": "ours"}, 30),
        ({"account": "ours", "qos": "long"}, 20),
        ({"max_submitted": 70}, 70),
    ],
)
def test_a_limit_of_the_user_leaves_one_for_the_controller_and_the_profile_has_the_last_word(
    profile, most, kept
):
    given = Profile(**profile)
    assert slurm_limits.most_submitted({}, given, slurm_limits.limits_of_user(given, kept)) == most


def test_the_accounting_is_asked_again_after_an_hour(accounting, kept):
    limits = slurm_limits.limits_of_user(Profile(), kept)
    assert slurm_limits.limits_of_user(Profile(), kept) == limits
    assert sorted(accounting) == ["associations", "qos"]
    earlier = time.time() - slurm_limits.KEPT_S - 1
    os.utime(kept, (earlier, earlier))
    assert slurm_limits.limits_of_user(Profile(), kept) == limits
    assert len(accounting) == 4


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"associations": [["a"]], "qos": 3}'])
def test_a_damaged_answer_is_asked_for_again(accounting, kept, content):
    limits = slurm_limits.limits_of_user(Profile(), kept)
    kept.write_text(content)
    assert slurm_limits.limits_of_user(Profile(), kept) == limits
    assert len(accounting) == 4


@pytest.mark.usefixtures("no_accounting")
def test_silence_is_not_kept(kept):
    assert slurm_limits.limits_of_user(Profile(), kept) == []
    assert not kept.exists()


@pytest.fixture
def room(monkeypatch):
    """Room under a limit of 6 jobs in account ours, of which this user has some in the queue."""
    queued = Counter({("account", "ours"): 4, ("account", "others"): 50})
    monkeypatch.setattr(slurm_queue, "jobs_of_this_user", lambda: queued)
    return QueueRoom([SubmitLimit("account", "ours", 6, True)], look_every_s=3600)


def test_what_the_user_has_in_the_queue_already_counts(room):
    assert room.jobs == 2
    room.accepted(2)
    assert room.jobs == 0


def test_after_a_refusal_half_as_many_are_tried_until_jobs_are_taken_again(room):
    room = QueueRoom([], look_every_s=3600)
    assert room.jobs is None
    room.refused(12)
    assert room.jobs == 6
    room.refused(1)
    assert room.jobs == 1
    room.accepted(1)
    assert room.jobs is None


def test_a_limit_of_an_account_that_jobs_may_not_be_sent_under_is_not_counted_against(monkeypatch):
    monkeypatch.setattr(slurm_queue, "jobs_of_this_user", lambda: pytest.fail("nothing to ask"))
    assert QueueRoom([SubmitLimit("account", "others", 1, False)], look_every_s=0).jobs is None
