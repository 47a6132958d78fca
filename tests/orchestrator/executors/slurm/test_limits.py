"""How many jobs may wait at a time: what profile, controller and accounting allow, without a SLURM."""

import pytest

from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import queue as slurm_queue

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
    assert slurm_queue.most_submitted(settings, Profile()) == most


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
    assert slurm_queue.most_submitted({}, Profile(**profile)) == most
