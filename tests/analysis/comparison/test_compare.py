import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from scalevec.analysis import DataError, compare, comparison_text


def only(table: pd.DataFrame, **options):
    (comparison,) = compare(table, reference="baseline", bootstrap=100, **options)
    return comparison


def with_rate(table: pd.DataFrame, arm: str, status: str) -> pd.DataFrame:
    return table.assign(lr_status=table["lr_status"].where(table["arm"] != arm, status))


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


def test_a_diverged_arm_is_never_dropped_and_never_better(sweep, diverge):
    table = diverge(sweep(), "unified", "55k", 1)
    comparison = only(table)
    assert comparison.loss_difference.interval[1] < 0
    assert comparison.verdict == "undecided"
    assert comparison.arm_diverged == ("55k, seed 1",)
    assert "diverged" in comparison.sentence
    assert "does not diverge" in comparison.would_change
    assert any(
        "unified diverged and baseline did not: 55k, seed 1" in warning for warning in comparison.warnings
    )


def test_more_seeds_are_not_promised_to_an_arm_that_diverged(sweep, diverge):
    table = sweep({"baseline": 0.0, "unified": -0.002}, noise=0.01, random_seed=4)
    comparison = only(diverge(table, "unified", "55k", 1))
    assert comparison.loss_difference.mean < 0
    assert comparison.verdict == "undecided"
    assert "More seeds alone will not make it better: it diverged" in comparison.would_change


def test_a_diverged_arm_is_never_equivalent(sweep, diverge):
    table = sweep({"baseline": 0.0, "unified": 0.0}, noise=0.001)
    assert only(diverge(table, "unified", "55k", 1), margin=0.01).verdict == "undecided"


def test_an_arm_that_diverges_everywhere_is_worse(sweep):
    table = sweep()
    arm = table["arm"] == "unified"
    table.loc[arm, ["status", "loss"]] = ["diverged", np.nan]
    comparison = only(table)
    assert comparison.verdict == "worse"
    assert comparison.loss_difference.mean is None


def test_an_arm_that_diverges_in_its_only_pair_is_no_claim(sweep):
    table = sweep(seeds=(0,), rungs={"25k": 25_088})
    table.loc[table["arm"] == "unified", ["status", "loss"]] = ["diverged", np.nan]
    assert only(table).verdict == "undecided"


def test_a_diverged_reference_alone_makes_no_arm_better(sweep):
    table = sweep()
    table.loc[table["arm"] == "baseline", ["status", "loss"]] = ["diverged", np.nan]
    comparison = only(table)
    assert comparison.verdict == "invalid"
    assert len(comparison.reference_diverged) == 8


def test_a_censored_reference_makes_no_arm_better(sweep):
    comparison = only(with_rate(sweep(), "baseline", "censored"))
    assert comparison.verdict == "undecided"
    assert "wider learning-rate grid for baseline" in comparison.would_change


def test_one_censored_trial_of_the_reference_is_enough(sweep):
    table = sweep()
    table.loc[0, "lr_status"] = "censored"
    assert table.loc[0, "arm"] == "baseline"
    assert only(table).verdict == "undecided"


def test_a_censored_arm_is_never_worse_and_may_be_better(sweep):
    worse = sweep({"baseline": 0.0, "unified": 0.04})
    assert only(with_rate(worse, "unified", "censored")).verdict == "undecided"
    assert only(with_rate(sweep(), "unified", "censored")).verdict == "better"


def test_a_censored_reference_may_still_be_shown_to_be_beaten_by_none(sweep):
    worse = sweep({"baseline": 0.0, "unified": 0.04})
    assert only(with_rate(worse, "baseline", "censored")).verdict == "worse"


def test_neither_side_censored_is_needed_for_equivalence(sweep):
    table = sweep({"baseline": 0.0, "unified": 0.0}, noise=0.001)
    for arm in ("baseline", "unified"):
        assert only(with_rate(table, arm, "censored"), margin=0.01).verdict == "undecided"


