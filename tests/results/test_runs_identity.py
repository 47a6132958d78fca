"""A record tells the runs folder that it was made in from a copy of it, wherever that lies."""

import errno
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from scalevec.results import runs_identity
from scalevec.results.claims import LEASE_S, AlreadyClaimedError, ClaimObserver, acquire
from scalevec.results.files import append_line
from scalevec.results.run_directory import RunDirectory
from scalevec.results.runs_identity import RUNS_ID, runs_around, runs_id
from support import mounted

TRIAL = "ab" * 32


def with_a_job(runs: Path) -> Path:
    """A runs folder with a trial that this very process has claimed and that has a job."""
    directory = RunDirectory.of(runs, TRIAL)
    directory.create({}, {})
    directory.write_job("local", "7", "token")
    acquire(directory, {})
    return runs


@pytest.fixture
def runs(tmp_path) -> Path:
    return with_a_job(tmp_path / "runs")


def copied(runs: Path, target: Path | None = None) -> Path:
    return Path(shutil.copytree(runs, target or runs.with_name("copy")))


def jobs_of(runs: Path) -> list[str]:
    return [job["job"] for job in RunDirectory.of(runs, TRIAL).open_jobs()]


def unreached(runs: Path) -> list[str]:
    return [job["job"] for job in RunDirectory.of(runs, TRIAL).unreached_jobs()]


def is_judged_by_its_process(runs: Path) -> bool:
    """Whether a claim of this living process counts as alive however long its counter stands still."""
    now = [0.0]
    observer = ClaimObserver(clock=lambda: now[0])
    assert observer.is_alive(RunDirectory.of(runs, TRIAL))
    now[0] = 2 * LEASE_S
    return observer.is_alive(RunDirectory.of(runs, TRIAL))


def test_an_id_is_made_once_and_none_is_made_by_looking(tmp_path):
    assert runs_id(tmp_path) is None
    assert not (tmp_path / RUNS_ID).exists()
    name = runs_id(tmp_path, make=True)
    assert name
    assert runs_id(tmp_path, make=True) == runs_id(tmp_path) == name


def test_an_id_that_cannot_be_read_is_not_replaced_and_meanwhile_no_job_is_ours(runs, monkeypatch):
    before = (runs / RUNS_ID).read_bytes()
    away = OSError(errno.EIO, "Input/output error")
    with monkeypatch.context() as patch:
        patch.setattr(runs_identity, "read_bytes_if_any", Mock(side_effect=away))
        assert runs_id(runs, make=True) is None
        assert (jobs_of(runs), unreached(runs)) == ([], ["7"])
    assert (runs / RUNS_ID).read_bytes() == before
    assert jobs_of(runs) == ["7"]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"  \n", b"abc\n"])
def test_a_file_that_names_no_id_counts_as_none(tmp_path, content):
    (tmp_path / RUNS_ID).write_bytes(content)
    assert runs_id(tmp_path, make=True) is None


def test_a_renamed_folder_keeps_its_jobs_and_its_workers(runs):
    moved = runs.rename(runs.with_name("moved"))
    assert (jobs_of(moved), unreached(moved)) == (["7"], [])
    assert is_judged_by_its_process(moved)
    with pytest.raises(AlreadyClaimedError):
        acquire(RunDirectory.of(moved, TRIAL), {})


def test_a_copy_reaches_none_of_the_jobs_of_the_original_and_the_original_none_of_the_copys(runs):
    copy = copied(runs)
    assert (jobs_of(copy), unreached(copy)) == ([], ["7"])
    RunDirectory.of(copy, TRIAL).write_job("local", "8", "token")
    assert (jobs_of(copy), unreached(copy)) == (["8"], ["7"])
    assert jobs_of(runs) == ["7"]


def test_a_live_claim_of_the_original_counts_as_dead_in_the_copy_after_the_usual_time(runs, clock, observer):
    original, copy = RunDirectory.of(runs, TRIAL), RunDirectory.of(copied(runs), TRIAL)
    assert observer.is_alive(copy)
    clock.seconds = LEASE_S - 1
    assert observer.is_alive(copy)
    clock.seconds = LEASE_S
    assert not observer.is_alive(copy)
    assert observer.is_alive(original)
    assert acquire(copy, {}, observer).attempt == 2


@pytest.fixture
def devices(tmp_path):
    """Two file systems whose first folders have the same number."""
    with mounted(tmp_path / "first") as first, mounted(tmp_path / "second") as second:
        yield first, second


def test_a_copy_with_the_same_number_on_another_device_reaches_no_job_and_looks_for_no_process(devices):
    first, second = devices
    original = with_a_job(first / "runs")
    copy = copied(original, second / "runs")
    assert original.stat().st_ino == copy.stat().st_ino
    assert (jobs_of(copy), unreached(copy)) == ([], ["7"])
    assert not is_judged_by_its_process(copy)
    assert jobs_of(original) == ["7"]
    assert is_judged_by_its_process(original)


def seen(monkeypatch, runs: Path, **numbers: int) -> None:
    """Have the folder ``runs`` report other numbers, as another machine or another mount does."""
    names = ("st_mode", "st_ino", "st_dev")
    real, watched = os.stat, str(runs)

    def stat(path, *arguments, **options):
        status = real(path, *arguments, **options)
        if str(path) != watched:
            return status
        values = list(status)
        for name, value in numbers.items():
            values[names.index(name)] = value
        return os.stat_result(values)

    monkeypatch.setattr(os, "stat", stat)


def test_a_folder_whose_device_has_another_number_elsewhere_keeps_its_jobs(runs, monkeypatch):
    seen(monkeypatch, runs, st_dev=4711)
    assert (jobs_of(runs), unreached(runs)) == (["7"], [])


def test_a_folder_whose_number_changes_reaches_its_jobs_no_more_and_again_when_it_is_back(runs, monkeypatch):
    with monkeypatch.context() as patch:
        seen(patch, runs, st_ino=4711)
        assert (jobs_of(runs), unreached(runs)) == ([], ["7"])
        RunDirectory.of(runs, TRIAL).write_job("local", "8", "token")
        assert jobs_of(runs) == ["8"]
    assert (jobs_of(runs), unreached(runs)) == (["7"], ["8"])


def test_a_device_of_the_same_number_after_another_boot_is_no_sign_of_a_rename(runs, monkeypatch):
    moved = runs.rename(runs.with_name("moved"))
    monkeypatch.setattr(runs_identity, "boot_id", lambda: "another")
    assert (jobs_of(moved), unreached(moved)) == ([], ["7"])


@pytest.mark.parametrize("made_in", [None, "abc", 7, [], {}, {"id": None}])
def test_a_record_that_does_not_say_where_it_was_made_is_not_reached(runs, made_in):
    job = {"executor": "local", "job": "9", "token": "t", "runs": made_in}
    append_line(RunDirectory.of(runs, TRIAL).jobs_path, job)
    assert (jobs_of(runs), unreached(runs)) == (["7"], ["9"])


def test_no_id_is_left_around_a_directory_that_lies_in_no_runs_folder(tmp_path):
    directory = RunDirectory(tmp_path / "a" / "b" / "c")
    directory.path.mkdir(parents=True)
    acquire(directory, {})
    assert runs_around(directory.path, make=True) is None
    assert RUNS_ID not in os.listdir(tmp_path)  # noqa: PTH208
