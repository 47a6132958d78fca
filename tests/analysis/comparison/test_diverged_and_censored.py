"""Trials that diverged and learning rates at the edge of their grid: they count, and claim less."""

import json

import numpy as np
import pandas as pd
from tests.comparisons import only


def with_rate(table: pd.DataFrame, arm: str, status: str) -> pd.DataFrame:
    return table.assign(lr_status=table["lr_status"].where(table["arm"] != arm, status))


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
    assert "More seeds alone cannot make the verdict better: it diverged" in comparison.would_change


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


def test_an_arm_that_diverges_at_one_rung_is_no_claim_however_many_seeds(sweep):
    table = sweep(seeds=range(8), rungs={"25k": 25_088})
    table.loc[table["arm"] == "unified", ["status", "loss"]] = ["diverged", np.nan]
    assert only(table).verdict == "undecided"


def test_budgets_of_one_trunk_that_diverge_are_one_event(sweep):
    budgets = [
        sweep(seeds=(0, 1), rungs={"25k": 25_088}).assign(n_tokens=tokens) for tokens in (1e6, 2e6, 4e6)
    ]
    table = pd.concat(budgets, ignore_index=True)
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


def test_a_comparison_with_a_diverged_trial_is_plain_json_too(sweep, diverge):
    comparison = only(diverge(sweep(seeds=(0,)), "unified", "25k", 0), margin=0.005)
    assert json.loads(json.dumps(comparison.to_dict(), allow_nan=False))["arm"] == "unified"


def test_a_diverged_pair_is_named_with_its_settings(sweep, diverge):
    parts = [sweep(random_seed=i).assign(optimizer=o) for i, o in enumerate(("adamw", "muon"))]
    parts[1] = diverge(parts[1], "unified", "55k", 1)
    assert only(pd.concat(parts)).arm_diverged == ("55k, muon, seed 1",)


def test_multipliers_beside_a_diverged_or_censored_trial_say_what_they_rest_on(sweep, diverge):
    diverged = only(diverge(sweep(), "unified", "55k", 1))
    censored = only(with_rate(sweep(), "baseline", "censored"))
    whole = only(sweep())
    for multiplier in (*diverged.compute_multipliers, *diverged.token_multipliers):
        assert "complete pairs only" in multiplier.note
    assert "a learning rate of baseline is censored" in censored.compute_multipliers[0].note
    assert "only" not in whole.compute_multipliers[0].note