def test_a_fixed_learning_rate_of_the_reference_is_said(sweep):
    comparison = only(with_rate(sweep(), "baseline", "fixed"))
    assert any("fixed, not tuned" in warning for warning in comparison.warnings)


def test_failed_pairs_are_listed_as_missing_and_single_trials_as_unpaired(sweep):
    table = sweep()
    table.loc[0, ["status", "loss"]] = ["failed", np.nan]
    comparison = only(table.drop(index=table.index[-1]))
    assert comparison.pairs == 6
    assert comparison.missing == ("25k, seed 0",)
    assert comparison.unpaired == ("150k, seed 1",)


def test_a_trial_without_its_pair_is_no_micro_batch_mismatch(sweep):
    table = sweep().assign(micro_batch=8)
    (comparison,) = compare(table.iloc[:-1], reference="baseline", bootstrap=0)
    assert not any("micro-batch" in warning for warning in comparison.warnings)


def test_a_micro_batch_mismatch_is_flagged(sweep):
    table = sweep().assign(micro_batch=8)
    table.loc[0, "micro_batch"] = 4
    assert any("1 pair used different micro-batch sizes" in warning for warning in only(table).warnings)


def test_pairs_trained_by_different_numbers_of_processes_are_named(sweep):
    table = sweep().assign(world_size=2)
    table.loc[0, "world_size"] = 1
    assert any("1 pair used different numbers of processes" in warning for warning in only(table).warnings)


def test_a_result_from_before_there_were_worlds_is_of_one_process(sweep):
    table = sweep().assign(world_size=1.0)
    table.loc[0, "world_size"] = np.nan
    assert not any("processes" in warning for warning in only(table).warnings)


def test_arms_without_a_common_rung_are_refused(sweep):
    table = sweep()
    small = table["rung"].isin(["25k", "55k"])
    with pytest.raises(DataError, match=r"no arm has a trial in common.*83k, 150k|25k, 55k"):
        only(table[small == (table["arm"] == "baseline")])


def test_one_arm_of_several_without_a_common_rung_has_no_verdict(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.03, "other": 0.0})
    elsewhere = table["arm"] == "other"
    table.loc[elsewhere, "rung"] = "elsewhere"
    table.loc[table["arm"] == "unified", "loss"] -= 0.03
    verdicts = {c.arm: (c.verdict, c.pairs) for c in compare(table, reference="baseline", bootstrap=50)}
    assert verdicts["unified"][0] == "better"
    assert verdicts["other"] == ("invalid", 0)


def test_pairs_agree_in_every_setting(sweep):
    table = pd.concat([sweep(random_seed=i).assign(optimizer=o) for i, o in enumerate(("adamw", "muon"))])
    comparison = only(table)
    assert comparison.pairs == 16
    assert 1 < comparison.loss_difference.df <= 4  # both settings of a rung have the same two seeds
    assert {row.setting["optimizer"] for row in comparison.by_rung} == {"adamw", "muon"}
    assert comparison.compute_multipliers == ()
    assert any("several values of optimizer" in warning for warning in comparison.warnings)


def test_a_grid_field_of_a_sweep_is_a_setting(sweep):
    parts = [sweep(random_seed=i).assign(weight_decay=w) for i, w in enumerate((0.0, 0.1))]
    table = pd.concat(parts, ignore_index=True).assign(sweep="quickstart")
    table["trial_id"] = table.index.astype(str)
    assert only(table).pairs == 16


def test_two_rows_with_one_key_are_refused(sweep):
    table = sweep()
    with pytest.raises(DataError, match=r"two rows with rung 25k.*seed 0"):
        only(pd.concat([table, table.iloc[[0]]]))


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


def test_a_sweep_of_which_only_tuning_has_ended_has_nothing_to_compare_yet(sweep):
    with pytest.raises(DataError, match="no trial to compare yet"):
        only(sweep().assign(stage="tuning"))


