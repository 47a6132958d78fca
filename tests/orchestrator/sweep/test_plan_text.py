"""The plan fits the terminal, in the order in which the trials run."""

import pytest

from scalevec.orchestrator.sweep.plan_text import plan_text
from scalevec.orchestrator.sweep.planning import planned, without_identity
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from simulations import sweep_run

SECTIONS = {
    "tokens_per_parameter": [8, 16],
    "grid": {"weight_decay": [0.0, 0.1]},
    "tune": {"learning_rate": [0.01, 0.02], "rungs": ["small"], "seeds": [100]},
}


@pytest.fixture
def run(tmp_path) -> SweepRun:
    return sweep_run(tmp_path / "runs", **SECTIONS)


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_of_the_table_is_wider_than_the_terminal_and_no_number_is_cut(run, width):
    text = plan_text(run, planned(run), 2, width=width)
    lines = [line for line in text.splitlines() if line.startswith(("stage ", "tuning ", "comparison "))]
    assert max(map(len, lines)) <= width
    assert "…" not in text


def test_at_a_terminal_arms_with_equal_plans_share_a_row_and_one_line_says_what_is_detected(run):
    wide, narrow = (plan_text(run, planned(run), 2, width=width).splitlines() for width in (None, 80))
    apart, together = ([line for line in lines if line.startswith("comparison")] for lines in (wide, narrow))
    assert len(apart) == 2 * len(together)
    assert all("baseline, unified" in line for line in together)
    assert sum(int(line.split()[5]) for line in together) == sum(int(line.split()[4]) for line in apart)
    assert sum("detects a difference" in line for line in narrow) == 1


def test_a_narrow_terminal_does_without_whole_columns(run):
    wide, narrow = (plan_text(run, planned(run), 2, width=width).splitlines()[0] for width in (None, 80))
    assert {"vectors", "epochs", "memory", "D/N", "FLOPs"} <= set(wide.split())
    assert {"stage", "rung", "weight_decay", "arm", "trials", "D/N"} <= set(narrow.split())


def test_tuning_stands_before_comparison_and_the_longest_trials_first(run):
    lines = plan_text(run, planned(run), 2).splitlines()
    cells = [line.split() for line in lines if line.startswith(("tuning  ", "comparison  "))]
    assert [cell[0] for cell in cells] == sorted((cell[0] for cell in cells), reverse=True)
    comparison = [cell[1] for cell in cells if cell[0] == "comparison"]
    assert comparison == ["large"] * 8 + ["small"] * 8


def test_budgets_and_grid_values_have_columns_of_their_own(run):
    header, *lines = plan_text(run, planned(run), 2).splitlines()
    assert "weight_decay" in header
    assert "optimizer" not in header
    first = next(line for line in lines if line.startswith("comparison")).split()
    assert dict(zip(header.split(), first, strict=False))["D/N"] in ("8", "16")


def test_without_its_corpus_a_plan_invents_neither_ids_nor_epochs(run):
    rows = without_identity(planned(run))
    assert {(row["trial_id"], row["trunk_id"], row["epochs"]) for row in rows} == {(None, None, None)}


def test_labels_tell_budgets_and_grid_values_apart(run):
    labels = [run.label(member) for member in run.members()]
    assert len(set(labels)) == len(labels)
    assert labels[0] == ("baseline small 8 tokens/parameter weight_decay 0.0 seed 100 learning rate 0.01")
