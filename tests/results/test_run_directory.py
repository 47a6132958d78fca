"""What a run directory holds, and what it says of a trial."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalevec.results.files import AlreadyWrittenError, CorruptRecordError
from scalevec.results.run_directory import RunDirectory, TrialState, trial_ids

TRIAL_ID = "ab12" * 16
COMPLETED = {"status": "completed", "loss": 1.25}


@pytest.mark.parametrize("trial_id", ["", "ab12", "AB12" * 16, "../" * 21 + "x", "ab12" * 16 + "\n"])
def test_an_id_that_is_not_64_hexadecimal_digits_is_refused(tmp_path, trial_id):
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        RunDirectory.of(tmp_path, trial_id)


def test_creation_writes_all_fields_and_may_be_repeated(run_directory):
    run_directory.create({"seed": 1}, {"name": "second"})
    expected = {"trial_id": TRIAL_ID, "semantic": {"seed": 1}, "descriptive": {"name": "first"}}
    assert run_directory.trial() == expected


def test_a_trial_file_moved_to_another_folder_is_corrupt(run_directory, tmp_path):
    other = RunDirectory.of(tmp_path / "runs", "cd" * 32)
    other.path.mkdir(parents=True)
    run_directory.trial_path.rename(other.trial_path)
    with pytest.raises(CorruptRecordError, match="says it is of trial"):
        other.trial()


def test_an_environment_that_cannot_be_read_is_kept_aside_and_a_new_one_begun(run_directory):
    run_directory.environment_path.write_text('["no environment"]')
    with pytest.raises(CorruptRecordError, match="entry 1 is no environment"):
        run_directory.environments()
    run_directory.write_environment({"attempt": 2})
    assert run_directory.environments() == [{"attempt": 2}]
    assert (run_directory.path / "environment.json.corrupt-1").read_text() == '["no environment"]'


def test_an_absent_trial_is_pending(tmp_path):
    assert RunDirectory.of(tmp_path, TRIAL_ID).state() == TrialState("pending")


def test_the_last_event_is_the_state_and_knows_its_attempt(run_directory):
    run_directory.append_event("running", attempt=2)
    run_directory.append_event("failed", "out_of_memory")
    state = run_directory.state()
    assert (state.state, state.cause, state.attempt) == ("failed", "out_of_memory", 2)


def test_a_result_decides_over_a_later_event(run_directory):
    run_directory.write_result({"status": "diverged", "loss": None})
    run_directory.append_event("running", attempt=3)
    assert run_directory.state().state == "diverged"
    assert run_directory.state().attempt == 3


def test_an_unknown_state_on_disk_is_corrupt(run_directory):
    run_directory.events_path.write_text('{"state": "finished"}\n')
    with pytest.raises(CorruptRecordError, match="line 1 has the state 'finished'"):
        run_directory.state()


def test_a_result_is_written_once(run_directory):
    run_directory.write_result(COMPLETED)
    with pytest.raises(AlreadyWrittenError):
        run_directory.write_result({**COMPLETED, "loss": 9.0})
    assert run_directory.result() == COMPLETED


def test_a_result_without_a_final_status_is_refused(run_directory):
    with pytest.raises(ValueError, match="expected completed or diverged"):
        run_directory.write_result({"status": "running"})
    assert run_directory.result() is None


def test_a_truncated_result_is_set_aside_and_said(run_directory):
    run_directory.append_event("running", attempt=1)
    run_directory.result_path.write_text('{"status": "comp')
    aside = run_directory.set_aside_result()
    assert aside.name == "result.json.corrupt-1"
    assert aside.read_text() == '{"status": "comp'
    state = run_directory.state()
    assert (state.state, state.cause, state.attempt) == ("pending", "corrupt_result", 1)
    assert run_directory.events()[-1]["set_aside"] == "result.json.corrupt-1"


def test_a_second_corrupt_result_does_not_replace_the_first(run_directory):
    for content in ("{1", "{2"):
        run_directory.result_path.write_text(content)
        run_directory.set_aside_result()
    assert (run_directory.path / "result.json.corrupt-1").read_text() == "{1"
    assert (run_directory.path / "result.json.corrupt-2").read_text() == "{2"


def test_a_good_result_is_never_set_aside(run_directory):
    run_directory.write_result(COMPLETED)
    with pytest.raises(ValueError, match="is not corrupt"):
        run_directory.set_aside_result()
    assert run_directory.result() == COMPLETED


@settings(deadline=None, max_examples=40)
@given(stops=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=4), torn=st.booleans())
def test_cut_and_resumed_metrics_have_neither_gap_nor_double(tmp_path_factory, stops, torn):
    """A run that logs every step is killed at ``reached`` and resumed from an earlier ``checkpoint``."""
    run_directory = RunDirectory.of(tmp_path_factory.mktemp("runs"), TRIAL_ID)
    run_directory.path.mkdir(parents=True)
    at = 0
    for ahead, back in stops:
        for step in range(at + 1, at + ahead + 1):
            run_directory.append_metrics({"step": step, "loss": 1 / step})
        if torn:
            with run_directory.metrics_path.open("ab") as stream:
                stream.write(b'{"step": 99')
        at = max(0, at + ahead - back)
        run_directory.cut_metrics(at)
    for step in range(at + 1, 21):
        run_directory.append_metrics({"step": step, "loss": 1 / step})
    assert run_directory.metrics() == [{"step": step, "loss": 1 / step} for step in range(1, max(at, 20) + 1)]


def test_a_row_of_metrics_without_a_step_is_corrupt(run_directory):
    run_directory.append_metrics({"loss": 1.0})
    with pytest.raises(CorruptRecordError, match="line 1 has no integer 'step'"):
        run_directory.cut_metrics(3)


def test_all_run_directories_are_found_in_order(tmp_path):
    ids = ["cd" * 32, "ab" * 32, "abcd" * 16]
    for trial_id in ids:
        RunDirectory.of(tmp_path, trial_id).create({}, {})
    (tmp_path / "trials" / "ab" / "notes").mkdir()
    (tmp_path / "trials" / "readme.txt").write_text("not a folder")
    assert list(trial_ids(tmp_path)) == sorted(ids)


@pytest.mark.parametrize("padding", [0, 10, 65_536, 200_000])
def test_the_last_step_is_that_of_the_last_whole_row_however_long_rows_are(run_directory, padding):
    assert run_directory.last_step() == 0
    for step in range(1, 4):
        run_directory.append_metrics({"step": step, "padding": "x" * padding})
        assert run_directory.last_step() == step
    with run_directory.metrics_path.open("ab") as stream:
        stream.write(b'{"step": 4')
    assert run_directory.last_step() == 3


def test_an_event_says_how_much_of_the_log_was_written_before_it(run_directory):
    run_directory.append_event("queued")
    run_directory.log_path.write_text("hello\n")
    run_directory.append_event("running")
    assert [event.get("log_bytes") for event in run_directory.events()] == [None, 6]


def synced_paths(monkeypatch) -> list[str]:
    """The names of what is forced to the disk from now on, in order."""
    rows: list[str] = []

    def note(descriptor: int) -> None:
        rows.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", note)
    return rows


def test_rows_and_events_are_on_the_disk_before_the_result(run_directory, monkeypatch):
    run_directory.append_metrics({"step": 1})
    run_directory.append_event("running", attempt=1)
    synced = synced_paths(monkeypatch)
    run_directory.write_result({"status": "completed"})
    assert synced[:3] == ["metrics.jsonl", "events.jsonl", run_directory.path.name]
    assert synced[3].startswith(".result.json")


def test_rows_after_a_damaged_one_are_cut_on_resume(run_directory):
    for step in (1, 2):
        run_directory.append_metrics({"step": step})
    with run_directory.metrics_path.open("ab") as stream:
        stream.write(b"\0" * 100 + b"\n" + b'{"step": 4}\n')
    assert [row["step"] for row in run_directory.metrics_before_damage()] == [1, 2]
    run_directory.cut_metrics(9)
    assert [row["step"] for row in run_directory.metrics()] == [1, 2]


def test_the_last_line_of_the_log_is_the_workers_not_that_of_the_job_around_it(run_directory):
    assert run_directory.last_log_line() == ""
    text = "step 3\nValueError: of the trial\n\n[slurm] the process ended with 1\n"
    run_directory.log_path.write_text(text)
    assert run_directory.last_log_line() == "ValueError: of the trial"


def test_a_job_whose_number_another_user_found_out_stays_its_senders(run_directory, monkeypatch):
    monkeypatch.setattr("scalevec.results.run_directory.user_name", lambda: "first")
    run_directory.write_job("slurm", "?0/0@t", "token")
    monkeypatch.setattr("scalevec.results.run_directory.user_name", lambda: "second")
    run_directory.write_job("slurm", "7/0@t", "token", replaces="?0/0@t")
    assert [(job["job"], job["user"]) for job in run_directory.open_jobs()] == [("7/0@t", "first")]