def test_tuning_trials_do_not_enter(sweep):
    table = sweep()
    tuning = table.assign(stage="tuning", seed=100, loss=9.0).drop_duplicates(["arm", "rung"])
    mixed = pd.concat([table.assign(stage="comparison"), tuning])
    assert only(mixed).loss_difference == only(table).loss_difference


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": "basline"}, "'basline', which is no arm; nearest: 'baseline'"),
        ({"reference": "baseline", "margin": -1.0}, "margin is -1.0"),
        ({"reference": "baseline", "where": "arm == 'baseline'"}, "the only arm"),
        ({"reference": "baseline", "settings": ["optimiser"]}, "no column 'optimiser'"),
        ({"reference": "baseline", "law": "cubic"}, "law is 'cubic'"),
        ({"reference": "baseline", "interval": "profile"}, "a comparison chooses its own"),
        ({"reference": "baseline", "cluster": "run"}, "no column 'run'"),
        ({"reference": "baseline", "y": "loss_valid"}, "no column 'loss_valid'"),
    ],
)
def test_questions_that_cannot_be_answered_are_refused(sweep, options, message: str):
    with pytest.raises(DataError, match=message):
        compare(sweep(), **options)


def test_a_comparison_is_plain_json(sweep):
    record = json.loads(json.dumps(only(sweep(), margin=0.005).to_dict(), allow_nan=False))
    assert set(record) >= {
        "reference",
        "arm",
        "pairs",
        "loss_difference",
        "by_rung",
        "compute_multipliers",
        "token_multipliers",
        "time_multipliers",
        "trend",
        "equivalence",
        "verdict",
        "sentence",
        "warnings",
    }


def test_a_comparison_with_a_diverged_trial_is_plain_json_too(sweep, diverge):
    comparison = only(diverge(sweep(seeds=(0,)), "unified", "25k", 0), margin=0.005)
    assert json.loads(json.dumps(comparison.to_dict(), allow_nan=False))["arm"] == "unified"


def test_a_pending_trial_that_knows_only_its_rung_and_seed_is_one_missing_pair(sweep):
    table = sweep().assign(optimizer="adamw")
    pending = (table["arm"] == "unified") & (table["rung"] == "55k") & (table["seed"] == 1)
    table.loc[pending, ["n_params", "n_tokens", "loss", "optimizer"]] = None
    table.loc[pending, "status"] = "pending"
    comparison = only(table)
    assert comparison.missing == ("55k, seed 1",)
    assert comparison.pairs == 7


def test_a_diverged_pair_is_named_with_its_settings(sweep, diverge):
    parts = [sweep(random_seed=i).assign(optimizer=o) for i, o in enumerate(("adamw", "muon"))]
    parts[1] = diverge(parts[1], "unified", "55k", 1)
    assert only(pd.concat(parts)).arm_diverged == ("55k, muon, seed 1",)


def shapes(n_shapes: int) -> pd.DataFrame:
    """Five token budgets of each shape; differences vary from shape to shape, 0.012 on average."""
    rng = np.random.default_rng(2)
    shape = np.repeat(np.arange(n_shapes), 5)
    sizes = np.geomspace(1e7, 1e9, n_shapes)[shape]
    table = pd.DataFrame({"n_params": sizes, "n_tokens": sizes * np.tile([5.0, 10, 20, 40, 80], n_shapes)})
    loss = 30 * (6 * table["n_params"] * table["n_tokens"]) ** -0.07
    noise_of_shape = rng.normal(0, 0.03, n_shapes)
    effect = 0.012 + (noise_of_shape - noise_of_shape.mean())[shape] + rng.normal(0, 0.003, len(table))
    arms = {"baseline": loss, "unified": loss + effect}
    return pd.concat([table.assign(arm=arm, loss=values, shape=shape) for arm, values in arms.items()])


