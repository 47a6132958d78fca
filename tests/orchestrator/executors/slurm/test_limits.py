"""How many jobs may wait at a time: what profile, controller and accounting allow, without a SLURM."""

from collections import Counter

import pytest

from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm.queue import SubmitLimit
from scalevec.orchestrator.executors.slurm.room import QueueRoom

ASSOCIATIONS = "ours|normal|41\nothers||11\n"
QUALITIES = "normal|31||\nlong|21||\n"


@pytest.fixture
def accounting(monkeypatch):
    """Two accounts of this user and two qualities of service, of which one is a default."""
    texts = {"associations": ASSOCIATIONS, "qos": QUALITIES}
    monkeypatch.setattr(slurm_queue, "call", lambda *command: texts[command[4]])


@pytest.fixture
def no_accounting(monkeypatch):
    def call(*_command):
        raise slurm_queue.SlurmCommandError("no accounting")

    monkeypatch.setattr(slurm_queue, "call", call)


@pytest.mark.usefixtures("no_accounting")
@pytest.mark.parametrize(("settings", "most"), [({}, 5000), ({"MaxJobCount": "100"}, 50)])
def test_without_an_accounting_half_of_what_the_cluster_holds_may_wait(settings, most):
    assert slurm_queue.most_submitted(settings, Profile(), slurm_queue.limits_of_user(Profile())) == most


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
def test_a_limit_of_the_user_leaves_one_for_the_controller_and_the_profile_has_the_last_word(profile, most):
    given = Profile(**profile)
    assert slurm_queue.most_submitted({}, given, slurm_queue.limits_of_user(given)) == most


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
