"""What may be asked of a comparison: other columns, rows and laws; what its answer records and returns."""

import json

import numpy as np
import pandas as pd
import pytest

import comparisons
from comparisons import only
from scalevec.analysis import DataError, compare, comparison_text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": "basline"}, "'basline', which is no arm; nearest: 'baseline'"),
        ({"reference": "baseline", "where": "arm == 'baseline'"}, "the only arm"),
        ({"reference": "baseline", "settings": ["optimiser"]}, "no column 'optimiser'"),
        ({"reference": "baseline", "interval": "seed-t"}, "a comparison chooses its own"),
        ({"reference": "baseline", "cluster": "run"}, "no column 'run'"),
    ],
)
def test_questions_that_cannot_be_answered_are_refused(sweep, options, message: str):
    with pytest.raises(DataError, match=message):
        compare(sweep(), **options)


def test_a_reference_that_stands_in_another_column_is_found_there(sweep):
    table = sweep()
    with pytest.raises(DataError, match=r"no arm; .* a column arm is needed: --map arm=optimizer"):
        compare(table.assign(optimizer=table["arm"]).drop(columns="arm"), "unified")


def test_a_comparison_is_plain_json(sweep):
    record = json.loads(json.dumps(only(sweep(), margin=0.005).to_dict(), allow_nan=False))
    assert set(record) >= {
        "reference", "arm", "pairs", "loss_difference", "by_rung", "compute_multipliers",
        "at_sizes", "with_scale", "fair", "claim_status", "scope", "trend", "equivalence", "verdict",
        "sentence", "warnings",
    }  # fmt: skip


def test_the_largest_rung_is_predicted_by_the_laws_of_the_others(sweep):
    held = only(sweep()).hold_out
    assert held["rung"] == "150k"
    assert held["predicted"] == pytest.approx(-0.03, abs=0.01)
    assert held["observed"] == pytest.approx(-0.03, abs=0.01)
    assert only(sweep(), hold_out="none").hold_out["reason"] == "none was asked for"


def test_another_column_is_compared_on_demand(sweep):
    table = sweep()
    other = table.assign(loss_other=table["loss"] + 1.0, loss=1.0)
    comparison = only(other, y="loss_other")
    assert comparison.options.y == "loss_other"
    assert comparison.loss_difference.interval == pytest.approx(only(table).loss_difference.interval)


def scored(table: pd.DataFrame) -> pd.DataFrame:
    """With an accuracy that is lower by 0.1 under the arm."""
    noise = np.random.default_rng(5).normal(0, 0.001, len(table))
    return table.assign(accuracy=0.5 - 0.1 * (table["arm"] == "unified") + noise)


def test_a_column_that_is_no_loss_is_described_without_unit_margin_or_verdict(sweep):
    comparison = only(scored(sweep()), y="accuracy", margin=0.5)
    assert comparison.verdict == "undecided"
    assert "ccuracy mean difference −0.1" in comparison.sentence
    assert not any(word in comparison.sentence for word in ("nats", "better", "worse"))
    assert comparison.equivalence == {"margin": None, "note": "the margin is in nats/token, accuracy is not"}
    assert not any("irreducible" in warning for warning in comparison.warnings)
    assert comparison.with_scale.text == "says nothing: accuracy is no loss"


def test_a_multiplier_of_more_than_a_million_is_none_and_says_so(sweep):
    comparison = only(scored(sweep()), y="accuracy")
    for multiplier in comparison.compute_multipliers:
        assert multiplier.estimate is None
        assert multiplier.note.startswith("the reference's law never reaches this accuracy")


def test_a_bad_value_of_the_compared_column_is_named_by_that_column(sweep):
    with pytest.raises(DataError, match=r"column 'accuracy', rows 1, 2, .* -1; allowed"):
        only(scored(sweep()).assign(accuracy=-1.0), y="accuracy")


@pytest.mark.parametrize(("above_test", "is_said"), [(np.nan, True), (0.01, False)])
def test_rates_that_were_chosen_on_the_text_that_is_compared_are_said(sweep, above_test, is_said):
    table = sweep().assign(loss_validation=lambda t: t["loss"] + above_test)
    text = "learning rates were chosen on the text that is compared"
    assert any(text in warning for warning in only(table).warnings) is is_said


def test_the_expression_that_chose_the_rows_and_what_it_left_out_are_said(sweep):
    table = pd.concat([sweep(seeds=(0, 1, 2)), sweep({"other": 0.0})])
    comparison = only(table, where="seed < 2 and arm != 'other'")
    assert comparison.options.where == "seed < 2 and arm != 'other'"
    assert comparison.excluded == {"where": 8}
    assert "rows: where seed < 2 and arm != 'other' (8 left out)" in comparison_text([comparison])
    assert only(sweep()).excluded == {}


def test_a_comparison_says_what_its_laws_were_fitted_with(sweep):
    comparison = only(sweep(), loss="l2", residual="linear", seed=3, x="C", bootstrap=100)
    options = comparison.options
    assert (options.loss, options.residual, options.bootstrap, options.seed) == ("l2", "linear", 100, 3)
    assert [(law["side"], law["x"]) for law in comparison.laws] == [("reference", "C"), ("arm", "C")]
    for law in comparison.laws:
        assert law["verified"]
        assert law["optimality"] < 1e-9
        assert 1 <= law["starts_agreeing"] <= law["n_starts"]
    text = comparison_text([comparison])
    assert "law power in C; least squares on linear residuals; 100 bootstrap replicates, seed 3; " in text
    assert f"objective {comparison.laws[0]['objective']:.10g} (sum)" in text


def test_the_laws_of_arms_whose_seeds_repeat_are_by_least_squares(sweep):
    rows = sweep()
    assert only(rows).options.loss == "l2"
    assert only(rows[rows["seed"] == 0]).options.loss == "huber"
    assert only(rows, loss="huber").options.loss == "huber"


def test_rungs_are_listed_by_size_and_not_by_their_text(sweep):
    sizes = {f"{n:.6g}": n for n in (102_643_000, 1_013_610_000, 30_000_000, 9_000_000_000)}
    by_rung = only(sweep(rungs=sizes)).by_rung
    assert [row.n_params for row in by_rung] == sorted(row.n_params for row in by_rung)


@pytest.fixture(scope="module")
def three(sweep):
    table = sweep({"baseline": 0.0, "none": 0.04, "unified": -0.03})
    return comparisons.compared(table)


def test_what_is_no_arm_is_answered_by_the_arms(three):
    with pytest.raises(KeyError, match="0 is no arm; allowed: "):
        three[0]


def test_an_arm_has_its_comparison_by_name_and_one_alone_is_the_only_one(sweep, three):
    expected = [("none", "none"), ("unified", "unified")]
    assert [(name, comparison.arm) for name, comparison in three.items()] == expected
    assert comparisons.only(sweep()).arm == "unified"
    with pytest.raises(ValueError, match="too many values"):
        three.only  # noqa: B018


def test_a_frame_has_a_row_for_each_arm_with_interval_and_lines(three):
    frame = three.to_frame().set_index("arm")
    unified = three["unified"]
    assert frame.loc["unified", "difference"] == unified.loss_difference.mean
    assert (frame["low"] < frame["difference"]).all()
    assert frame.loc["unified", "at_sizes"] == unified.at_sizes.text
    assert "<td>unified</td>" in three._repr_html_()
