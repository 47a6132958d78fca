"""Designs that carry no interval: copies, two rungs, several settings at one rung; and what is said there."""

import numpy as np
import pandas as pd
import pytest

from comparisons import only
from scalevec.analysis import fit
from scalevec.analysis.statistics.paired import equivalence_p, overall
from scalevec.analysis.statistics.sample import PairedSample


def copied(table: pd.DataFrame, seeds: int = 2) -> pd.DataFrame:
    """The trials of seed 0 with the same losses under several seeds."""
    once = table[table["seed"] == 0]
    return pd.concat([once.assign(seed=seed) for seed in range(seeds)], ignore_index=True)


def test_rows_that_agree_in_all_but_a_name_are_no_copies(sweep):
    table = sweep({"baseline": 0.0}).assign(loss=lambda t: t["loss"].round(1))
    named = pd.concat([table.assign(run="a"), table.assign(run="b")])
    assert fit(named, bootstrap=0).only.n_points == 2 * len(table)


def test_copies_with_values_that_have_no_hash_are_read(sweep):
    table = sweep({"baseline": 0.0}).assign(shape=lambda t: [[8, 64]] * len(t))
    assert fit(pd.concat([table, table]), bootstrap=0).only.n_points == len(table)


def test_seeds_that_are_copies_carry_no_interval_of_a_law(sweep):
    (fitted,) = fit(copied(sweep({"baseline": 0.0})), law="power", bootstrap=20).values()
    assert fitted.intervals == {}
    assert fitted.predict()["low"].isna().all()
    assert fitted.interval_note == "no interval: repeated points are copies, which carry no noise"


def test_seeds_that_are_copies_carry_no_verdict(sweep):
    comparison = only(copied(sweep(), 3), margin=0.1, bootstrap=20)
    assert comparison.verdict == "undecided"
    difference = comparison.loss_difference
    assert (difference.interval, difference.p_value, difference.df) == (None, None, 0)
    assert comparison.reason.code == "one_seed"
    middle = comparison.compute_multipliers[0]
    assert middle.interval is None
    assert "seeds are copies" in middle.note
    [caution] = [warning for warning in comparison.warnings if "copies" in warning]
    assert caution.startswith("unified: baseline, unified: the seed has no effect")


def test_seeds_that_differ_by_less_than_any_training_are_copies(sweep):
    nudged = copied(sweep(), 3).assign(loss=lambda t: t["loss"] + 1e-7 * np.sin(range(len(t))))
    assert only(nudged, bootstrap=20).loss_difference.interval is None


def test_copies_on_one_side_carry_no_verdict_and_copies_at_one_size_no_noise_of_it(sweep):
    table = sweep(seeds=range(3), noise=0.004)
    reference = copied(table[table["arm"] == "baseline"], 3)
    one_sided = only(pd.concat([reference, table[table["arm"] != "baseline"]]), bootstrap=0)
    assert (one_sided.loss_difference.interval, one_sided.verdict) == (None, "undecided")
    at_largest = copied(table.query("rung == '150k'"), 3).assign(loss=lambda t: t["loss"] + 1e-8 * t["seed"])
    comparison = only(pd.concat([table.query("rung != '150k'"), at_largest]), bootstrap=0)
    assert "one run at 150k" in comparison.at_sizes.text


def test_one_seed_number_and_other_flops_at_all_sizes_are_warned_of(sweep):
    table = sweep().query("seed == 0").assign(seed=7, flops=lambda t: 1e12 * (1 + (t["arm"] == "unified")))
    warnings = " ".join(only(table, bootstrap=0).warnings)
    assert "seeds have one number" in warnings
    assert "it has 2 to 2 times the FLOPs of baseline" in warnings


@pytest.mark.parametrize("cells", [np.repeat(range(4), 3), np.arange(12)])
def test_differences_without_noise_have_no_p_value(cells):
    estimate = overall(PairedSample.of(np.full(12, -0.03), np.array(cells)))
    assert estimate.df == 0
    assert (estimate.interval(0.95), estimate.p_value(), equivalence_p(estimate, 0.1)) == (None, None, None)


SEVERAL = "no interval: values of {} differ at one rung, by more than seed noise; choose one with where"


def test_a_grid_over_fixed_rates_is_said_and_tuned_rates_are_not(sweep):
    table = sweep({"baseline": 0.0}, seeds=(0,))
    rates = pd.concat([table.assign(learning_rate=rate, loss=table["loss"] + rate) for rate in (0.01, 0.02)])
    (fitted,) = fit(rates.drop(columns="lr_status")).values()
    assert fitted.interval_note == SEVERAL.format("learning_rate")
    tuned = table.assign(learning_rate=[0.04, 0.03, 0.02, 0.01])
    assert "choose one with where" not in fit(tuned).only.interval_note


def test_a_setting_with_one_value_a_rung_is_a_recipe_of_one_law(sweep):
    table = sweep({"baseline": 0.0}).assign(architecture=lambda t: "d" + t["rung"])
    (fitted,) = fit(table, bootstrap=20).values()
    assert fitted.intervals
