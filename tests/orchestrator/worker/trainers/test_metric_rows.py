"""The rows that a script logs, read as they come, and what becomes of them in metrics.jsonl."""

import json
import math

import pytest

from scalevec.model.fields import PlainValues
from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.orchestrator.worker.trainers.metric_rows import LossNotFiniteError, MetricRows, MetricsFile
from scalevec.sweeps.trainers.any_trial import ForeignTrial, Readings, Trainer
from support import MemoryRecorder


def metric_rows(kept: MemoryRecorder, goes_on: bool = False, batch_tokens: int = 0, **readings) -> MetricRows:
    values = PlainValues({"batch_tokens": batch_tokens} if batch_tokens else {})
    trainer = Trainer(("train",), readings=Readings(**readings))
    return MetricRows(kept, ForeignTrial(trainer, values, 500, 1000, 0, "ab" * 32), goes_on)


def losses(kept: MemoryRecorder) -> dict[int, float]:
    return {row["step"]: row.get("loss") for row in kept.rows}


def test_of_a_repeated_step_the_last_row_counts():
    kept = MemoryRecorder()
    rows = metric_rows(kept)
    rows.take([{"step": step, "loss": 4.0} for step in range(1, 9)])
    rows.take([{"step": step, "loss": 3.0} for step in (5, 6, 7, 6)])  # and within one look
    assert losses(kept) == {1: 4.0, 2: 4.0, 3: 4.0, 4: 4.0, 5: 3.0, 6: 3.0}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"step": 10, "split": "val"}, {"step": 10, "split": "train"}),
        ({"step": 10, "data": "c4"}, {"step": 10, "data": "wiki"}),
        ({"step": 10, "is_val": True}, {"step": 10, "is_val": False}),
        ({"step": 10, "dp_rank": "0"}, {"step": 10, "dp_rank": "1"}),
        ({"step": 9, "split": "val"}, {"step": 10, "split": "train"}),
    ],
    ids=["splits", "texts", "true and false", "ranks", "training later"],
)
def test_one_loss_of_two_splits_or_ranks_is_an_error(first, second):
    rows = [first | {"loss": 2.3}, {"step": 10, "memory": 7}, second | {"loss": 1.9}]
    with pytest.raises(DefiniteError, match="have the same loss; give each loss a key of its own"):
        metric_rows(MemoryRecorder()).take(rows)


@pytest.mark.parametrize(
    "rows",
    [
        [{"step": 10, "loss": 2.3, "is_best": True}, {"step": 10, "loss": 1.9, "is_best": False}],
        [{"step": 9, "loss": 2.3, "split": "val"}, {"step": 10, "loss": 1.9, "split": "test"}],
        [{"step": 9, "loss": 2.3, "split": "val"}, {"step": 9, "train": 1.9, "split": "train"}],
        [{"step": 9, "loss": 2.3, "phase": "warmup"}, {"step": 10, "loss": 1.9, "phase": "decay"}],
    ],
    ids=["the best", "the test split at the end", "a key for each loss", "phases"],
)
def test_words_that_tell_no_two_kinds_of_one_loss_apart_are_none(rows):
    metric_rows(kept := MemoryRecorder()).take(rows)
    assert kept.rows[-1]["loss"] in (1.9, 2.3)


def test_two_rows_of_one_step_are_one():
    kept = MemoryRecorder()
    rows = metric_rows(kept, training_loss="train", loss="test", loss_validation="val")
    rows.take([{"step": 1, "train": 4.0}])
    rows.take([{"step": "1", "train": "", "val": "3.5", "test": "3.6"}])
    (row,) = kept.rows
    assert (row["loss"], row["loss_validation"], row["loss_test"]) == (4.0, 3.5, 3.6)


def test_a_resumed_script_may_log_from_its_beginning_or_from_its_checkpoint():
    kept = MemoryRecorder()
    metric_rows(kept).take([{"step": step, "loss": 4.0} for step in (1, 2, 3)])
    rows = metric_rows(kept, goes_on=True)
    rows.take([{"step": step, "loss": 3.0} for step in (2, 3, 4)])
    assert losses(kept) == {1: 4.0, 2: 3.0, 3: 3.0, 4: 3.0}
    assert rows.loss_initial == 4.0


def test_rows_without_a_step_are_passed_over():
    kept = MemoryRecorder()
    metric_rows(kept).take([{"train_runtime": 3.0}, {"step": 1, "loss": 4.0}])
    assert losses(kept) == {1: 4.0}


def test_tokens_follow_from_the_batch_where_the_script_does_not_log_them():
    kept = MemoryRecorder()
    metric_rows(kept, batch_tokens=100).take([{"step": 3, "loss": 4.0}])
    assert kept.rows[0]["tokens"] == 300


