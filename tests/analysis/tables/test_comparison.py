"""The table of a comparison: arms at each rung, what is bold, the means that decide, what was not run."""

import numpy as np
import pandas as pd
import pytest
from tests.shown_tables import EFFECTS, FEW, column, records, shown

from comparisons import only
from scalevec import analysis
from scalevec.analysis.tables import notes

TWO = {"baseline": 0.0, "unified": -0.03}


def of_arm(table_shown: analysis.Table, name: str, arm: str = "unified") -> list[str]:
    """The column in the rows of one arm, the mean over all cells last."""
    cells = zip(column(table_shown, "arm"), column(table_shown, name), strict=True)
    return [text for of, text in cells if of == arm]


def test_an_arm_has_a_row_for_each_rung_and_the_mean_that_decides(source):
    rows = source(TWO, random_seed=1)
    table_shown = shown(rows, "comparison")
    assert of_arm(table_shown, "rung", "baseline") == ["25k", "55k", "83k", "150k"]
    assert of_arm(table_shown, "N", "baseline") == ["25.1k", "55.3k", "82.9k", "151k"]
    assert of_arm(table_shown, "seeds") == ["2", "2", "2", "2", ""]
    differences = of_arm(table_shown, "difference")
    assert all(text.startswith("−0.0") and "±" in text for text in differences)
    assert of_arm(table_shown, "multiplier")[0].startswith("1.")
    compared = only(rows, bootstrap=20)
    assert differences[-1] == notes.difference(compared.loss_difference)
    assert table_shown.notes[0] == f"{compared.sentence} With scale: {compared.with_scale.text}."


def test_many_arms_stand_one_below_the_other(source):
    table_shown = shown(source(), "comparison")
    assert column(table_shown, "rung")[:6] == ["25k", "", "", "", "", "55k"]
    assert column(table_shown, "arm") == list(EFFECTS) * 4 + list(EFFECTS)[1:]
    assert column(table_shown, "difference")[0] == "reference"
    assert all("±" in text for text in column(table_shown, "difference")[1:5])
    assert table_shown.breaks == {5, 10, 15, 20}
    best = {table_shown.rows[row][table_shown.columns.index("arm")] for row, _ in table_shown.best}
    assert best == {"unified"}


def test_a_table_has_the_figures_of_compare_and_the_rates(source):
    rows = source({"baseline": 0.0, "none": 0.04})
    compared = only(rows)
    *got, mean = [record for record in records(shown(rows, "comparison")) if record["arm"] == "none"]
    assert [float(record["difference"]) for record in got] == [cell.mean for cell in compared.by_rung]
    assert [float(record["difference_low"]) for record in got] == [c.interval[0] for c in compared.by_rung]
    assert {record["learning_rate"] for record in got} == {"0.008"}
    assert float(mean["difference"]) == compared.loss_difference.mean
    assert (mean["rung"], mean["verdict"]) == ("mean", compared.verdict)


def test_the_multiplier_of_a_rung_is_that_of_its_compute(source):
    rows = source(TWO, noise=4e-3)
    # A difference that is one at all sizes lies on no power law: the hold-out would withhold the largest.
    comparison = analysis.compare(rows, "baseline", bootstrap=20, hold_out="none", law="power").only
    largest = comparison.compute_multipliers[0]
    table_shown = shown(rows, "comparison", hold_out="none")
    got = [record for record in records(table_shown) if record["arm"] == "unified"][-2]
    assert float(got["multiplier_at_flops"]) == largest.at_flops
    assert float(got["multiplier"]) == pytest.approx(largest.estimate)
    assert float(got["multiplier_low"]) == pytest.approx(largest.interval[0])


def test_pairs_that_came_after_a_verdict_are_said_to_be_in_no_difference(source):
    rows = source(TWO, seeds=(0, 1, 2))
    rows = rows.assign(trial_id=rows["arm"] + rows["rung"] + rows["seed"].astype(str))
    judged = rows[(rows["arm"] == "unified") & (rows["rung"] != "150k")]["trial_id"]
    pairs = [[name.replace("unified", "baseline"), name] for name in judged]
    verdict = {"reference": "baseline", "arm": "unified", "verdict": "better", "pairs": pairs}
    rows.attrs["verdicts"] = [verdict]
    table_shown = shown(rows, "comparison")
    assert of_arm(table_shown, "difference")[-2] == ""
    assert any("unified: after its verdict at 150k, seed 0" in note for note in table_shown.notes)


