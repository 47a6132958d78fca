"""No mean over settings, sizes or seeds hides what one of them says."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from comparisons import compared, only
from scalevec.analysis import compare_arms

RUNGS = {"20m": 20_000_000, "60m": 60_000_000, "200m": 200_000_000, "600m": 600_000_000}
Gap = Callable[[str, int], float]


def in_settings(gap: Gap, settings=("adamw", "muon"), sd: float = 0.002, seeds: int = 3) -> pd.DataFrame:
    """Pairs at four sizes in each setting, where the arm differs by ``gap`` of the setting and the size."""
    rng, rows = np.random.default_rng(1), []
    for setting in settings:
        for number, (rung, n_params) in enumerate(RUNGS.items()):
            for seed in range(seeds):
                row = {"rung": rung, "n_params": n_params, "n_tokens": 20 * n_params, "seed": seed}
                row |= {"optimizer": setting, "status": "completed", "stream": f"{setting} {rung} {seed}"}
                loss = 1.8 + 40 * (120 * float(n_params) ** 2) ** -0.12 + rng.normal(0, 0.004)
                for arm, effect in (("baseline", 0.0), ("unified", gap(setting, number))):
                    rows.append({**row, "arm": arm, "loss": loss + effect + rng.normal(0, sd / np.sqrt(2))})
    return pd.DataFrame(rows)


def test_equivalence_is_asked_of_every_setting_at_every_size():
    alternating = in_settings(lambda setting, size: 0.03 * (-1) ** (size + (setting == "muon")))
    comparison = only(alternating, margin=0.005)
    assert (comparison.verdict, comparison.reason.code) == ("undecided", "crosses")
    assert comparison.at_sizes.text.startswith("lower with adamw at 60m, adamw at 600m, muon at 20m")
    assert only(in_settings(lambda *_: 0.0), margin=0.005).verdict == "equivalent"


def test_a_setting_that_is_opposite_at_the_largest_size_lets_nothing_be_called_better():
    opposite = in_settings(lambda setting, size: 0.04 if (setting, size) == ("muon", 3) else -0.04)
    comparison = only(opposite)
    assert (comparison.verdict, comparison.reason.text) == ("undecided", "higher with muon at 600m")
    assert comparison.at_sizes.text == "lower on average; higher with muon at 600m"
    small = in_settings(lambda setting, size: 0.04 if (setting, size) == ("muon", 0) else -0.04)
    small["rung"] += " at 20 tokens each"
    assert only(small).verdict == "better"


def test_a_setting_that_was_run_at_small_sizes_alone_makes_no_trend():
    table = in_settings(lambda setting, _: -0.03 if setting == "adamw" else -0.01)
    small = table[(table["optimizer"] == "adamw") | table["rung"].isin(["20m", "60m"])]
    assert only(small).with_scale.code == only(table).with_scale.code == "constant"


def test_one_divergence_decides_nothing_and_its_exchange_mirrors_that(diverge):
    table = in_settings(lambda _, size: -0.1 if size == 3 else 0.004, ("adamw",), seeds=6)
    once = diverge(table, "unified", "20m", 0)
    swapped = once.assign(arm=once["arm"].map({"baseline": "unified", "unified": "baseline"}))
    for rows, code in ((once, "arm_diverged"), (swapped, "reference_diverged")):
        assert (only(rows).verdict, only(rows).reason.code) == ("undecided", code)


def test_a_bound_that_says_the_opposite_at_the_largest_size_ends_the_scope_below_it():
    table = in_settings(lambda _, size: 0.04 if size == 3 else -0.03, ("adamw",)).assign(lr_status="tuned")
    table.loc[(table["arm"] == "unified") & (table["rung"] == "600m"), "lr_status"] = "censored"
    comparison = only(table)
    assert (comparison.verdict, comparison.scope.text) == ("better", "up to 200m")
    assert comparison.at_sizes.text.endswith("higher at 600m, only a bound")


def test_signs_that_change_without_order_are_no_reversal():
    comparison = only(in_settings(lambda _, size: (-0.04, 0.02, -0.04, -0.04)[size], ("adamw",)))
    text = "changes sign without order: lower at 20m, higher at 60m, lower at 200m"
    assert (comparison.with_scale.code, comparison.with_scale.text) == ("not_resolved", text)


def test_what_seeds_are_called_changes_nothing_where_arms_have_none_in_common():
    table = in_settings(lambda *_: -0.012, ("adamw",), sd=0.006).drop(columns="stream")
    is_arm = (table["arm"] == "unified").to_numpy(int)
    means = {only(table.assign(seed=table["seed"] + by * is_arm)).loss_difference for by in (10, 31, 47)}
    assert len(means) == 1
    one_in_common = only(table.assign(seed=table["seed"] + 2 * is_arm))
    assert (one_in_common.pairs, one_in_common.loss_difference) == (12, means.pop())


def test_copies_of_a_run_under_another_seed_are_asked_about():
    table = in_settings(lambda *_: -0.004, ("adamw",))
    copies = table.assign(seed=table["seed"] + 10, stream=table["stream"] + " copy")
    told = "losses that equal another of their cell to the last digit, 12 of baseline and 12 of unified"
    assert any(told in text for text in only(pd.concat([table, copies])).warnings)
    assert not any("last digit" in text for text in only(table).warnings)


def test_a_column_of_which_each_value_has_seeds_of_its_own_is_named():
    table = in_settings(lambda text, _: -0.06 if text == "c4" else 0.02, ("c4", "code"))
    table = table.rename(columns={"optimizer": "dataset"})
    table["seed"] += 10 * (table["dataset"] == "code")
    told = "dataset has seeds of its own for each of c4, code"
    assert any(told in text for text in only(table).warnings)
    assert not any(told in text for text in only(table, settings=("dataset",)).warnings)


def test_where_no_run_of_the_reference_ended_no_column_parts_its_seeds():
    table = in_settings(lambda *_: -0.02, ("adamw",)).assign(status="completed")
    table.loc[table["arm"] == "baseline", ["status", "loss"]] = ["failed", np.nan]
    table["epoch"] = pd.array([1] * len(table), "Int64")
    assert not any("seeds of its own" in text for text in only(table).warnings)


def test_holm_is_over_arms_with_pairs_and_arms_by_their_laws_together():
    table = in_settings(lambda *_: -0.004, ("adamw",))
    elsewhere = table[table["arm"] == "unified"].assign(arm="unpaired")
    elsewhere = elsewhere.assign(n_params=2 * elsewhere["n_params"], rung="other " + elsewhere["rung"])
    elsewhere["n_tokens"] = 20 * elsewhere["n_params"]
    pairs, laws = compare_arms(
        pd.concat([table, elsewhere]), reference="baseline", law="power", bootstrap=50, x="N"
    )
    alone = compared(table)["unified"].loss_difference
    assert pairs[0].loss_difference.p_holm == min(1.0, 2 * alone.p_value)
    assert laws[0].loss_difference.p_holm >= laws[0].loss_difference.p_value


def test_the_reason_names_what_stands_in_the_way(diverge):
    crossing = only(in_settings(lambda _, size: (-0.04, -0.015, 0.015, 0.04)[size], ("adamw",)))
    assert crossing.reason.text == "lower at 20m, 60m; higher at 200m, 600m"
    diverged = only(diverge(in_settings(lambda *_: 0.0), "unified", "600m", 0), margin=0.005)
    assert (diverged.verdict, diverged.reason.code) == ("undecided", "arm_diverged")
    copies = only(in_settings(lambda *_: -0.02, ("adamw",), sd=0.0))
    assert copies.reason.text == "seeds that change nothing: no noise figure"