@pytest.mark.parametrize("loss", ["nan", "inf", float("nan")])
def test_a_loss_that_stays_not_finite_is_recorded_and_said(loss):
    kept = MemoryRecorder()
    rows = metric_rows(kept)
    with pytest.raises(LossNotFiniteError, match="since step 2"):
        rows.take({"step": step, "loss": loss if step > 1 else 4.0} for step in range(1, 5))
    assert rows.diverged_at == 2
    assert [row["step"] for row in kept.rows] == [1, 2, 3, 4]


@pytest.mark.parametrize("at_a_time", [1, 7])
def test_three_steps_without_a_finite_loss_have_diverged_however_many_rows_come_at_a_time(at_a_time):
    given = [4.0, math.nan, math.nan, math.nan, 3.0, 2.0, 1.0]
    rows, kept = [{"step": step, "loss": loss} for step, loss in enumerate(given)], MemoryRecorder()
    taker = metric_rows(kept)

    def take_all() -> None:
        for start in range(0, len(rows), at_a_time):
            taker.take(rows[start : start + at_a_time])

    with pytest.raises(LossNotFiniteError):
        take_all()
    assert taker.diverged_at == 1
    assert [row["step"] for row in kept.rows] == [0, 1, 2, 3]


@pytest.mark.parametrize("at_a_time", [1, 3])
def test_a_step_that_several_processes_log_counts_once(at_a_time):
    taker = metric_rows(MemoryRecorder())
    for _ in range(3 // at_a_time):
        taker.take([{"step": 5, "loss": math.nan}] * at_a_time)
    assert taker.diverged_at == 5


def test_a_loss_that_is_finite_again_has_not_diverged():
    rows = metric_rows(MemoryRecorder())
    rows.take({"step": step, "loss": math.nan if step % 2 else 4.0} for step in range(9))
    assert rows.diverged_at is None
    rows.take([{"step": 9, "loss": math.nan}, {"step": 10, "unknown": 1}])
    assert rows.diverged_at == 9


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"step": 0.5, "loss": 4.0}, "step is 0.5; a whole number"),
        ({"step": 1, "loss": "low"}, "step 1: loss is 'low'"),
        ({"step": 1e300, "loss": 4.0}, "step is 1e\\+300; a whole number"),
        ({"step": None, "loss": math.nan}, "a row whose loss is not finite has no step"),
    ],
)
def test_what_is_no_number_is_refused(row, message):
    with pytest.raises(DefiniteError, match=message):
        metric_rows(MemoryRecorder()).take([row])


@pytest.mark.parametrize(
    ("unit", "given"),
    [
        ("nats", 2.0),
        ("bits", 2.0 / math.log(2)),
        ("bits-per-byte", 0.5 / math.log(2)),
        ("perplexity", math.e**2),
    ],
)
def test_losses_are_kept_in_nats_whatever_their_unit(unit, given):
    kept = MemoryRecorder()
    metric_rows(kept, unit=unit, bytes_per_token=4.0).take([{"step": 1, "loss": given}])
    assert kept.rows[0]["loss"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("unit", "first", "named"),
    [
        ("nats", 10.0, "bits"),
        ("bits", 6.93, "nats"),
        ("nats", 1024.0, "perplexity"),
        ("bits", 2.5, "bits-per-byte"),
    ],
)
def test_a_first_loss_of_a_uniform_guess_in_another_unit_is_an_error(unit, first, named):
    rows = metric_rows(MemoryRecorder(), unit=unit, vocabulary=1024, bytes_per_token=4.0)
    message = f"uniform guess among 1024 tokens costs in {named}, not in {unit}"
    with pytest.raises(DefiniteError, match=message):
        rows.take([{"step": 1, "loss": first}])


@pytest.mark.parametrize("first", [6.93, 7.2, 4.0, 30.0])
def test_other_first_losses_are_taken(first):
    kept = MemoryRecorder()
    metric_rows(kept, vocabulary=1024).take([{"step": 1, "loss": first}])
    assert losses(kept) == {1: first}


def test_a_line_counts_once_it_is_whole(tmp_path):
    path = tmp_path / "log.jsonl"
    file = MetricsFile(tmp_path, path.name)
    assert file.new_rows() == []
    path.write_text('{"step": 1}\n{"step": 2')
    assert file.new_rows() == [{"step": 1}]
    path.write_text('{"step": 1}\n{"step": 2}')
    assert file.new_rows() == []
    assert file.new_rows(is_whole=True) == [{"step": 2}]


def test_a_file_that_was_rewritten_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "log.jsonl"
    file = MetricsFile(tmp_path, path.name)
    path.write_text('{"step": 1}\n{"step": 2}\n')
    file.new_rows()
    path.write_text('{"step": 5}\n{"step": 6}\n{"step": 7}\n')
    assert [row["step"] for row in file.new_rows()] == [5, 6, 7]


