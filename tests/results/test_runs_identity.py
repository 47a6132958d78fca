"""A runs folder knows whether it is the one that its records were made in, or a copy of it."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from scalevec.results.claims import LEASE_S, AlreadyClaimedError, ClaimObserver, acquire
from scalevec.results.run_directory import RunDirectory, user_name
from scalevec.results.runs_identity import RUNS_ID, id_of_runs_around, runs_id

TRIAL = "ab" * 32


@pytest.fixture
def runs(tmp_path) -> Path:
    """A runs folder with an id and a trial that this very process has claimed and that has a job."""
    directory = RunDirectory.of(tmp_path / "runs", TRIAL)
    directory.create({}, {})
    directory.write_job("local", "7", "token")
    acquire(directory, {})
    return tmp_path / "runs"


def copied(runs: Path) -> Path:
    return Path(shutil.copytree(runs, runs.with_name("copy")))


def test_an_id_is_made_once_and_none_is_made_by_looking(tmp_path):
    assert runs_id(tmp_path) is None
    assert not (tmp_path / RUNS_ID).exists()
    name = runs_id(tmp_path, make=True)
    assert name
    assert runs_id(tmp_path, make=True) == runs_id(tmp_path) == name


def test_an_id_that_cannot_be_read_is_not_replaced(tmp_path, monkeypatch):
    runs_id(tmp_path, make=True)
    before = (tmp_path / RUNS_ID).read_bytes()

    def away(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", away)
        assert runs_id(tmp_path, make=True) is None
    assert (tmp_path / RUNS_ID).read_bytes() == before


def test_a_renamed_folder_keeps_its_id_its_jobs_and_its_workers(runs):
    name = runs_id(runs)
    moved = runs.rename(runs.with_name("moved"))
    assert runs_id(moved) == name
    assert RunDirectory.of(moved, TRIAL).job()["job"] == "7"
    assert ClaimObserver(clock=lambda: 0.0).is_alive(RunDirectory.of(moved, TRIAL))
    with pytest.raises(AlreadyClaimedError):
        acquire(RunDirectory.of(moved, TRIAL), {})


def test_a_copy_has_an_id_of_its_own_whether_or_not_it_is_written_down(runs):
    copy = copied(runs)
    looked_at = runs_id(copy)
    assert looked_at != runs_id(runs)
    assert runs_id(copy, make=True) == looked_at
    assert runs_id(copy) == looked_at
    assert runs_id(copied(copy.rename(copy.with_name("first")))) not in (looked_at, runs_id(runs))


def test_a_copy_has_none_of_the_jobs_of_the_original(runs):
    copy = RunDirectory.of(copied(runs), TRIAL)
    assert copy.job() is None
    copy.write_job("local", "8", "token")
    assert copy.job()["job"] == "8"
    assert RunDirectory.of(runs, TRIAL).job()["job"] == "7"


def test_a_live_claim_of_the_original_counts_as_dead_in_the_copy_after_the_usual_time(runs):
    now = [0.0]
    observer = ClaimObserver(clock=lambda: now[0])
    original, copy = RunDirectory.of(runs, TRIAL), RunDirectory.of(copied(runs), TRIAL)
    assert observer.is_alive(copy)
    now[0] = LEASE_S - 1
    assert observer.is_alive(copy)
    now[0] = LEASE_S
    assert not observer.is_alive(copy)
    assert observer.is_alive(original)
    assert acquire(copy, {}, observer).attempt == 2


def test_a_job_says_whose_it_is(runs):
    job = RunDirectory.of(runs, TRIAL).job()
    assert job["user"] == user_name()
    assert job["runs"] == runs_id(runs)


def test_an_id_of_an_earlier_version_stays_and_gets_the_number_of_its_folder(tmp_path):
    (tmp_path / RUNS_ID).write_text("abc\n")
    assert runs_id(tmp_path) == "abc"
    assert runs_id(tmp_path, make=True) == "abc"
    assert (tmp_path / RUNS_ID).read_text().split() == ["abc", str(tmp_path.stat().st_ino)]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"  \n"])
def test_a_file_that_names_no_id_counts_as_none(tmp_path, content):
    (tmp_path / RUNS_ID).write_bytes(content)
    assert runs_id(tmp_path) is None


def test_records_of_earlier_versions_count_as_made_here(runs):
    directory = RunDirectory.of(runs, TRIAL)
    (runs / RUNS_ID).unlink()
    assert directory.job()["job"] == "7"
    assert ClaimObserver().is_alive(directory)


def test_no_id_is_left_around_a_directory_that_lies_in_no_runs_folder(tmp_path):
    directory = RunDirectory(tmp_path / "a" / "b" / "c")
    directory.path.mkdir(parents=True)
    acquire(directory, {})
    assert id_of_runs_around(directory.path, make=True) is None
    assert RUNS_ID not in os.listdir(tmp_path)  # noqa: PTH208
