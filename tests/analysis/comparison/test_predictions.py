"""What was predicted before the results stands beside what was seen, judged by one rule."""

import numpy as np
import predict_rung
import pytest

from comparisons import compared, only
from scalevec.analysis import compare, comparison_text
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.report.text import verdict_table


def kept(*predictions, at="2026-01-02T03:04:05.000+00:00", with_result=0):
    """A list of predictions as a sweep's folder keeps it."""
    entries = [{"reference": "baseline", **prediction} for prediction in predictions]
    known = [{"with_result": with_result}] * len(entries)
    return {"at": at, "sha256": "ab" * 32, "predictions": entries, "known": known}


def judged(table, *lists, **options):
    """The predictions of the only comparison, the newest list first."""
    table = table.copy()
    table.attrs["predictions"] = list(lists)
    comparison = only(table, **options)
    return comparison.predictions


def outcomes(table, *predictions, **options):
    return [prediction.outcome for prediction in judged(table, kept(*predictions), **options)]


LOWER = {"arm": "unified", "sign": "lower"}
HIGHER = {"arm": "unified", "sign": "higher"}


def test_a_sign_comes_true_opposite_or_cannot_be_told(sweep):
    clear, none = sweep(), sweep({"baseline": 0.0, "unified": 0.0}, random_seed=3)
    assert outcomes(clear, LOWER) == ["came true"]
    assert outcomes(clear, HIGHER) == ["came out opposite"]
    assert outcomes(none, LOWER) == ["cannot be told"]


def test_it_speaks_only_of_the_cells_it_names(sweep):
    table = sweep(seeds=(0, 1, 2, 3))
    at_25k = (table["rung"] == "25k") & (table["arm"] == "unified")
    table.loc[at_25k, "loss"] += 0.06
    (prediction,) = judged(table, kept(HIGHER | {"where": "rung == '25k'"}))
    wide = table[table["rung"] == "25k"].pivot_table(index="seed", columns="arm", values="loss")
    assert prediction.seen == pytest.approx((wide["unified"] - wide["baseline"]).mean())
    assert (prediction.pairs, prediction.outcome) == (4, "came true")


def test_the_signs_of_a_list_are_one_family(sweep):
    at = [LOWER | {"where": f"rung == '{rung}'"} for rung in ("25k", "55k", "83k")]
    alone = judged(sweep(), kept(at[0]))[0]
    together = judged(sweep(), kept(*at))
    assert alone.p_holm == alone.p_value
    expected = pytest.approx(min(prediction.p_holm for prediction in together))
    assert min(prediction.p_value for prediction in together) * 3 == expected


@pytest.mark.parametrize(
    ("interval", "outcome"), [([-0.05, -0.01], "came true"), ([-0.2, -0.1], "came out otherwise")]
)
def test_a_predicted_difference_comes_true_where_the_mean_lies_in_its_interval(sweep, interval, outcome):
    value = {"arm": "unified", "difference": sum(interval) / 2, "interval": interval}
    (prediction,) = judged(sweep(), kept(value))
    assert (prediction.outcome, prediction.p_holm) == (outcome, None)


def test_nothing_is_told_before_every_planned_pair_has_a_result(sweep):
    table = sweep()
    last = (table["rung"] == "150k") & (table["seed"] == 1) & (table["arm"] == "unified")
    table.loc[last, ["status", "loss"]] = ["running", np.nan]
    value = {"arm": "unified", "difference": -0.03, "interval": [-0.1, 0.1]}
    some, whole, elsewhere = judged(table, kept(LOWER, value, LOWER | {"where": "rung != '150k'"}))
    assert {some.outcome, whole.outcome} == {"cannot be told"}
    assert (some.reason, some.seen_interval) == ("7 of 8 pairs have a result", None)
    assert elsewhere.outcome == "came true"


def test_a_diverged_side_leaves_nothing_to_tell(sweep, diverge):
    (prediction,) = judged(diverge(sweep(), "unified", "55k", 1), kept(LOWER))
    assert (prediction.outcome, prediction.reason) == ("cannot be told", "a side of 1 pair diverged")


@pytest.mark.parametrize(("arm", "outcome"), [("baseline", "cannot be told"), ("unified", "came true")])
def test_lower_than_a_bound_says_nothing(sweep, arm, outcome):
    table = sweep()
    table.loc[table["arm"] == arm, "lr_status"] = "censored"
    assert outcomes(table, LOWER) == [outcome]


def test_any_two_arms_may_be_predicted_and_each_prediction_stands_once(sweep):
    table = sweep({"baseline": 0.0, "none": 0.04, "unified": -0.03})
    table.attrs["predictions"] = [
        kept(
            {"arm": "unified", "reference": "none", "sign": "lower"},
            {"arm": "baseline", "reference": "none", "sign": "lower"},
        )
    ]
    comparisons = {c.arm: c.predictions for c in compared(table).values()}
    assert [p.words for p in comparisons["unified"]] == ["unified lower than none"]
    assert [p.words for p in comparisons["none"]] == ["baseline lower than none"]
    assert {p.outcome for of_arm in comparisons.values() for p in of_arm} == {"came true"}


def test_a_list_that_was_replaced_stands_beside_the_one_that_stands(sweep):
    first, second = kept(HIGHER), kept(LOWER, at="2026-01-03T00:00:00.000+00:00", with_result=4)
    new, old = judged(sweep(), first, second)
    expected = (True, "came true", False, "came out opposite")
    assert (new.stands, new.outcome, old.stands, old.outcome) == expected
    assert "kept 2026-01-02 03:04 UTC, before any run it speaks of had a result" in old.sentence
    assert "when 4 of its trials had a result" in new.sentence


@pytest.mark.parametrize(
    ("prediction", "reason"),
    [
        (LOWER | {"where": "size > 3"}, "no column 'size'"),
        ({"arm": "gone", "sign": "lower"}, "gone has no trial"),
    ],
)
def test_a_prediction_that_no_trial_can_answer_says_why(sweep, prediction, reason):
    table = sweep()
    table.attrs["predictions"] = [kept(prediction | {"reference": "baseline"})]
    comparison = only(table)
    (prediction_shown,) = comparison.predictions
    assert (prediction_shown.outcome, prediction_shown.seen) == ("cannot be told", None)
    assert reason in prediction_shown.reason


def test_the_text_shows_predicted_and_seen(sweep):
    table = sweep()
    table.attrs["predictions"] = [kept(LOWER)]
    comparisons = list(compared(table).values())
    (prediction,) = comparisons[0].predictions
    assert prediction.sentence in comparison_text(comparisons)
    assert "1 prediction: 1 came true." in verdict_table(comparisons).splitlines()
    assert comparisons[0].to_dict()["predictions"][0]["outcome"] == "came true"


def test_what_the_smaller_rungs_say_of_the_next_does_not_depend_on_what_comes_out_there(sweep):
    rows = sweep(seeds=(0, 1, 2)).assign(stage="comparison")
    for name in predict_rung.IDENTITIES:
        rows[name] = [f"{name} {number}" for number in range(len(rows))]
    worse = rows.assign(loss=rows["loss"].where(rows["rung"] != "150k", rows["loss"] + 0.5))
    options = AnalysisOptions(law="power")
    asked = ("unified", "150k", "baseline", options)
    held, again = (predict_rung.prediction(each, *asked) for each in (rows, worse))
    comparison = compare(rows, reference="baseline", options=options).only
    assert held == again
    assert held["rung"] == "150k"
    assert held["predicted"] == pytest.approx(comparison.hold_out["predicted"])
    assert held["interval"][0] < held["predicted"] < held["interval"][1]