def test_a_last_row_that_was_replaced_by_another_of_its_length_is_read_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(tmp_path, path.name)
    for loss in (9.9, 2.2):
        path.write_text(f'{{"step": 1, "loss": 4.0}}\n{{"step": 2, "loss": {loss}}}\n')
        assert [row["loss"] for row in file.new_rows()] == [4.0, loss]


def test_a_torn_last_line_is_cut_so_that_no_row_continues_it(tmp_path):
    (path := tmp_path / "log.csv").write_text("step,loss\n99,2.5\n100,")
    MetricsFile(tmp_path, path.name).cut_torn_end()
    path.write_text(path.read_text() + "100,2.4\n")
    rows = MetricsFile(tmp_path, path.name).new_rows()
    assert rows == [{"step": "99", "loss": "2.5"}, {"step": "100", "loss": "2.4"}]


def test_a_csv_row_with_more_cells_than_columns_and_a_second_header_are_no_rows(tmp_path):
    (tmp_path / "log.csv").write_text("step,loss\n100,100,2.4\nstep,loss\n100,2.4,\n")
    assert MetricsFile(tmp_path, "log.csv").new_rows(is_whole=True) == [{"step": "100", "loss": "2.4"}]


@pytest.mark.parametrize("rows", ["99,2.4\n100,nan,a note", "80,2.4,0\n90,2.3\n100,nan,0\n110,2.2"])
def test_a_last_csv_row_with_more_cells_than_columns_and_a_second_one_soon_are_refused(tmp_path, rows):
    (tmp_path / "log.csv").write_text(f"step,loss\n{rows}\n")
    with pytest.raises(DefiniteError, match=r"log\.csv, line [34]: has 3 cells, and its header 2"):
        MetricsFile(tmp_path, "log.csv").new_rows(is_whole=True)


def test_text_in_a_row_may_hold_signs_that_end_lines_elsewhere(tmp_path):
    row = {"step": 1, "sample": "one\u2028two\x0cthree\x85"}
    (tmp_path / "log.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n")
    assert MetricsFile(tmp_path, "log.jsonl").new_rows() == [row]


def test_a_csv_file_may_have_another_separator_and_a_mark_and_no_column_twice(tmp_path):
    (tmp_path / "log.csv").write_text("\ufeffstep; val_loss\n1; 3.5\n")
    assert MetricsFile(tmp_path, "log.csv").new_rows() == [{"step": "1", "val_loss": "3.5"}]
    (tmp_path / "log.csv").write_text("step,loss,loss\n1,3.5,9\n")
    with pytest.raises(DefiniteError, match="several columns 'loss'"):
        MetricsFile(tmp_path, "log.csv").new_rows()


def test_rows_of_csv_are_seen_by_their_header_whatever_the_file_is_called(tmp_path):
    (tmp_path / "log.txt").write_text("step,loss\n10,4.5\n")
    assert MetricsFile(tmp_path, "log.txt").new_rows() == [{"step": "10", "loss": "4.5"}]


def test_a_csv_file_may_get_columns_later(tmp_path):
    path = tmp_path / "metrics.csv"
    file = MetricsFile(tmp_path, path.name)
    path.write_text("step,train\n1,4.0\n")
    assert file.new_rows() == [{"step": "1", "train": "4.0"}]
    path.write_text("step,train,val\n1,4.0,\n1,,3.5\n")
    expected = [{"step": "1", "train": "4.0", "val": ""}, {"step": "1", "train": "", "val": "3.5"}]
    assert file.new_rows() == expected


def test_a_line_that_is_no_object_is_refused_with_its_number(tmp_path):
    (tmp_path / "log.jsonl").write_text(json.dumps({"step": 1}) + "\nstep 2\n")
    with pytest.raises(DefiniteError, match=r"log\.jsonl, line 2: is no JSON object: 'step 2'"):
        MetricsFile(tmp_path, "log.jsonl").new_rows()


def test_a_mark_of_the_encoding_is_passed_over_and_another_encoding_is_said(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n', encoding="utf-8-sig")
    assert MetricsFile(tmp_path, "log.jsonl").new_rows() == [{"step": 1}]
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n', encoding="utf-16")
    with pytest.raises(DefiniteError, match="line 1: is no text in UTF-8"):
        MetricsFile(tmp_path, "log.jsonl").new_rows()


def test_a_row_that_continues_one_that_a_kill_has_torn_is_read(tmp_path):
    torn = '{"step": 60, "lo{"step": 60, "loss": 2.5, "of": {"a": 1}}\n{"step": 70, "loss": 2.4}\n'
    (tmp_path / "log.jsonl").write_text(torn)
    assert [row["step"] for row in MetricsFile(tmp_path, "log.jsonl").new_rows()] == [60, 70]