def test_of_a_grid_of_rates_the_best_by_validation_is_shown(source):
    rows = source(TWO).assign(lr_status="fixed", learning_rate=0.01)
    both = pd.concat([rows, rows.assign(learning_rate=0.02, loss=rows["loss"] + 0.5)])
    table_shown = shown(both.assign(loss_validation=both["loss"]), "comparison")
    of_rungs = [record for record in records(table_shown) if record["rung"] != "mean"]
    assert {record["lr_status"] for record in of_rungs} == {"censored"}
    assert all(float(record["loss"]) < 4 for record in of_rungs)


def test_an_arm_that_diverged_in_a_row_is_not_its_best(source, diverge):
    rows = diverge(source({"baseline": 0.0, "none": 0.02, "unified": -0.05}), "unified", "55k", 1)
    table_shown = shown(rows, "comparison")
    arms = column(table_shown, "arm")
    best = {f"{arms[row]} {row // 3}" for row, _ in table_shown.best}
    assert best == {"unified 0", "baseline 1", "unified 2", "unified 3"}
    assert column(table_shown, "seeds")[3:6] == ["2", "2", "1"]
    assert "Without a difference, unified: arm diverged at 55k, seed 1." in table_shown.notes


def test_a_cell_whose_trials_all_diverged_says_so(source, diverge):
    rows = source({"baseline": 0.0, "unified": -0.05}, seeds=(0,))
    table_shown = shown(diverge(rows, "unified", "55k", 0), "comparison")
    assert of_arm(table_shown, "loss")[1] == "diverged"


def test_a_censored_rate_is_marked(source):
    rows = source(FEW)
    rows.loc[(rows["arm"] == "no-decay") & (rows["rung"] == "25k"), "lr_status"] = "censored"
    table_shown = shown(rows, "comparison")
    losses, arms = column(table_shown, "loss"), column(table_shown, "arm")
    assert [arm for arm, loss in zip(arms, losses, strict=True) if "†" in loss] == ["no-decay"]
    assert any(note.startswith("†: learning rate censored") for note in table_shown.notes)
    assert "censored at 25k, tuned at 55k, 83k and 150k" in " ".join(table_shown.notes)


def test_an_arm_has_a_row_where_it_was_run_with_a_result_or_without(source):
    rows = pd.concat([source(FEW), source(FEW).assign(optimizer="muon")], ignore_index=True)
    rows = rows[~((rows["arm"] == "no-decay") & (rows["optimizer"] == "muon"))]
    lost = (rows["arm"] == "no-decay") & (rows["rung"] == "25k")
    rows.loc[lost, ["status", "loss"]] = ["failed", np.nan]
    table_shown = shown(rows, "comparison")
    arms = column(table_shown, "arm")[:-2]
    assert arms.count("no-decay") == arms.count("baseline") / 2
    assert column(table_shown, "seeds").count("0") == 1
    starts = [row for row, arm in enumerate(arms) if arm == "baseline"]
    assert sorted(table_shown.breaks) == [*starts[1:], len(arms)]


@pytest.mark.parametrize(
    ("rungs", "reason"),
    [
        ({"25k": 25_088}, "no multiplier: one rung is no curve"),
        ({"25k": 25_088, "55k": 55_296}, "no multiplier: 2 rungs cannot check the law"),
    ],
)
def test_without_laws_that_are_checked_the_reason_stands_in_place_of_multipliers(source, rungs, reason):
    table_shown = shown(source(FEW, rungs=rungs), "comparison")
    assert "multiplier" not in table_shown.columns
    assert f"unified, no-decay: {reason}." in table_shown.notes


def test_it_says_whose_differences_are_to_the_reference_at_another_precision(beside_two_precisions):
    table_shown = shown(beside_two_precisions({"unified": -0.03}, {"unified": "bfloat16"}), "comparison")
    at_its_own = [row for row in records(table_shown) if row["arm"] == "unified" and row["seeds"] == "2"]
    assert {row["precision"] for row in at_its_own} == {"bfloat16"}
    assert all(row["difference"] for row in at_its_own)
    assert "unified: compared with baseline at another precision." in table_shown.notes
