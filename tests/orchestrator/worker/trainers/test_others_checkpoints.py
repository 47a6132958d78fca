"""Checkpoints of an own trainer that another user may have written are not loaded unless a person agreed."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from foreign_trials import GOES_ON, RESUMES
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.attempts.kept_files import others_in, prune_trained
from scalevec.results.files import CorruptRecordError
from support import umask

AFRESH = "the trial starts afresh"


def anothers(path: Path) -> None:
    os.chown(path, 65534, -1)


def of_the_group(path: Path) -> None:
    path.chmod(0o664)


def anothers_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/hostname")
    os.lchown(path, 65534, -1)


@pytest.fixture
def stopped(lab):
    """A trial that was stopped with a checkpoint after step 4."""
    trials = lab(GOES_ON, protocol=RESUMES)
    assert trials.run() == WorkerExit.STOPPED
    assert others_in(trials.out) is None
    return trials


def notes(trials) -> str:
    return " ".join(str(event.get("note")) for event in trials.directory.events())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize(
    "change", [anothers, of_the_group, anothers_link], ids=lambda change: change.__name__
)
def test_the_trial_starts_afresh_and_says_why(stopped, change):
    change(stopped.out / "ckpt-4")
    assert stopped.run() == WorkerExit.STOPPED  # as at its first start
    assert AFRESH in notes(stopped)
    assert "scalevec run --trust" in notes(stopped)
    assert stopped.run() == WorkerExit.RESULT
    assert stopped.result()["loss"] == 3.0


def test_a_file_of_another_user_anywhere_beside_counts_too(stopped):
    (stopped.out / "deep").mkdir()
    (stopped.out / "deep" / "module.py").touch()
    of_the_group(stopped.out / "deep" / "module.py")
    assert others_in(stopped.out) == "the group"


def test_once_a_person_agreed_it_goes_on_from_them(stopped):
    of_the_group(stopped.out / "ckpt-4")
    stopped.protocol = replace(stopped.protocol, writers_agreed_to=("the group",))
    assert stopped.run() == WorkerExit.RESULT
    assert AFRESH not in notes(stopped)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_whom_a_person_agreed_to_is_not_whoever_comes_later(stopped):
    of_the_group(stopped.out / "ckpt-4")
    (stopped.out / "ckpt-9").touch()
    anothers(stopped.out / "ckpt-9")
    stopped.protocol = replace(stopped.protocol, writers_agreed_to=("the group",))
    assert stopped.run() == WorkerExit.STOPPED
    assert AFRESH in notes(stopped)


def test_what_a_trainer_keeps_the_group_may_not_write_whatever_the_umask(lab):
    with umask(0o002):
        trials = lab(GOES_ON, protocol=RESUMES)
        trials.run()
    assert (trials.out / "ckpt-4").stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH) == 0
    assert trials.directory.events_path.stat().st_mode & stat.S_IWGRP
    assert trials.run() == WorkerExit.RESULT


@pytest.mark.parametrize("pattern", ["/etc/*", "../../*", "**/*/**/x", "a**b", 5])
def test_a_result_that_names_checkpoints_elsewhere_is_damaged(lab, pattern):
    trials = lab(GOES_ON, protocol=RESUMES)
    with pytest.raises(CorruptRecordError, match="has the checkpoint"):
        prune_trained(trials.directory, {"checkpoint": pattern, "keep": "none"})
