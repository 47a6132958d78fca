"""Which trials are pairs, which are missing, arms or settings without any; their order and their cells."""

import numpy as np
import pandas as pd
import pytest

from comparisons import compared, only
from scalevec.analysis import DataError
from scalevec.analysis.comparison import compare
from scalevec.analysis.comparison.trials import compared_trials
from scalevec.analysis.options import AnalysisOptions


def test_failed_pairs_are_listed_as_missing_and_single_trials_as_unpaired(sweep):
    table = sweep()
    table.loc[0, ["status", "loss"]] = ["failed", np.nan]
    comparison = only(table.drop(index=table.index[-1]))
    assert comparison.pairs == 6
    failed, single = ("25k, seed 0",), ("150k, seed 1",)
    assert comparison.absences == {"failed or cancelled": failed, "one side only": single}


@pytest.mark.parametrize(
    ("column", "words"),
    [("micro_batch", "different micro-batch sizes"), ("world_size", "different numbers of processes")],
)
def test_a_pair_that_was_trained_otherwise_on_one_side_is_named(sweep, column, words):
    table = sweep().assign(**{column: 2})
    table.loc[0, column] = 1
    assert any(f"1 pair used {words}" in warning for warning in only(table).warnings)
    alone = only(table.iloc[1:])
    assert not any("1 pair used" in warning for warning in alone.warnings)


def test_arms_without_a_common_rung_are_refused(sweep):
    table = sweep()
    small = table["rung"].isin(["25k", "55k"])
    with pytest.raises(
        DataError, match=r"no arm has a trial in common.*25k \(401k tokens\), 55k .*: 83k .*, 150k \(2.41M"
    ):
        only(table[small == (table["arm"] == "baseline")])


def test_one_arm_of_several_without_a_common_rung_has_no_verdict(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.03, "other": 0.0})
    elsewhere = table["arm"] == "other"
    table.loc[elsewhere, "rung"] = "elsewhere"
    table.loc[table["arm"] == "unified", "loss"] -= 0.03
    verdicts = {c.arm: (c.verdict, c.pairs) for c in compared(table).values()}
    assert verdicts["unified"][0] == "better"
    assert verdicts["other"] == ("invalid", 0)


def test_pairs_agree_in_every_setting(sweep):
    table = pd.concat([sweep(random_seed=i).assign(optimizer=o) for i, o in enumerate(("adamw", "muon"))])
    comparison = only(table)
    assert comparison.pairs == 16
    assert comparison.loss_difference.df <= 4  # both settings of a rung have the same two seeds
    assert {row.setting["optimizer"] for row in comparison.by_rung} == {"adamw", "muon"}
    assert comparison.compute_multipliers == ()
    assert "several values of optimizer" in comparison.withheld


def test_a_grid_field_of_a_sweep_is_a_setting(sweep):
    parts = [sweep(random_seed=i).assign(weight_decay=w) for i, w in enumerate((0.0, 0.1))]
    table = pd.concat(parts, ignore_index=True).assign(sweep="quickstart")
    table["trial_id"] = table.index.astype(str)
    assert only(table).pairs == 16


@pytest.mark.parametrize("column", ["tokenizer", "vocab_size", "eval_set"])
def test_arms_that_differ_in_what_their_losses_are_of_are_cautioned(sweep, column):
    table = sweep()
    told = only(table.assign(**{column: table["arm"]})).warnings
    assert any(f"differ in {column}: losses per token of two tokenizers, or of two texts" in t for t in told)
    assert not any(column in text for text in only(table.assign(**{column: "one"})).warnings)


def test_losses_of_two_units_are_refused(sweep):
    table = sweep()
    with pytest.raises(DataError, match=r"'unit' has losses in nats and bits: .* --where \"unit == 'nats'"):
        only(table.assign(unit=np.where(table["arm"] == "baseline", "nats", "bits")))


def test_runs_that_no_seed_tells_apart_are_told_so(sweep):
    with pytest.raises(DataError, match="no seed tells them apart: number the runs of a cell"):
        only(sweep()[["arm", "n_params", "n_tokens", "loss"]])


def test_an_arm_that_is_called_like_a_number_may_be_named_as_one(sweep):
    assert list(compare.compare(sweep({"0": 0.0, "1": -0.1}), 0)) == ["1"]


def test_two_rows_with_one_key_are_refused(sweep):
    table = sweep()
    with pytest.raises(DataError, match=r"two rows with rung 25k.*seed 0"):
        only(pd.concat([table, table.iloc[[0]].assign(loss=3.0)]))


def test_a_sweep_of_which_only_tuning_has_ended_has_nothing_to_compare_yet(sweep):
    with pytest.raises(DataError, match="no trial to compare yet"):
        only(sweep().assign(stage="tuning"))


def test_fields_that_a_trainer_does_not_have_are_no_settings_and_have_no_name(sweep):
    table = sweep().assign(optimizer=None, schedule=None)
    pending = (table["arm"] == "unified") & (table["rung"] == "55k")
    table.loc[pending, "status"], table.loc[pending, "loss"] = "pending", None
    comparison = only(table)
    waiting = tuple(f"55k, seed {seed}" for seed in sorted({*table["seed"]}))
    assert comparison.absences["no result yet"] == waiting
    assert comparison.verdict == "incomplete"
    assert not any("nan" in warning for warning in comparison.warnings)


def test_rates_that_were_tuned_are_no_grid(sweep):
    table = sweep().assign(lr_status="tuned")
    with pytest.raises(DataError, match="two rows"):
        only(pd.concat([table.assign(learning_rate=rate) for rate in (0.01, 0.02)], ignore_index=True))