def test_trap_7_pairs_of_one_shape_are_not_independent_and_the_conclusion_flips():
    table = shapes(12)
    alone, together = only(table, cluster="row"), only(table, cluster="shape")
    assert alone.verdict == "worse"
    assert together.verdict == "undecided"
    assert together.loss_difference.df == 11
    assert "from the spread between clusters" in together.sentence
    assert all(row.interval is None for row in together.by_rung)


def test_pairs_in_clusters_of_one_size_get_the_t_interval_of_the_clusters_means():
    table = shapes(12)
    wide = table.pivot_table(index=["shape", "n_tokens"], columns="arm", values="loss")
    means = (wide["unified"] - wide["baseline"]).groupby("shape").mean()
    half = 2.200985 * means.std() / 12**0.5
    difference = only(table, cluster="shape").loss_difference
    assert difference.interval == pytest.approx((means.mean() - half, means.mean() + half), rel=1e-5)


def test_fewer_than_ten_clusters_carry_no_interval():
    comparison = only(shapes(6), cluster="shape")
    assert comparison.loss_difference.interval is None
    assert "too few independent clusters" in comparison.sentence
    assert "More independent clusters" in comparison.would_change


def branches(table: pd.DataFrame) -> pd.DataFrame:
    """Three token budgets of each trial, which share a trunk: their noise is one and the same, but for a part
    of a hundred."""
    rng = np.random.default_rng(4)
    trunk = table["arm"] + table["rung"] + table["seed"].astype(str)
    parts = [
        table.assign(
            n_tokens=table["n_tokens"] * factor,
            loss=table["loss"] - 0.1 * factor + rng.normal(0, 1e-4, len(table)),
            cluster=trunk,
        )
        for factor in (1, 2, 4)
    ]
    return pd.concat(parts, ignore_index=True)


def test_branches_of_one_trunk_count_as_one_pair(sweep):
    """Three budgets know no more of the noise between seeds than one does."""
    table = sweep(noise=0.01)
    three = branches(table)
    difference, alone = only(three).loss_difference, only(table).loss_difference
    assert difference.df == pytest.approx(alone.df, rel=0.05)
    assert difference.interval == pytest.approx(alone.interval, rel=0.05)
    streams = three.assign(stream=three["rung"] + three["seed"].astype(str) + three["n_tokens"].astype(str))
    as_if_independent = only(streams, cluster="row").loss_difference
    assert as_if_independent.df > 2 * difference.df
    widths = [high - low for low, high in (difference.interval, as_if_independent.interval)]
    assert widths[0] > 1.5 * widths[1]


def test_a_comparison_says_that_branches_count_as_one(sweep):
    comparison = only(branches(sweep({"baseline": 0.0, "unified": -0.03})))
    assert comparison.verdict == "better"
    assert "from whole clusters: pairs that are not independent count as one" in comparison.sentence
    assert all(row.interval is not None for row in comparison.by_rung)  # of the two seeds of one budget


def test_a_trunk_that_lacks_a_branch_still_counts(sweep):
    table = branches(sweep())
    lacking = (table["rung"] == "150k") & (table["n_tokens"] == table["n_tokens"].max())
    assert 1 < only(table[~lacking]).loss_difference.df <= 4
    # The last rung has one whole trunk left: it takes the noise of the other three.
    assert 1 < only(table[~(lacking & (table["seed"] == 0))]).loss_difference.df <= 3


def test_one_seed_of_each_trunk_carries_no_claim(sweep):
    comparison = only(branches(sweep(seeds=(0,))))
    assert comparison.loss_difference.interval is None


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
    assert comparison.y == "loss_other"
    assert comparison.loss_difference.interval == pytest.approx(only(table).loss_difference.interval)


