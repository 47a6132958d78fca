"""What a verdict claims: when it says better, worse, equivalent or undecided, and of which sizes."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from comparisons import compared, only
from scalevec.analysis.report.text import verdict_rows


def streamed(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(stream=table["rung"] + " " + table["seed"].astype(str))


def moved(table: pd.DataFrame, **by_rung: float) -> pd.DataFrame:
    """``table`` with the arm's loss moved at rungs, ``r25k=0.1``."""
    shift = table["rung"].map({name.removeprefix("r"): value for name, value in by_rung.items()}).fillna(0.0)
    return streamed(table.assign(loss=table["loss"] + shift * (table["arm"] == "unified")))


@pytest.fixture(name="equal")
def equal_fixture(sweep) -> pd.DataFrame:
    """Four rungs of three seeds, without a difference."""
    return sweep({"baseline": 0.0, "unified": 0.0}, seeds=(0, 1, 2), noise=0.001)


def test_a_clear_gain_is_better_and_a_clear_loss_is_worse(sweep):
    table = sweep({"baseline": 0.0, "none": 0.04, "unified": -0.03}, seeds=(0, 1, 2))
    verdicts = {c.arm: (c.verdict, c.at_sizes.text) for c in compared(table).values()}
    expected = {"none": ("worse", "higher at all 4 sizes"), "unified": ("better", "lower at all 4 sizes")}
    assert verdicts == expected


def test_the_difference_is_the_mean_of_pairs_with_the_noise_of_each_rung(sweep):
    table = streamed(sweep())
    wide = table.pivot_table(index=["rung", "seed"], columns="arm", values="loss")
    differences = (wide["unified"] - wide["baseline"]).unstack()
    variances = differences.var(axis=1, ddof=1)
    df = variances.sum() ** 2 / (variances**2).sum()  # one degree of freedom each
    half = variances.mean() ** 0.5 / 8**0.5 * stats.t.ppf(0.975, df)
    mean = differences.to_numpy().mean()
    difference = only(table).loss_difference
    assert (difference.mean, difference.df) == (pytest.approx(mean), pytest.approx(df))
    assert difference.interval == pytest.approx((mean - half, mean + half), rel=1e-6)


def test_each_size_has_its_own_interval(sweep):
    table = streamed(sweep(seeds=(0, 1, 2)))
    wide = table[table["rung"] == "55k"].pivot_table(index="seed", columns="arm", values="loss")
    differences = wide["unified"] - wide["baseline"]
    size = next(size for size in only(table).sizes if size.name == "55k")
    t = stats.ttest_1samp(differences, 0.0)
    assert (size.mean, size.p_value) == (pytest.approx(differences.mean()), pytest.approx(t.pvalue))
    assert size.interval == pytest.approx(tuple(t.confidence_interval(0.95)))


def test_one_seed_carries_no_claim(sweep):
    comparison = only(sweep(seeds=(0,)), margin=0.5, bootstrap=20)
    assert (comparison.verdict, comparison.reason.code) == ("undecided", "one_seed")
    assert comparison.loss_difference.interval is None
    assert comparison.trend["interval"] is None
    assert {m.interval for m in comparison.compute_multipliers} == {None}


def test_an_undecided_arm_is_told_what_the_design_sees(sweep):
    comparison = only(sweep({"baseline": 0.0, "unified": -0.002}, noise=0.01))
    assert (comparison.verdict, comparison.reason.code) == ("undecided", "noise")
    assert comparison.at_sizes.text.startswith("not resolved (this design sees 0.0")


def test_many_arms_raise_the_bar_for_each_those_that_where_leaves_out_too(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.03, "a": 0.0, "b": 0.0})
    for where in (None, "arm in ['baseline', 'unified']"):
        unified = compared(table, where=where)["unified"]
        assert unified.loss_difference.p_holm == pytest.approx(3 * unified.loss_difference.p_value)


