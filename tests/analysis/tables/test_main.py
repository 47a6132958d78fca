"""The main table: arms side by side at each rung, what is bold, what is said of settings not run."""

import numpy as np
import pandas as pd
import pytest
from tests.shown_tables import EFFECTS, FEW, column, records, shown

from scalevec import analysis


def test_main_has_two_arms_side_by_side_and_a_row_for_each_rung(source):
    table_shown = shown(source({"baseline": 0.0, "unified": -0.03}, random_seed=1), "main")
    assert column(table_shown, "rung") == ["25k", "55k", "83k", "150k"]
    assert column(table_shown, "N") == ["25.1k", "55.3k", "82.9k", "151k"]
    assert column(table_shown, "seeds") == ["2"] * 4
    assert all(
        text.startswith("−0.0") and "±" in text for text in column(table_shown, "difference", "unified")
    )
    assert column(table_shown, "multiplier", "unified")[0].startswith("1.")


def test_main_has_many_arms_one_below_the_other(source):
    table_shown = shown(source(), "main")
    assert column(table_shown, "rung")[:6] == ["25k", "", "", "", "", "55k"]
    assert column(table_shown, "arm") == list(EFFECTS) * 4
    assert column(table_shown, "difference")[0] == "reference"
    assert all("±" in text for text in column(table_shown, "difference")[1:5])
    assert table_shown.breaks == {5, 10, 15}
    assert {table_shown.rows[row][table_shown.columns.index("arm")] for row, _ in table_shown.best} == {
        "unified"
    }


def test_pairs_that_came_after_a_verdict_are_said_to_be_in_no_difference(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, seeds=(0, 1, 2))
    rows = rows.assign(trial_id=rows["arm"] + rows["rung"] + rows["seed"].astype(str))
    judged = rows[(rows["arm"] == "unified") & (rows["rung"] != "150k")]["trial_id"]
    pairs = [[name.replace("unified", "baseline"), name] for name in judged]
    rows.attrs["verdicts"] = [
        {"reference": "baseline", "arm": "unified", "verdict": "better", "pairs": pairs}
    ]
    table_shown = shown(rows, "main")
    assert column(table_shown, "difference", "unified")[-1] == ""
    later = "Not in the differences of unified, as they came after its verdict: 150k, seed 0"
    assert any(note.startswith(later) for note in table_shown.notes)


def test_of_a_grid_of_rates_the_best_by_validation_is_shown(source):
    rows = source({"baseline": 0.0, "unified": -0.03}).assign(lr_status="fixed", learning_rate=0.01)
    both = pd.concat([rows, rows.assign(learning_rate=0.02, loss=rows["loss"] + 0.5)])
    table_shown = shown(both.assign(loss_validation=both["loss"]), "main")
    assert column(table_shown, "seeds") == ["2"] * 4
    assert {record["lr_status"] for record in records(table_shown)} == {"censored"}
    assert all(float(record["loss"]) < 4 for record in records(table_shown))


def test_main_agrees_with_compare(source):
    rows = source({"baseline": 0.0, "none": 0.04})
    compared = analysis.compare(rows, reference="baseline", bootstrap=0).only
    got = [record for record in records(shown(rows, "main")) if record["arm"] == "none"]
    assert [float(record["difference"]) for record in got] == [cell.mean for cell in compared.by_rung]
    assert [float(record["difference_low"]) for record in got] == [c.interval[0] for c in compared.by_rung]


def test_the_multiplier_of_a_rung_is_that_of_its_compute(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, noise=4e-3)
    # A difference that is one at all sizes lies on no power law: the hold-out would withhold the largest.
    compared = analysis.compare(rows, reference="baseline", bootstrap=20, hold_out="none").only
    shown_main = shown(rows, "main", hold_out="none")
    got = [record for record in records(shown_main) if record["arm"] == "unified"]
    largest = compared.compute_multipliers[1]
    assert float(got[-1]["at_flops"]) == largest.at_flops
    assert float(got[-1]["multiplier"]) == pytest.approx(largest.estimate)
    assert float(got[-1]["multiplier_low"]) == pytest.approx(largest.interval[0])