def scored(table: pd.DataFrame) -> pd.DataFrame:
    """With an accuracy that is lower by 0.1 under the arm."""
    noise = np.random.default_rng(5).normal(0, 0.001, len(table))
    return table.assign(accuracy=0.5 - 0.1 * (table["arm"] == "unified") + noise)


def test_a_column_that_is_no_loss_is_described_without_unit_margin_or_verdict(sweep):
    comparison = only(scored(sweep()), y="accuracy", margin=0.5)
    assert comparison.verdict == "undecided"
    assert "its accuracy is 0.1" in comparison.sentence
    assert not any(
        word in comparison.sentence + comparison.would_change for word in ("nats", "better", "worse")
    )
    assert comparison.equivalence == {"margin": None, "note": "the margin is in nats/token, accuracy is not"}
    assert not any("irreducible" in warning for warning in comparison.warnings)


def test_a_multiplier_of_more_than_a_million_is_none_and_says_so(sweep):
    comparison = only(scored(sweep()), y="accuracy")
    for multiplier in (*comparison.compute_multipliers, *comparison.token_multipliers):
        assert multiplier.estimate is None
        assert multiplier.note == "the reference's law never reaches this accuracy"


def test_a_bad_value_of_the_compared_column_is_named_by_that_column(sweep):
    with pytest.raises(DataError, match="column 'accuracy', row 1: -1"):
        only(scored(sweep()).assign(accuracy=-1.0), y="accuracy")


def test_learning_rates_that_were_carried_are_said(sweep):
    table = sweep()
    table.loc[table["rung"] == "150k", "lr_status"] = "carried"
    assert any("at 150k are extrapolated from smaller rungs" in warning for warning in only(table).warnings)


@pytest.mark.parametrize(("above_test", "is_said"), [(np.nan, True), (0.01, False)])
def test_rates_that_were_chosen_on_the_text_that_is_compared_are_said(sweep, above_test, is_said):
    table = sweep().assign(loss_validation=lambda t: t["loss"] + above_test)
    text = "learning rates were chosen on the text that is compared"
    assert any(text in warning for warning in only(table).warnings) is is_said


def test_counts_that_look_like_millions_are_questioned_in_a_comparison(sweep):
    table = sweep()
    assert any("thousands or millions" in warning for warning in only(table.assign(n_params=25)).warnings)


def test_a_learning_rate_that_is_run_as_a_grid_is_one_that_pairs_agree_in(sweep):
    table = sweep().assign(lr_status="fixed")
    rates = [table.assign(learning_rate=rate, loss=table["loss"] + rate) for rate in (0.01, 0.02)]
    both, alone = only(pd.concat(rates, ignore_index=True)), only(rates[0])
    assert both.pairs == 2 * alone.pairs
    assert both.loss_difference.mean == pytest.approx(alone.loss_difference.mean)


def test_rates_that_were_tuned_are_no_grid(sweep):
    table = sweep().assign(lr_status="tuned")
    with pytest.raises(DataError, match="two rows"):
        only(pd.concat([table.assign(learning_rate=rate) for rate in (0.01, 0.02)], ignore_index=True))


MANY = {str(n): n for n in range(20_000, 140_000, 10_000)}
"""Twelve rungs."""


def test_the_expression_that_chose_the_rows_and_what_it_left_out_are_said(sweep):
    table = pd.concat([sweep(seeds=(0, 1, 2)), sweep({"other": 0.0})])
    comparison = compare(table, reference="baseline", where="seed < 2 and arm != 'other'", bootstrap=0)[0]
    assert comparison.where == "seed < 2 and arm != 'other'"
    assert comparison.excluded == {"where": 8}
    assert "rows: where seed < 2 and arm != 'other' (8 left out)" in comparison_text([comparison])
    assert only(sweep()).excluded == {}


