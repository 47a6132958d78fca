"""What is opened below a runs folder: regular files of a sane size, through no link."""

import os
import socket
import tracemalloc
from pathlib import Path

import pytest

from recorded_sweep import complete, directory_of
from scalevec.results import claims, files, opening
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.results.sweep_folder import SweepFolder, sweep_names
from support import umask

GB_3 = 3 * 2**30
IN_PLACE = {
    "a link": lambda path: path.symlink_to("/dev/null"),
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "a socket": lambda path: bound(path),
}


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.fixture
def trial(tmp_path, monkeypatch) -> RunDirectory:
    monkeypatch.chdir(tmp_path)  # a socket's path may have 107 characters
    directory = directory_of(Path("runs"), "unified", 0)
    complete(directory)
    return directory


@pytest.fixture
def private(tmp_path) -> Path:
    """Somebody's folder, which nothing is to be written into or deleted from."""
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    return folder


def untouched(private: Path) -> bool:
    names = [path.name for path in private.iterdir()]
    return names == ["thesis.txt"] and (private / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", IN_PLACE)
@pytest.mark.parametrize("name", ["trial.json", "events.jsonl", "environment.json", "result.json"])
def test_what_is_no_file_in_place_of_a_record_is_said_by_name(trial, name, kind):
    (trial.path / name).unlink(missing_ok=True)
    IN_PLACE[kind](trial.path / name)
    with pytest.raises(files.CorruptRecordError, match=f"{name}: is {kind}, where a file is expected"):
        [trial.trial(), trial.events(), trial.environments(), trial.result()]


@pytest.mark.parametrize("kind", IN_PLACE)
def test_nothing_is_logged_or_appended_to_what_is_no_file(trial, kind):
    for path in (trial.log_path, trial.metrics_path):
        IN_PLACE[kind](path)
    with pytest.raises(files.CorruptRecordError, match=f"is {kind}"):
        opening.open_log(trial.log_path)
    with pytest.raises(files.CorruptRecordError, match=f"is {kind}"):
        trial.append_metrics({"step": 1})
    assert trial.last_log_line() == opening.end_of_log(trial.log_path, 100) == ""


def test_a_log_is_appended_to_as_anybody_may_who_may_write_in_the_folder(trial):
    for text in (b"one\n", b"two\n"):
        with umask(0o002), opening.open_log(trial.log_path) as log:
            log.write(text)
    assert opening.end_of_log(trial.log_path, 6) == "e\ntwo\n"
    assert trial.log_path.stat().st_mode & 0o777 == 0o664


@pytest.mark.parametrize("outer", [0, 1, 2, 3])
def test_nothing_is_written_through_a_link_in_place_of_a_folder(trial, private, outer):
    *_, folder = [trial.claims_path, trial.path, trial.path.parent, trial.path.parent.parent][: outer + 1]
    if folder.exists():
        folder.rename("elsewhere")
    folder.symlink_to(private)
    problem = r"is a link, where a (file or )?folder is expected"
    for write in (
        lambda: files.write_json(trial.claims_path / "a.json", {}),
        lambda: files.write_once(trial.claims_path / "a.json", b""),
        lambda: files.append_line(trial.claims_path / "a.jsonl", {}),
        lambda: opening.open_log(trial.claims_path / "log.txt"),
        lambda: opening.make_folder(trial.claims_path / "below"),
        lambda: claims.acquire(trial, {}),
        lambda: trial.require_no_links(),
        lambda: opening.remove_folder(trial.claims_path / "below"),
    ):
        with pytest.raises(files.CorruptRecordError, match=problem):
            write()
    assert untouched(private)


def test_a_sweeps_folder_that_is_a_link_is_not_followed(tmp_path, private):
    (tmp_path / "runs" / "sweeps").mkdir(parents=True)
    (tmp_path / "runs" / "sweeps" / "small").symlink_to(private)
    with pytest.raises(files.CorruptRecordError, match="small: is a link, where a folder is expected"):
        files.write_atomic(tmp_path / "runs" / "sweeps" / "small" / "report.html", b"")
    assert opening.names_in(tmp_path / "runs" / "sweeps" / "small") == []
    assert untouched(private)


@pytest.mark.parametrize(("name", "listed"), [("trials", trial_ids), ("sweeps", sweep_names)])
def test_a_link_in_place_of_all_trials_or_sweeps_is_said_not_listed_as_none(tmp_path, private, name, listed):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / name).symlink_to(private)
    problem = f"{name}: is a link, where a file or folder is expected"
    with pytest.raises(files.CorruptRecordError, match=problem):
        list(listed(tmp_path / "empty"))