def test_bold_is_the_lowest_mean_and_a_star_says_that_it_is_separated(source):
    clear = shown(source({"baseline": 0.0, "unified": -0.05}, noise=1e-3), "main")
    assert {clear.columns[position] for _, position in clear.best} == {"loss"}
    assert all(text.endswith("*") for text in column(clear, "loss", "unified"))
    close = shown(source({"baseline": 0.0, "unified": -1e-5}, noise=2e-2), "main")
    assert len(close.best) == 4
    assert not any(text.endswith("*") for row in close.rows for text in row)


def test_one_seed_may_be_bold_but_never_separated(source):
    table_shown = shown(source({"baseline": 0.0, "unified": -0.05}, seeds=(0,)), "main")
    assert len(table_shown.best) == 4
    assert not any("*" in text or "±" in text for row in table_shown.rows for text in row)


def test_an_arm_that_diverged_in_a_row_is_not_its_best(source, diverge):
    rows = diverge(source({"baseline": 0.0, "none": 0.02, "unified": -0.05}), "unified", "55k", 1)
    table_shown = shown(rows, "main")
    best = {
        table_shown.rows[row][table_shown.columns.index("arm")] + f" {row // 3}"
        for row, _ in table_shown.best
    }
    assert best == {"unified 0", "baseline 1", "unified 2", "unified 3"}
    assert column(table_shown, "seeds")[3:6] == ["2", "2", "1"]
    assert "Without a difference, unified: diverged at 55k, seed 1." in table_shown.notes


def test_a_cell_whose_trials_all_diverged_says_so(source, diverge):
    rows = source({"baseline": 0.0, "unified": -0.05}, seeds=(0,))
    table_shown = shown(diverge(rows, "unified", "55k", 0), "main")
    assert column(table_shown, "loss", "unified")[1] == "diverged"


def test_a_censored_rate_is_marked(source):
    rows = source()
    rows.loc[(rows["arm"] == "none") & (rows["rung"] == "25k"), "lr_status"] = "censored"
    table_shown = shown(rows, "main")
    (marked,) = [row for row in table_shown.rows if "†" in row[table_shown.columns.index("loss")]]
    assert marked[table_shown.columns.index("arm")] == "none"
    assert any(note.startswith("†: learning rate censored") for note in table_shown.notes)
    assert "censored at 25k, tuned at 55k, 83k and 150k" in " ".join(table_shown.notes)


def test_decay_has_a_rule_where_another_architecture_begins_and_nowhere_else(source):
    table_shown = shown(pd.concat([source(FEW), source(FEW).assign(architecture="gemma")]), "decay")
    assert column(table_shown, "architecture") == ["gemma"] * 3 + ["llama"] * 3
    assert table_shown.breaks == {3}


def test_the_decay_convention_of_every_arm_is_said(source):
    notes = " ".join(shown(source(), "main").notes)
    assert (
        "Weight decay: 0.1 on matrices; of the scale vectors decay: all in baseline and product; "
        "no vectors in none; input in unified; none in no-decay." in notes
    )


def test_decay_that_pulls_gains_to_one_is_said(source):
    rows = source().assign(vector_gain="g")
    rows.loc[rows["arm"] == "unified", "vector_gain"] = "1+w"
    assert "baseline and product; no vectors in none; input (towards 1) in unified; none in no-decay." in (
        " ".join(shown(rows, "main").notes)
    )
    rows.loc[(rows["arm"] == "unified") & (rows["seed"] == 0), "vector_gain"] = "g"
    assert "input (towards 0 or, with 1+w, 1) in unified" in " ".join(shown(rows, "main").notes)


def test_several_settings_have_rows_and_multipliers_of_their_own(source):
    rows = source({"baseline": 0.0, "unified": -0.03})
    both = pd.concat([rows, rows.assign(optimizer="muon", loss=rows["loss"] - 0.1)])
    table_shown = shown(both, "main", hold_out="none")
    assert column(table_shown, "optimizer") == ["adamw"] * 4 + ["muon"] * 4
    assert table_shown.breaks == {4}
    assert all(column(table_shown, "multiplier", "unified"))