def test_a_comparison_says_what_its_laws_were_fitted_with(sweep):
    comparison = only(sweep(), loss="l2", residual="linear", seed=3, x="C")
    settings = (
        comparison.x,
        comparison.loss,
        comparison.delta,
        comparison.residual,
        comparison.n_bootstrap,
        comparison.seed,
        comparison.cluster,
    )
    assert settings == ("C", "l2", 1e-3, "linear", 100, 3, "cluster")
    assert [(law["side"], law["x"]) for law in comparison.laws] == [
        ("reference", "C"),
        ("arm", "C"),
        ("reference", "D"),
        ("arm", "D"),
    ]
    for law in comparison.laws:
        assert law["verified"]
        assert law["optimality"] < 1e-9
        assert 1 <= law["starts_agreeing"] <= law["n_starts"]
    text = comparison_text([comparison])
    assert "law power in C; least squares on linear residuals; 100 bootstrap replicates, seed 3; " in text
    assert f"objective {comparison.laws[0]['objective']:.10g} (sum)" in text


def test_the_laws_of_arms_whose_seeds_repeat_are_by_least_squares(sweep):
    rows = sweep()
    assert only(rows).loss == "l2"
    assert only(rows[rows["seed"] == 0]).loss == "huber"
    assert only(rows, loss="huber").loss == "huber"


def test_a_multiplier_by_least_squares_varies_less_than_by_hubers_loss(sweep):
    def spread(loss):
        tables = [sweep(random_seed=number, seeds=(0, 1, 2)) for number in range(12)]
        middles = [only(table, loss=loss, hold_out="none").compute_multipliers[0] for table in tables]
        return np.std([np.log(middle.estimate) for middle in middles])

    assert spread("auto") < 0.9 * spread("huber")


def test_a_law_in_another_variable_is_shown_too(sweep):
    assert {law["x"] for law in only(sweep(), x="N").laws} == {"C", "D", "N"}


def test_the_text_has_the_difference_at_each_rung(sweep):
    comparison = only(sweep())
    text = comparison_text([comparison])
    for cell in comparison.by_rung:
        assert f"by rung, {cell.rung} (N " in text
        assert f"{cell.mean:+.4f}".replace("-", "−") in text


def budgets(sweep) -> pd.DataFrame:
    """Four sizes at three numbers of tokens per parameter."""
    parts = []
    for number, factor in enumerate((1, 2, 4)):
        table = sweep(random_seed=number)
        parts.append(table.assign(n_tokens=table["n_tokens"] * factor, loss=table["loss"] - 0.1 * number))
    return pd.concat(parts, ignore_index=True)


def test_a_law_in_two_variables_has_its_joint_test_and_its_hold_out(sweep):
    comparison = only(budgets(sweep), law="chinchilla", cluster="row")
    assert comparison.joint["p_value"] > 0
    assert comparison.hold_out["rung"] == "150k"
    assert comparison.hold_out["observed"] == pytest.approx(-0.03, abs=0.01)
    assert [(law["side"], law["x"]) for law in comparison.laws] == [("reference", "N, D"), ("arm", "N, D")]
    assert any(
        "no multiplier: multipliers need a law in one variable" in text for text in comparison.warnings
    )


def test_what_a_law_in_two_variables_lacks_is_said_in_its_own_words(sweep):
    comparison = only(sweep(), law="chinchilla")
    assert "parameters of chinchilla" in comparison.joint["reason"]
    assert "multiplier" not in comparison.joint["reason"] + comparison.hold_out["reason"]


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


def test_multipliers_beside_a_diverged_or_censored_trial_say_what_they_rest_on(sweep, diverge):
    diverged = only(diverge(sweep(), "unified", "55k", 1))
    censored = only(with_rate(sweep(), "baseline", "censored"))
    whole = only(sweep())
    for multiplier in (*diverged.compute_multipliers, *diverged.token_multipliers):
        assert "complete pairs only" in multiplier.note
    assert "a learning rate of baseline is censored" in censored.compute_multipliers[0].note
    assert "only" not in whole.compute_multipliers[0].note


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


