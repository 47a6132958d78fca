"""Which lines of a command are rows of metrics, and what they say."""

import math

import pytest

from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.orchestrator.worker.trainers.line_pattern import LinePattern
from scalevec.orchestrator.worker.trainers.readings import number

COMMON = r"step (?P<step>\d+): train loss (?P<training_loss>[\d.]+), val loss (?P<loss>[\d.]+)"


def row(line: str, pattern: str = COMMON) -> dict[str, str] | None:
    values = LinePattern(pattern, "step").row(line)
    return None if values is None else dict(values)


def test_the_groups_name_the_values():
    expected = {"step": "10", "training_loss": "3.5", "loss": "3.75"}
    assert row("step 10: train loss 3.5, val loss 3.75") == expected


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-inf", "None", "-1.5", "1e-05", "NaN", "1.2.3"])
def test_a_line_with_the_words_counts_whatever_stands_for_the_number(value):
    values = row(f"step 10: train loss {value}, val loss {value}")
    assert (values["training_loss"], values["loss"]) == (value, value)


def test_a_loss_that_is_no_number_is_not_taken_for_a_later_one():
    pattern = r"iter=(?P<step>\d+).*?val_loss=(?P<loss>\d+\.\d+)"
    assert row("iter=10 val_loss=nan best_val_loss=3.25", pattern) == {"step": "10", "loss": "nan"}


@pytest.mark.parametrize("text", ["12'000.5", "3_2127", "1_00"])
def test_digits_in_groups_are_asked_about(text):
    values = row(f"step 10: loss {text}", r"step (?P<step>\d+): loss (?P<loss>[\d.]+)")
    with pytest.raises(DefiniteError, match="a number is expected"):
        number(values or {}, "loss", "its output")


@pytest.mark.parametrize("line", ["step 50: loss scale reduced to 32", "step 50: saved, lowest loss so far"])
def test_a_line_of_prose_is_no_row(line):
    assert row(line, r"step (?P<step>\d+).* loss[ :=]+(?P<loss>[\d.]+)") is None


def test_a_word_that_ends_the_line_stands_for_the_number():
    values = row("step 10: loss diverged", r"step (?P<step>\d+): loss (?P<loss>[\d.]+)")
    assert values == {"step": "10", "loss": "diverged"}  # which is refused where it is read


@pytest.mark.parametrize("step", ["1,010", "1_010", "1 010", "1\u202f010"])
@pytest.mark.parametrize("text", ["loss is nan, stopping", "loss 'nan'"])
def test_a_line_that_says_nan_in_words_or_quotes_counts(text, step):
    values = row(f"step {step}: {text}", r"step (?P<step>\d+): loss (?P<loss>[\d.]+)")
    assert values == {"step": step, "loss": "is" if "is" in text else "nan"}  # no word is a number


def test_what_some_systems_write_for_nan_is_no_1():
    values = row("step 10: train loss 1.#QNAN, val loss -1.#IND")
    assert all(math.isnan(number(values, name, "") or 0.0) for name in ("training_loss", "loss"))


def test_a_word_that_is_padded_to_the_width_of_numbers_counts():
    values = row("step 10: train loss    nan, val loss    nan")
    expected = pytest.approx((math.nan,) * 2, nan_ok=True)
    assert (float(values["training_loss"]), float(values["loss"])) == expected


def test_an_exponent_that_the_pattern_does_not_know_is_part_of_the_number():
    values = row("step 10: train loss 1.2e+05, val loss 9.9E4 (best)")
    assert [float(values[name]) for name in ("training_loss", "loss")] == [1.2e5, 9.9e4]


@pytest.mark.parametrize("value", ["12,345.6", "3,5", "1_234.5", "12k"])
def test_what_a_pattern_of_digits_leaves_of_a_number_is_part_of_it(value):
    for line in (f"step 10: train loss {value}, val loss 3", f"step 10: train loss 3, val loss {value}"):
        assert value in row(line).values()
    expected = {"step": value, "loss": "3"}
    assert row(f"step {value} loss 3", r"step (?P<step>\d+).*loss (?P<loss>\d)") == expected


def test_a_comma_between_columns_is_part_of_no_number():
    assert row("12,345", r"(?P<step>\d+),(?P<loss>[\d.]+)") == {"step": "12", "loss": "345"}
    assert row("12,500,3", r"(?P<step>\d+),\d+,(?P<loss>[\d.]+)") == {"step": "12", "loss": "3"}


def test_colours_are_passed_over():
    line = "\x1b[1mstep \x1b[36m10\x1b[0m: train loss \x1b[1m3.5\x1b[0m, val loss 4"
    assert row(line) == {"step": "10", "training_loss": "3.5", "loss": "4"}
    assert row("\r\x1b[2K\x1b[0Gstep 7", r"\bstep (?P<step>\d+)") == {"step": "7"}
    assert row("\x1b[1m7\x1b[0m", "\x1b\\[1m(?P<step>\\d+)") == {"step": "7"}


@pytest.mark.parametrize("line", ["step one: train loss 3, val loss 4", "epoch 1", "step 1: train loss", ""])
def test_a_line_of_another_kind_is_none(line):
    assert row(line) is None


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"(?P<step>\d+)\) loss=\[(?P<loss>(\d+)(\.\d+)?)\]", "7) loss=[nan]"),
        (r"it (?P<step>\d+) \((?P<loss>[0-9.()]+)\)", "it 7 (nan)"),
        (r"(?P<step>\d+) (?P<loss>\d+[)(]?) end", "7 nan end"),
        (r"(?P<step>\d+) lr [\d.e-]+ norm \d+\.\d+ loss (?P<loss>[\d.]+)", "7 lr 1e-3 norm nan loss nan"),
        (r"(?P<step>\d+)(?: \| loss (?P<loss>[\d.]+))?", "7 | loss nan"),
        (r"s(?P<step>\d+) l(?P<loss>(?P<whole>\d+)\.\d+)", "s7 lnan"),
    ],
)
def test_groups_may_hold_brackets_sets_and_other_groups(pattern, line):
    values = row(line, pattern)
    assert (values["step"], values["loss"]) == ("7", "nan")


def test_a_pattern_that_refers_back_into_a_group_is_taken_as_it_stands():
    pattern = r"(?P<step>\d+) (?P<loss>(?P<whole>\d+)\.\d+) floor (?P=whole)"
    assert row("7 3.5 floor 3", pattern) == {"step": "7", "loss": "3.5", "whole": "3"}
    assert row("7 3.5 floor 4", pattern) is None