def test_one_size_carries_a_claim_that_says_so(sweep):
    comparison = only(sweep({"baseline": 0.0, "unified": -0.3}, rungs={"25k": 25_088}))
    assert (comparison.verdict, comparison.scope.code) == ("better", "one_size")
    assert comparison.at_sizes.text == "lower at 25k"
    assert comparison.with_scale.text == "one size: says nothing of scale"


def test_arms_that_cross_are_neither_equivalent_nor_better(equal):
    comparison = only(moved(equal, r25k=-0.04, r55k=-0.015, r83k=0.015, r150k=0.04), margin=0.005)
    assert comparison.verdict == "undecided"
    assert comparison.at_sizes.text == "lower at 25k and 55k; higher at 83k and 150k, the largest"
    assert comparison.with_scale.code == "reverses"


@pytest.mark.parametrize(("sign", "words"), [(1, ("lower", "higher")), (-1, ("higher", "lower"))])
def test_no_mean_hides_that_the_largest_size_says_the_opposite(equal, sign, words):
    shifts = {"r25k": -0.08, "r55k": -0.04, "r83k": 0.0, "r150k": 0.02}
    comparison = only(moved(equal, **{name: sign * by for name, by in shifts.items()}))
    assert (comparison.verdict, comparison.reason.code) == ("undecided", "crosses")
    assert comparison.at_sizes.text == f"{words[0]} on average; {words[1]} at 150k, the largest"


def test_a_smaller_size_that_says_the_opposite_is_said_and_blocks_nothing(equal):
    comparison = only(moved(equal, r25k=0.02, r55k=-0.04, r83k=-0.04, r150k=-0.04))
    assert comparison.verdict == "better"
    assert comparison.at_sizes.text == "lower on average; higher at 25k"


def test_no_mean_hides_a_setting_that_says_the_opposite(equal):
    table = pd.concat([equal.assign(optimizer="adamw"), equal.assign(optimizer="lion")])
    shift = np.where(table["optimizer"] == "lion", 0.02, -0.06) * (table["arm"] == "unified")
    comparison = only(table.assign(loss=table["loss"] + shift))
    assert comparison.verdict == "undecided"
    assert comparison.at_sizes.text == "lower on average; higher with lion"


def test_a_size_of_one_run_is_said_and_left_out_of_the_mean(equal):
    noisy = moved(equal, r25k=-0.02, r55k=-0.02, r83k=-0.02, r150k=0.3)
    comparison = only(noisy[(noisy["rung"] != "150k") | (noisy["seed"] == 0)])
    assert (comparison.verdict, comparison.scope.text) == ("better", "up to 83k")
    assert comparison.loss_difference.mean == pytest.approx(-0.02, abs=0.002)
    assert "lower at 25k, 55k and 83k; one run at 150k (+0.3" in comparison.at_sizes.text


def test_equivalence_needs_every_size_inside_the_margin_and_comes_before_better(equal):
    inside = only(moved(equal, r25k=-0.002, r55k=-0.002, r83k=-0.002, r150k=-0.002), margin=0.01)
    assert inside.verdict == "equivalent"
    assert inside.at_sizes.text.startswith("within 0.01 at every size")
    one_out = only(moved(equal, r25k=-0.012), margin=0.01)
    assert one_out.verdict != "equivalent"


def test_equivalence_is_corrected_over_the_arms(sweep):
    table = streamed(sweep({"baseline": 0.0, "a": 0.0, "b": 0.0}, seeds=(0, 1, 2), noise=0.001))
    for comparison in compared(table, margin=0.01).values():
        assert comparison.equivalence["p_holm"] > comparison.equivalence["p_value"]


def test_no_difference_without_a_margin_is_not_called_equivalent(equal):
    assert only(equal).verdict == "undecided"


def test_the_same_trials_under_two_names_are_equivalent_by_construction(sweep):
    table = sweep({"baseline": 0.0})
    table["trial_id"] = table.index.astype(str)
    comparison = only(pd.concat([table, table.assign(arm="twin")], ignore_index=True))
    assert comparison.verdict == "equivalent"
    assert "identical by construction" in comparison.sentence


MANY = {str(n): n for n in range(20_000, 140_000, 10_000)}
"""Twelve rungs."""


