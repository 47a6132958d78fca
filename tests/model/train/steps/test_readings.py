"""What is read every few steps is what reading every step gives."""

from dataclasses import replace

import pytest

from scalevec.model.config import RunOptions, ScheduleConfig
from scalevec.model.train import loop
from scalevec.model.train.loop import train
from scalevec.model.train.record import TrainingInterruptedError
from support import STEPS, MemoryRecorder

TIMES = ("tokens_per_s", "wall_s", "timing", "data_s")


@pytest.fixture
def every_seventh(monkeypatch):
    """The device is waited for after every seventh step, as a GPU might be."""
    monkeypatch.setattr(loop, "steps_between_readings", lambda trial, options: 7)


def run(trial, corpus, folder, **options):
    recorder = MemoryRecorder()
    result = train(trial, corpus, RunOptions(**options), recorder, folder)
    return result, recorder.rows


def timeless(row):
    return {name: value for name, value in row.items() if name not in (*TIMES, "peak_memory_bytes")}


@pytest.mark.parametrize("micro_batch", [0, 3])
def test_rows_and_result_are_those_of_a_run_that_reads_every_step(
    micro_batch, trial, corpus, tmp_path, request
):
    result, rows = run(trial, corpus, tmp_path / "each", micro_batch=micro_batch)
    request.getfixturevalue("every_seventh")
    later, later_rows = run(trial, corpus, tmp_path / "seventh", micro_batch=micro_batch)
    assert [*map(timeless, later_rows)] == [*map(timeless, rows)]
    assert len(rows) == STEPS
    assert (later["loss"], later["loss_validation"]) == (result["loss"], result["loss_validation"])


def test_a_run_diverges_at_the_same_step_and_records_none_beyond(trial, corpus, tmp_path, request):
    wild = replace(trial, optimizer=replace(trial.optimizer, learning_rate=1e30, clip_norm=1e30))
    wild = replace(wild, schedule=ScheduleConfig())
    result, rows = run(wild, corpus, tmp_path / "each")
    request.getfixturevalue("every_seventh")
    later, later_rows = run(wild, corpus, tmp_path / "seventh")
    assert later["diverged_at_step"] == result["diverged_at_step"] == len(later_rows) == len(rows)
    assert later["steps"] == result["steps"]


@pytest.mark.usefixtures("every_seventh")
def test_a_stop_leaves_a_checkpoint_of_the_last_step_on_record(trial, corpus, tmp_path):
    undisturbed, _ = run(trial, corpus, tmp_path / "undisturbed")
    recorder = MemoryRecorder(stop_after=3)
    with pytest.raises(TrainingInterruptedError) as stop:
        train(trial, corpus, RunOptions(), recorder, tmp_path / "stopped")
    assert stop.value.step == len(recorder.rows) == 7
    recorder.stop_after = None
    assert train(trial, corpus, RunOptions(), recorder, tmp_path / "stopped")["loss"] == undisturbed["loss"]