def in_two_settings(sweep):
    rows = sweep({"baseline": 0.0, "unified": -0.03})
    return pd.concat([rows.assign(optimizer="adamw"), rows.assign(optimizer="muon")], ignore_index=True)


def test_a_setting_that_an_arm_was_not_run_in_is_no_missing_result(sweep):
    rows = in_two_settings(sweep)
    half = rows[(rows["arm"] == "baseline") | (rows["optimizer"] == "adamw")]
    comparison = only(half)
    assert comparison.missing == ()
    assert comparison.verdict == "better"
    assert any(warning.endswith("not run in: muon") for warning in comparison.warnings)


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
    comparison = only(rows)
    assert len(comparison.missing) + len(comparison.arm_diverged) == 8


def test_arms_without_a_setting_in_common_are_refused(sweep):
    rows = sweep({"baseline": 0.0, "unified": -0.03})
    apart = rows.assign(optimizer=np.where(rows["arm"] == "baseline", "adamw", "muon"))
    with pytest.raises(DataError, match="no arm has a trial in common with 'baseline'"):
        only(apart)


def test_arms_that_are_two_optimizers_are_paired_where_they_share_their_random_numbers(sweep):
    rows = sweep({"baseline": 0.0, "unified": -0.03})
    chosen = rows.assign(
        optimizer=np.where(rows["arm"] == "baseline", "adamw", "muon"),
        stream=rows["rung"] + rows["seed"].astype(str),
    )
    of_arms, plain = only(chosen), only(chosen.drop(columns="optimizer"))
    assert of_arms.pairs == plain.pairs > 0
    assert of_arms.loss_difference == plain.loss_difference


def test_each_missing_pair_is_counted_and_named_with_its_budget(sweep):
    table = pd.concat(
        [sweep(), sweep().assign(n_tokens=lambda rows: 2 * rows["n_tokens"])], ignore_index=True
    )
    lost = (table["arm"] == "unified") & (table["rung"] == "25k")
    table.loc[lost, ["status", "loss"]] = "failed", None
    comparison = only(table)
    assert len(comparison.missing) == 4
    assert comparison.missing[0] == "25k, 401k tokens, seed 0"
    assert "4 pairs that failed" in comparison.would_change


def test_arms_of_one_sweep_are_described_by_the_options_they_were_compared_with(sweep):
    table = sweep({"baseline": 0.0, "none": 0.04, "unified": -0.03})
    for comparison in compare(table, reference="baseline", bootstrap=0, where="seed == 0"):
        assert (comparison.where, comparison.excluded) == ("seed == 0", {"where": 8})


@pytest.mark.parametrize("law", ["chinchilla", "kaplan"])
def test_an_arm_without_a_pair_beside_others_has_no_law_and_no_verdict(sweep, law):
    table = sweep({"baseline": 0.0, "unified": -0.03, "other": 0.0})
    table.loc[table["arm"] == "other", "rung"] = "elsewhere"
    verdicts = {c.arm: c.verdict for c in compare(table, reference="baseline", bootstrap=0, law=law)}
    assert verdicts["other"] == "invalid"


def test_rungs_are_listed_by_size_and_not_by_their_text(sweep):
    sizes = {f"{n:.6g}": n for n in (102_643_000, 1_013_610_000, 30_000_000, 9_000_000_000)}
    by_rung = only(sweep(rungs=sizes)).by_rung
    assert [row.n_params for row in by_rung] == sorted(row.n_params for row in by_rung)


def test_many_cells_are_listed_in_at_most_14_lines(sweep):
    sizes = {f"{n}k": n * 1000 for n in range(30, 210)}
    table = sweep(rungs=sizes)
    table.loc[table["seed"] == 1, ["status", "loss"]] = "diverged", None
    text = comparison_text([only(table)])
    assert sum(line.strip().startswith("by rung") for line in text.splitlines()) == 14
    assert "and 174 more" in text