def test_a_trend_at_one_seed_and_many_rungs_has_the_spread_between_them(sweep):
    table = sweep(seeds=(0,), rungs=MANY)
    comparison = only(table)
    wide = table.pivot_table(index="n_params", columns="arm", values="loss")
    decades = np.log10(6 * 16 * wide.index.to_numpy(float) ** 2)
    line, covariance = np.polyfit(decades, wide["unified"] - wide["baseline"], 1, cov=True)
    half = 2.228139 * covariance[0, 0] ** 0.5
    assert comparison.trend["interval"] == pytest.approx((line[0] - half, line[0] + half), rel=1e-4)
    assert comparison.trend["df"] == 10
    json.dumps(comparison.to_dict(), allow_nan=False)


def test_rounded_losses_leave_no_size_out_and_their_rounding_counts_as_noise(equal):
    exact = moved(equal, r25k=-0.06, r55k=-0.05, r83k=-0.05, r150k=-0.06)
    rounded, full = only(exact.assign(loss=exact["loss"].round(2))), only(exact)
    assert (rounded.verdict, rounded.scope.text) == ("better", full.scope.text)
    assert rounded.loss_difference.standard_error > 2 * full.loss_difference.standard_error
    words = "losses have 2 decimals, and their rounding counts as noise"
    assert any(words in text for text in rounded.warnings)
    assert not any("decimals" in text for text in full.warnings)


def test_a_change_with_scale_is_said_where_no_size_shows_a_difference_and_is_no_word_on_a_gain(sweep):
    equal = sweep({"baseline": 0.0, "unified": 0.0}, seeds=(0, 1, 2), noise=0.004)
    crossing = only(moved(equal, r25k=-0.006, r55k=-0.002, r83k=0.002, r150k=0.006))
    assert (crossing.verdict, crossing.with_scale.code) == ("undecided", "none")
    assert "no difference resolved at any size; but it changes: +0.0" in crossing.with_scale.text
    assert "changes" not in only(moved(equal)).with_scale.text


def test_the_p_of_a_difference_to_a_bound_is_not_shown(equal):
    tuned = np.where(equal["arm"] == "baseline", "fixed", "tuned")
    bounded = only(moved(equal, r25k=-0.02, r55k=-0.02, r83k=-0.02, r150k=-0.02).assign(lr_status=tuned))
    assert bounded.at_sizes.code == "bounded"
    assert dict(zip(*verdict_rows([bounded]), strict=True))["p"] == "-"


@pytest.mark.parametrize(
    ("adamw", "others"), [(-0.02, 0), (-0.05, 8)], ids=["mean zero", "many arms, mean lower"]
)
def test_settings_that_contradict_each_other_are_told_and_let_nothing_be_called_better(sweep, adamw, others):
    parts, equal = [], dict.fromkeys(["baseline", *(f"arm {number}" for number in range(others))], 0.0)
    for number, (optimizer, effect) in enumerate({"adamw": adamw, "muon": 0.02}.items(), start=2):
        rows = sweep(equal | {"unified": effect}, (0, 1, 2), noise=0.002, random_seed=number)
        parts.append(streamed(rows).assign(optimizer=optimizer))
    comparison = compared(pd.concat(parts))["unified"]
    assert (comparison.verdict, comparison.reason.code) == ("undecided", "crosses")
    assert comparison.at_sizes.text == f"lower {'on average' if others else 'with adamw'}; higher with muon"
    assert comparison.with_scale.code == ("not_resolved" if others else "none")


@pytest.mark.slow
def test_one_size_of_many_arms_without_a_difference_is_rarely_called_different(sweep):
    told = 0
    for number in range(20):
        arms = {f"arm {arm}": 0.0 for arm in range(8)}
        table = streamed(sweep({"baseline": 0.0} | arms, seeds=(0, 1, 2), random_seed=number))
        told += any(each.at_sizes.code != "not_resolved" for each in compared(table, bootstrap=0).values())
    assert told <= 3  # at 5 % of the tables; of eight arms each at 5 % it were 7