def in_two_settings(sweep):
    rows = sweep({"baseline": 0.0, "unified": -0.03})
    return pd.concat([rows.assign(optimizer="adamw"), rows.assign(optimizer="muon")], ignore_index=True)


def test_a_setting_that_an_arm_was_not_run_in_is_no_missing_result(sweep):
    rows = in_two_settings(sweep)
    half = rows[(rows["arm"] == "baseline") | (rows["optimizer"] == "adamw")]
    comparison = only(half)
    assert comparison.absences == {}
    assert comparison.verdict == "better"
    assert any(warning.endswith("was not run there: muon") for warning in comparison.warnings)


def test_a_censored_rate_where_the_arm_was_not_run_censors_no_claim(sweep):
    rows = in_two_settings(sweep).assign(lr_status="tuned")
    half = rows[(rows["arm"] == "baseline") | (rows["optimizer"] == "adamw")].copy()
    half.loc[half["optimizer"] == "muon", "lr_status"] = "censored"
    assert only(half).verdict == "better"


@pytest.mark.parametrize("status", ["failed", "pending", "diverged"])
def test_a_setting_in_which_no_trial_of_an_arm_completed_still_counts(sweep, status):
    rows = in_two_settings(sweep)
    lost = (rows["arm"] == "unified") & (rows["optimizer"] == "muon")
    rows.loc[lost, ["status", "loss"]] = [status, np.nan]
    assert [len(names) for names in only(rows).absences.values()] == [8]


def test_arms_that_are_two_optimizers_are_paired_where_they_share_streams_or_none_is_recorded(sweep):
    rows = sweep({"baseline": 0.0, "unified": -0.03})
    optimizer = np.where(rows["arm"] == "baseline", "adamw", "muon")
    chosen = rows.assign(optimizer=optimizer, stream=rows["rung"] + rows["seed"].astype(str))
    plain = only(chosen.drop(columns="optimizer"))
    for of_arms in (only(chosen), only(chosen.drop(columns="stream"))):
        assert of_arms.pairs == plain.pairs > 0
        assert of_arms.loss_difference.mean == plain.loss_difference.mean


def test_runs_of_equal_cells_without_a_seed_in_common_are_paired_at_random_which_is_said(sweep):
    table = sweep(seeds=(0, 1, 2))
    apart = table.assign(seed=table["seed"] + 10 * (table["arm"] == "unified"))
    comparison = only(apart)
    assert (comparison.verdict, comparison.pairs) == ("better", 12)
    assert "unified: no two seeds in common: runs of a cell are paired at random" in comparison.warnings


def test_seeds_that_were_numbered_by_the_losses_do_not_shorten_an_interval(sweep):
    table = sweep(seeds=range(8))
    table["loss"] += np.random.default_rng(0).normal(0, 0.05, len(table))
    is_arm = table["arm"] == "unified"
    ranks, seeds = table.groupby(["arm", "rung"])["loss"].rank().astype(int), table["seed"]
    apart = [table.assign(seed=labels + 100 * is_arm) for labels in (ranks, seeds)]
    widths = [np.ptp(only(rows).loss_difference.interval) for rows in apart]
    assert widths[0] > 0.7 * widths[1]


def test_a_run_without_a_seed_pairs_with_none_unless_no_run_has_one(sweep):
    table, rest = sweep(seeds=(0, 1, 2)), sweep(seeds=(0,))
    some, none = (rows.assign(seed=rows["seed"].where(rows["seed"] > 0)) for rows in (table, rest))
    assert (only(some).pairs, only(none).pairs) == (8, 4)
    assert len(only(some).absences["one side only"]) == 8


def test_trials_of_two_identity_versions_never_pair(sweep):
    """Their random numbers follow from something else."""
    table = sweep(seeds=(0, 1, 2)).assign(identity_version=2)
    both = pd.concat([table, table[table["seed"] == 0].assign(identity_version=1)])
    table.loc[(table["seed"] == 0) & (table["arm"] == "unified"), "identity_version"] = 1
    assert (only(both).pairs, only(table).pairs) == (16, 8)


NO_REPLICATES = AnalysisOptions(bootstrap=0)


def test_a_setting_that_is_blank_where_one_arm_alone_was_run_is_named(sweep):
    rows = sweep().assign(corpus="c")
    table = pd.concat([rows.assign(optimizer="adamw"), rows.assign(optimizer="sgd")])
    # Blank with sgd, where the reference alone was run.
    table["grid"] = table["optimizer"].map({"adamw": "a"})
    table = table[(table["arm"] == "baseline") | (table["optimizer"] == "adamw")]
    options = AnalysisOptions(bootstrap=0, settings=("grid",))
    assert compared_trials(table, "baseline", options).pairs("unified").one_sided == ("sgd",)


def test_the_order_of_the_rows_changes_nothing(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.03, "none": 0.04})
    shuffled = pd.concat([table.iloc[:1], table.iloc[1:].sample(frac=1, random_state=1)])
    trials, others = (compared_trials(rows, "baseline", NO_REPLICATES) for rows in (table, shuffled))
    assert others.arms[0] == "baseline"
    by_arm = {comparison.arm: comparison for comparison in compare.compared(others)}
    assert {comparison.arm: comparison for comparison in compare.compared(trials)} == by_arm


def test_a_cell_has_the_size_that_the_reference_has_there(sweep):
    table = sweep().assign(n_params_total=lambda rows: rows["n_params"] + 100 * (rows["arm"] == "unified"))
    trials = compared_trials(table, "baseline", AnalysisOptions(n_convention="total"))
    assert [cell.n_params for cell in trials.cells] == [25_088, 55_296, 82_944, 150_528]
