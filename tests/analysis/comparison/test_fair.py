"""Line 3: learning rates that were not chosen alike, trials that diverged, one run for each cell."""

import numpy as np
import pandas as pd
import pytest

from comparisons import only
from scalevec.analysis import DataError


def with_rate(table: pd.DataFrame, arm: str, status: str, rung: str | None = None) -> pd.DataFrame:
    chosen = (table["arm"] == arm) & ((table["rung"] == rung) | (rung is None))
    return table.assign(lr_status=table["lr_status"].mask(chosen, status))


def test_rates_that_were_tuned_on_both_sides_are_fair(sweep):
    assert only(sweep()).fair.text == "both tuned at every size"


def with_tuning(table: pd.DataFrame, dip: float) -> pd.DataFrame:
    """Each arm tuned by one run of four rates at one size; the loss has a second dip of this depth."""
    losses = {0.005: 3.95 - dip, 0.01: 4.0, 0.02: 3.9, 0.04: 4.1}
    tuning = [
        {"stage": "tuning", "arm": arm, "rung": "25k", "seed": 100, "n_params": 25_088, "n_tokens": 401_408}
        | {"status": "completed", "learning_rate": rate, "loss": loss, "loss_validation": loss}
        for arm in ("baseline", "unified")
        for rate, loss in losses.items()
    ]
    compared = table.assign(stage="comparison", loss_validation=table["loss"])
    return pd.concat([compared, pd.DataFrame(tuning)])


def test_the_effort_of_the_tuning_is_said(sweep):
    text = only(with_tuning(sweep(), 0.0)).fair.text
    assert text.startswith("both tuned at every size (baseline: 4 rates a size, 4 trials; unified: ")


def test_a_second_dip_as_low_as_the_best_rate_is_said_where_it_is(sweep):
    table = with_tuning(sweep(), 0.049)
    unsettled = "rates four times apart cannot be told apart: baseline at 25k, unified at 25k"
    assert unsettled in only(table).fair.text
    assert unsettled in only(table.drop(columns="status")).fair.text
    assert unsettled not in only(table[table["rung"] != "25k"]).fair.text


@pytest.mark.parametrize("status", ["censored", "fixed"])
def test_a_reference_that_is_a_bound_makes_no_arm_better_and_may_be_beaten_by_none(sweep, status):
    comparison = only(with_rate(sweep(), "baseline", status))
    assert (comparison.verdict, comparison.reason.code) == ("undecided", "reference_bounded")
    assert comparison.fair.text.endswith("no claim for unified")
    worse = sweep({"baseline": 0.0, "unified": 0.04})
    assert only(with_rate(worse, "baseline", status)).verdict == "worse"


@pytest.mark.parametrize("status", ["censored", "fixed"])
def test_an_arm_that_is_a_bound_is_never_worse_and_may_be_better(sweep, status):
    worse = sweep({"baseline": 0.0, "unified": 0.04})
    assert only(with_rate(worse, "unified", status)).verdict == "undecided"
    assert only(with_rate(sweep(), "unified", status)).verdict == "better"


def test_a_bound_at_one_size_leaves_the_others_and_is_said(sweep):
    comparison = only(with_rate(sweep(), "baseline", "censored", "55k"))
    assert comparison.verdict == "better"
    expected = "baseline only bounded at 55k: a claim for unified is judged on the 3 other sizes"
    assert comparison.fair.text == expected
    assert comparison.withheld == "a loss of baseline is only a bound"


def test_a_bound_at_the_largest_size_ends_the_scope_below_it(sweep):
    comparison = only(with_rate(sweep(), "baseline", "censored", "150k"))
    assert (comparison.verdict, comparison.scope.text) == ("better", "up to 83k")


def test_a_bound_is_not_equivalent(sweep):
    table = sweep({"baseline": 0.0, "unified": 0.0}, seeds=(0, 1, 2), noise=0.001)
    for arm in ("baseline", "unified"):
        assert only(with_rate(table, arm, "censored"), margin=0.01).verdict == "undecided"


@pytest.mark.parametrize(
    ("statuses", "text"),
    [
        (("fixed", "fixed"), "both at fixed rates, not tuned"),
        (("tuned", "shared"), "both at the rate that was tuned for baseline"),
        (("tuned", "carried"), "rates of unified carried from smaller sizes at 25k, 55k, 83k and 150k"),
    ],
)
def test_other_ways_to_choose_rates_are_said_and_block_nothing(sweep, statuses, text):
    table = with_rate(with_rate(sweep(), "baseline", statuses[0]), "unified", statuses[1])
    comparison = only(table)
    assert (comparison.verdict, comparison.fair.text) == ("better", text)


def test_carried_rates_that_are_far_apart_and_unchecked_are_said(sweep):
    table = with_rate(sweep(), "unified", "carried", "150k")
    far = (table["rung"] == "150k") & (table["arm"] == "unified")
    table = table.assign(learning_rate=np.where(far, 0.05, 0.02))
    assert "differ more than twofold at 150k" in only(table).fair.text
    assert "twofold" not in only(table.assign(carried_check="inside")).fair.text


def rates(sweep, optima: dict[str, float]) -> pd.DataFrame:
    """Each trial at four rates, with the same loss at each arm's own best."""
    parts = []
    for rate in (1e-3, 3e-3, 1e-2, 3e-2):
        table = sweep(dict.fromkeys(optima, 0.0), seeds=(0, 1, 2), noise=0.001).drop(columns="lr_status")
        away = 0.03 * np.log(rate / table["arm"].map(optima)) ** 2
        parts.append(table.assign(learning_rate=rate, loss=table["loss"] + away))
    return pd.concat(parts, ignore_index=True)


