"""What a verdict claims: when it says better, worse, equivalent or undecided, and what it rests on."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tests.comparisons import only

from scalevec.analysis import compare


def test_a_clear_gain_is_better_and_a_clear_loss_is_worse(sweep):
    table = sweep({"baseline": 0.0, "none": 0.04, "unified": -0.03})
    verdicts = {c.arm: c.verdict for c in compare(table, reference="baseline", bootstrap=50)}
    assert verdicts == {"none": "worse", "unified": "better"}


def test_the_difference_is_the_mean_of_pairs_with_the_noise_of_each_rung(sweep):
    table = sweep()
    wide = table.pivot_table(index=["rung", "seed"], columns="arm", values="loss")
    differences = (wide["unified"] - wide["baseline"]).unstack()
    variances = differences.var(axis=1, ddof=1)
    df = variances.sum() ** 2 / (variances**2).sum()  # one degree of freedom each
    half = variances.mean() ** 0.5 / 8**0.5 * stats.t.ppf(0.975, df)
    mean = differences.to_numpy().mean()
    difference = only(table).loss_difference
    assert (difference.mean, difference.df) == (pytest.approx(mean), pytest.approx(df))
    assert difference.interval == pytest.approx((mean - half, mean + half), rel=1e-6)


def test_seeds_are_paired_so_shared_noise_cancels(sweep):
    table = sweep(noise=0.004)
    shifted = table.assign(loss=table["loss"] + 0.2 * table["seed"])
    assert only(shifted).loss_difference.interval == pytest.approx(only(table).loss_difference.interval)


def test_one_seed_carries_no_claim(sweep):
    comparison = only(sweep(seeds=(0,)), margin=0.5)
    assert comparison.verdict == "undecided"
    assert comparison.loss_difference.interval is None
    assert comparison.loss_difference.p_value is None
    assert comparison.trend["interval"] is None
    assert {m.interval for m in comparison.compute_multipliers} == {None}
    assert "no claim" in comparison.sentence
    assert "second seed" in comparison.would_change


def test_a_difference_that_its_interval_does_not_carry_is_undecided(sweep):
    comparison = only(sweep({"baseline": 0.0, "unified": -0.002}, noise=0.01))
    assert comparison.verdict == "undecided"
    low, high = comparison.loss_difference.interval
    assert low < 0 < high
    assert "pairs at every rung would resolve" in comparison.would_change


def test_many_arms_raise_the_bar_for_each(sweep):
    alone = only(sweep({"baseline": 0.0, "unified": -0.03}))
    crowd = compare(
        sweep({"baseline": 0.0, "unified": -0.03, "a": 0.0, "b": 0.0}), reference="baseline", bootstrap=50
    )
    assert alone.loss_difference.p_holm == pytest.approx(alone.loss_difference.p_value)
    unified = next(c for c in crowd if c.arm == "unified")
    assert unified.loss_difference.p_holm == pytest.approx(3 * unified.loss_difference.p_value)


def test_a_difference_inside_the_margin_is_equivalent(sweep):
    comparison = only(sweep({"baseline": 0.0, "unified": 0.0}, noise=0.001), margin=0.01)
    assert comparison.verdict == "equivalent"
    assert comparison.equivalence["p_value"] < 0.05


def test_no_difference_without_a_margin_is_not_called_equivalent(sweep):
    assert only(sweep({"baseline": 0.0, "unified": 0.0}, noise=0.001)).verdict == "undecided"


def test_the_same_trials_under_two_names_are_equivalent_by_construction(sweep):
    table = sweep({"baseline": 0.0})
    table["trial_id"] = table.index.astype(str)
    comparison = only(pd.concat([table, table.assign(arm="twin")], ignore_index=True))
    assert comparison.verdict == "equivalent"
    assert "identical by construction" in comparison.sentence


def test_an_effect_that_grows_with_scale_shows_in_the_trend(sweep):
    table = sweep({"baseline": 0.0, "unified": 0.0}, noise=0.001)
    decades = np.log10(table["n_params"] * table["n_tokens"])
    comparison = only(table.assign(loss=table["loss"] - 0.02 * decades * (table["arm"] == "unified")))
    low, high = comparison.trend["interval"]
    assert low < -0.02 < high < 0
    assert any("not the same at all rungs" in warning for warning in comparison.warnings)


def test_a_gain_that_rests_on_one_rung_says_which(sweep):
    table = sweep({"baseline": 0.0, "unified": 0.0}, noise=0.002)
    gained = (table["arm"] == "unified") & (table["rung"] == "83k")
    comparison = only(table.assign(loss=table["loss"] - 0.06 * gained))
    assert comparison.verdict == "better"
    assert "Fragile: leaving out 83k makes it undecided." in comparison.would_change


def test_a_gain_that_rests_on_one_optimizer_says_which(sweep):
    table = sweep({"baseline": 0.0, "unified": 0.0}, noise=0.002)
    both = pd.concat([table.assign(optimizer="adamw"), table.assign(optimizer="lion")])
    gained = (both["arm"] == "unified") & (both["optimizer"] == "lion")
    comparison = only(both.assign(loss=both["loss"] - 0.06 * gained))
    assert comparison.verdict == "better"
    assert "Fragile: leaving out optimizer lion makes it undecided." in comparison.would_change
    firm = only(both.assign(loss=both["loss"] - 0.06 * (both["arm"] == "unified")))
    assert "It holds if any one rung or optimizer is left out" in firm.would_change


def test_one_rung_alone_is_not_said_to_hold_without_it(sweep):
    comparison = only(sweep({"baseline": 0.0, "unified": -0.3}, rungs={"25k": 25_088}, noise=0.002))
    assert "left out" not in comparison.would_change


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
    assert "spread between rungs" in comparison.trend["note"]
    json.dumps(comparison.to_dict(), allow_nan=False)


def test_what_a_gain_rests_on_is_judged_at_the_level_of_holm(sweep):
    """Pairs at -0.013 +- 0.005: t is 5.2 (Holm's p of six arms 0.04), and 4.5 without any one rung."""
    table = sweep({"baseline": 0.0, "unified": -0.013, **{f"other{i}": 0.0 for i in range(5)}}, noise=0.0)
    table["loss"] += 0.005 * (2 * table["seed"] - 1) * (table["arm"] == "unified")
    stated = {"reference": "baseline", "bootstrap": 0, "repeated_seeds": "independent"}
    crowd = {c.arm: c for c in compare(table, **stated)}["unified"]
    (alone,) = compare(table[table["arm"].isin(["baseline", "unified"])], **stated)
    assert crowd.verdict == alone.verdict == "better"
    assert "It holds if any one rung is left out" in alone.would_change
    assert "Fragile: leaving out" in crowd.would_change


def test_few_degrees_of_freedom_are_blamed_only_for_an_interval_that_is_wide(sweep):
    rungs = {"25k": 25_088, "55k": 55_296}
    clear = only(sweep({"baseline": 0.0, "unified": -0.3}, rungs=rungs))
    unclear = only(sweep({"baseline": 0.0, "unified": -0.002}, rungs=rungs, noise=0.02))
    assert max(clear.loss_difference.df, unclear.loss_difference.df) < 3
    assert not any("little is known" in text for text in clear.warnings)
    assert any("little is known" in text for text in unclear.warnings)