def in_four_settings(rows):
    settings = [(optimizer, schedule) for optimizer in ("adamw", "muon") for schedule in ("cosine", "wsd")]
    parts = [rows.assign(optimizer=optimizer, schedule=schedule) for optimizer, schedule in settings]
    return pd.concat(parts, ignore_index=True)


def fractions(rows):
    return [note for note in shown(rows, "main").notes if note.startswith("Fractional design")]


def test_a_full_product_of_settings_is_not_called_fractional(source):
    rows = source(FEW)
    assert fractions(rows) == fractions(in_four_settings(rows)) == []


def test_a_fractional_design_says_what_of_the_product_was_run(source):
    rows = in_four_settings(source(FEW))
    half = rows[(rows["optimizer"] == "adamw") == (rows["schedule"] == "cosine")]
    assert fractions(half) == ["Fractional design: 2 of 4 combinations of optimizer and schedule were run."]


def test_arms_that_were_run_in_fewer_settings_are_named(source):
    rows = in_four_settings(source(FEW))
    left_out = (rows["arm"] == "no-decay") & (rows["schedule"] == "wsd") & (rows["optimizer"] == "adamw")
    assert fractions(rows[~left_out]) == [
        "Fractional design: 4 of 4 combinations of optimizer and schedule were run; no-decay in 3 of them."
    ]


def test_an_arm_that_was_not_run_in_a_setting_has_no_row_there(source):
    rows = in_four_settings(source(FEW))
    left_out = (rows["arm"] == "no-decay") & (rows["schedule"] == "wsd")
    table_shown = shown(rows[~left_out], "main")
    assert column(table_shown, "arm").count("no-decay") == column(table_shown, "arm").count("baseline") / 2
    assert "0" not in column(table_shown, "seeds")
    starts = [row for row, arm in enumerate(column(table_shown, "arm")) if arm == "baseline"]
    assert sorted(table_shown.breaks) == starts[1:]
    assert {column(table_shown, "arm")[row] for row, _ in table_shown.best} == {"unified"}


def test_an_arm_without_a_result_keeps_its_row(source):
    rows = source(FEW)
    lost = (rows["arm"] == "no-decay") & (rows["rung"] == "25k")
    rows.loc[lost, ["status", "loss"]] = ["failed", np.nan]
    assert column(shown(rows, "main"), "seeds").count("0") == 1


def test_without_a_line_in_compute_the_reason_stands_in_place_of_multipliers(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, rungs={"25k": 25_088})
    table_shown = shown(rows, "main")
    assert "multiplier" not in table_shown.columns
    assert "No compute multipliers: unified: no multiplier from one rung." in table_shown.notes


def test_two_rungs_give_no_multiplier(source):
    table_shown = shown(source(FEW, rungs={"25k": 25_088, "55k": 55_296}), "main")
    assert "multiplier" not in table_shown.columns
    assert any("no multiplier from 2 rungs, which cannot check the law" in note for note in table_shown.notes)


def test_main_has_the_note_of_scaling_on_a_law_that_is_not_unique(source):
    # By L1 a line through an arch at four equal steps may move up and down between its points.
    rungs = {name: 20_000 * 2**step for step, name in enumerate(("20k", "40k", "80k", "160k"))}
    rows = source({"baseline": 0.5, "unified": 0.4}, seeds=(0,), noise=0, rungs=rungs)
    of_main, of_scaling = (
        [
            note
            for note in shown(rows, name, loss="l1", law="power", hold_out="none").notes
            if "the optimum is not unique" in note
        ]
        for name in ("main", "scaling")
    )
    assert [note.split(":")[0] for note in of_main] == ["baseline", "unified"]
    assert of_main == of_scaling
    assert not any("not unique" in note for note in shown(rows, "main", loss="l2").notes)


def test_main_says_whose_differences_are_to_the_reference_at_another_precision(beside_two_precisions):
    table_shown = shown(beside_two_precisions({"unified": -0.03}, {"unified": "bfloat16"}), "main")
    at_its_own = [row for row in records(table_shown) if row["arm"] == "unified" and row["seeds"] == "2"]
    assert {row["precision"] for row in at_its_own} == {"bfloat16"}
    assert all(row["difference"] for row in at_its_own)
    assert (
        "Differences of unified: to baseline at another precision, shown in the cells of the arm."
        in table_shown.notes
    )