def test_rates_that_vary_inside_an_arm_are_never_averaged(sweep):
    table = rates(sweep, {"baseline": 3e-3, "unified": 1e-2})
    with pytest.raises(DataError, match=r"add a column loss_validation, .* choose one rate .* by --where"):
        only(table)
    comparison = only(table.assign(loss_validation=table["loss"]))
    assert comparison.loss_difference.mean == pytest.approx(0, abs=0.002)
    assert comparison.fair.code == "both_tuned"
    assert "the best learning_rate of baseline and unified" in comparison.facts[0]
    unlike = table[(table["arm"] == "unified") | (table["learning_rate"] < 0.02)]
    [caution] = [
        text for text in only(unlike.assign(loss_validation=unlike["loss"])).warnings if "rates" in text
    ]
    assert "(baseline 3 and unified 4)" in caution


@pytest.mark.parametrize("name", ["optimizer.lr", "train/lr", "muon_lr", "lr_peak"])
def test_a_grid_of_rates_is_one_by_the_last_part_of_its_name(sweep, name):
    table = rates(sweep, {"baseline": 3e-3, "unified": 1e-2}).rename(columns={"learning_rate": name})
    with pytest.raises(DataError, match=f"{name}: several values in baseline and unified at one size"):
        only(table)


def test_the_best_of_two_rates_is_not_chosen_where_both_vary(sweep):
    table = rates(sweep, {"baseline": 3e-3, "unified": 1e-2}).assign(loss_validation=lambda t: t["loss"])
    with pytest.raises(
        DataError, match=r"learning_rate and adam_lr: several values in .* too low: choose one rate"
    ):
        only(table.assign(adam_lr=table["seed"] * 1e-3))


def test_a_best_rate_at_the_edge_of_its_grid_is_a_bound(sweep):
    table = rates(sweep, {"baseline": 3e-3, "unified": 3e-2})
    assert only(table.assign(loss_validation=table["loss"])).fair.code == "arm_bounded"


@pytest.mark.parametrize("named", [{}, {"cluster": "run"}])
def test_of_checkpoints_the_last_of_each_run_counts(sweep, named):
    """An arm that leads early and loses at the end is worse."""
    last = sweep({"baseline": 0.0, "unified": 0.02}, seeds=(0, 1, 2)).drop(columns="lr_status")
    loss = last["loss"] + 0.3 - 0.2 * (last["arm"] == "unified")
    early = last.assign(n_tokens=last["n_tokens"] // 2, loss=loss)
    table = pd.concat([last, early], ignore_index=True)
    table["run"] = table["arm"] + table["rung"] + table["seed"].astype(str)
    comparison = only(table, **named)
    assert (comparison.verdict, comparison.pairs) == ("worse", 12)
    fact = "the last of each run's checkpoints is compared (24 rows before it left out)"
    assert comparison.facts == (fact,)


def test_a_diverged_arm_is_never_dropped_and_never_better(sweep, diverge):
    comparison = only(diverge(sweep(), "unified", "55k", 1))
    assert comparison.loss_difference.interval[1] < 0
    assert (comparison.verdict, comparison.reason.code) == ("undecided", "arm_diverged")
    assert comparison.absences == {"arm diverged": ("55k, seed 1",)}
    assert "diverged at 55k (1 of 2)" in comparison.at_sizes.text
    assert any(warning.startswith("unified: it diverged") for warning in comparison.warnings)


def test_a_diverged_reference_makes_no_arm_worse(sweep, diverge):
    table = diverge(sweep({"baseline": 0.0, "unified": 0.03}), "baseline", "55k", 1)
    comparison = only(table)
    assert (comparison.verdict, comparison.reason.code) == ("undecided", "reference_diverged")


@pytest.mark.parametrize("arm", ["baseline", "unified"])
def test_nothing_that_diverged_is_equivalent(sweep, diverge, arm):
    table = sweep({"baseline": 0.0, "unified": 0.0}, seeds=(0, 1, 2), noise=0.001)
    assert only(diverge(table, arm, "55k", 1), margin=0.01).verdict == "undecided"


def test_an_arm_that_diverges_everywhere_is_worse(sweep):
    table = sweep()
    table.loc[table["arm"] == "unified", ["status", "loss"]] = ["diverged", np.nan]
    comparison = only(table)
    assert (comparison.verdict, comparison.loss_difference.mean) == ("worse", None)
    assert comparison.at_sizes.text.startswith("diverged at 25k (2 of 2)")
    assert not any("decimals" in text for text in comparison.warnings)


def test_an_arm_that_diverges_in_its_only_pair_is_no_claim(sweep):
    table = sweep(seeds=(0,), rungs={"25k": 25_088})
    table.loc[table["arm"] == "unified", ["status", "loss"]] = ["diverged", np.nan]
    assert only(table).verdict == "undecided"


def test_budgets_of_one_trunk_that_diverge_are_one_event(sweep):
    rows = sweep(seeds=(0, 1), rungs={"25k": 25_088})
    budgets = [rows.assign(n_tokens=tokens) for tokens in (1e6, 2e6, 4e6)]
    table = pd.concat(budgets, ignore_index=True)
    table["cluster"] = table["arm"] + table["seed"].astype(str)
    table.loc[table["arm"] == "unified", ["status", "loss"]] = ["diverged", np.nan]
    assert only(table).verdict == "undecided"