def test_the_runs_folder_may_be_reached_through_links(trial, tmp_path):
    (tmp_path / "sweeps").symlink_to(tmp_path)  # a name of ours, in a path of the user's
    (tmp_path / "link").symlink_to(tmp_path / "sweeps" / "runs")
    there = RunDirectory(tmp_path / "sweeps" / "link" / "trials" / trial.path.parent.name / trial.path.name)
    there.append_metrics({"step": 1})
    assert there.trial() == trial.trial()
    assert there.last_step() == 1
    assert claims.acquire(there, {}).is_current()


def test_a_report_replaces_a_link_and_not_what_it_leads_to(tmp_path, private):
    report = tmp_path / "runs" / "sweeps" / "small" / "report.html"
    opening.make_folder(report.parent)
    report.symlink_to(private / "thesis.txt")
    with pytest.raises(files.AlreadyWrittenError):
        files.write_once(report, b"report")
    files.write_atomic(report, b"report")
    assert report.read_bytes() == b"report"
    assert untouched(private)


def test_a_fifo_in_place_of_a_folder_is_left_without_waiting(trial):
    os.mkfifo(trial.out_path)
    opening.remove_folder(trial.out_path)
    assert trial.out_path.is_fifo()


def test_a_folder_is_removed_with_the_links_in_it_and_nothing_that_they_lead_to(trial, private):
    opening.make_folder(trial.out_path)
    (trial.out_path / "link").symlink_to(private)
    opening.remove_folder(trial.out_path)
    assert not trial.out_path.exists()
    trial.out_path.symlink_to(private)
    opening.remove_folder(trial.out_path)
    assert untouched(private)
    with pytest.raises(files.CorruptRecordError, match="is a link"):
        opening.require_no_link(trial.out_path)


@pytest.mark.parametrize("read", [RunDirectory.trial, RunDirectory.events, RunDirectory.metrics])
def test_three_gigabytes_in_place_of_a_record_are_not_read(trial, read):
    for path in (trial.trial_path, trial.events_path, trial.metrics_path):
        path.touch()
        os.truncate(path, GB_3)
    with pytest.raises(files.CorruptRecordError, match=r"has 3,221,225,472 bytes; [0-9,]+ are read at most"):
        read(trial)


def test_an_endless_last_line_is_not_read_to_its_beginning(trial):
    trial.append_event("running")
    os.truncate(trial.events_path, GB_3)
    with pytest.raises(files.CorruptRecordError, match=r"ends in 16,[0-9,]+ bytes that are no line"):
        files.read_last_line(trial.events_path)
    with pytest.raises(files.CorruptRecordError, match="ends in 16,777,216 bytes that are no line"):
        trial.append_event("running")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("{},", lambda path: files.read_json(path, list)),
        ("0.1,", files.read_lines),
        ('{"":{}},', files.read_lines),
    ],
)
def test_values_that_would_take_a_gigabyte_are_not_read(trial, value, read):
    path = trial.path / "any.json"
    path.write_text(f"[{value * (99_000_000 // len(value))}0]\n")
    tracemalloc.start()
    try:
        with pytest.raises(files.CorruptRecordError, match=r"would take [0-9,]+ MB of memory"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 150e6
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_the_members_of_a_hundred_thousand_trials_are_read(tmp_path):
    entry = dict.fromkeys(("arm", "stage", "rung", *map("field_{}".format, range(24))), "a" * 12)
    folder = SweepFolder(tmp_path)
    folder.write_members([entry | {"trial_id": f"{n:064x}", "stream": "0" * 64} for n in range(100_000)])
    assert folder.members_path.stat().st_size > 1.3e7
    assert len(folder.members()) == 100_000
