"""The sentences and tables of the page: how far a sweep is, its trials and pairs, what they cost."""

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis.comparison.law_comparison import pairs_or_laws
from scalevec.analysis.comparison.trials import compared_trials
from scalevec.analysis.data.tidy import checked
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.report.sections import costs, pair_records, plan_state, seeds_by_stage, trials_table


def state(table, **options) -> str:
    trials = compared_trials(table, "baseline", AnalysisOptions(bootstrap=0, **options))
    comparisons, by_laws = pairs_or_laws(trials)
    return " ".join(plan_state(comparisons, trials.interim(), by_laws))


def test_all_pairs_with_a_result_are_complete(sweep):
    assert state(sweep()) == "Complete: every planned pair has a result (8 pairs)."


def test_arms_without_a_pair_are_named_beside_those_that_have_one(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.03, "apart": -0.02})
    apart = table["arm"] == "apart"
    table["rung"] += apart.map({True: " wider", False: ""})
    assert state(table).endswith("(8 pairs). Without pairs, compared by laws: apart.")


def test_a_pair_without_a_result_makes_it_interim(sweep):
    table = sweep()
    table.loc[0, ["status", "loss"]] = ["pending", np.nan]
    assert state(table).startswith("Interim: unified 7 of 8 pairs have a result. No interval")


@pytest.mark.parametrize(
    ("seeds", "sentence"),
    [
        (1, "unified: next look at 2 seeds."),
        (2, "unified: look 1 of 2 (2 seeds), next look at 4 seeds."),
        (4, "unified: look 2 of 2 (4 seeds), ended."),
    ],
)
def test_a_declared_look_is_named_with_the_next_one(sweep, seeds, sentence):
    table = sweep({"baseline": 0.0, "unified": 0.0001}, seeds=tuple(range(seeds)), noise=0.03)
    assert sentence in state(table, looks=(2, 4))


def test_pairs_that_came_after_the_verdict_are_counted(sweep):
    table = sweep(seeds=(0, 1, 2))
    table["trial_id"] = [f"{number:064x}" for number in range(len(table))]
    first = table[table["seed"] < 2]
    sides = (first.loc[first["arm"] == arm, "trial_id"] for arm in ("baseline", "unified"))
    pairs = [list(pair) for pair in zip(*sides, strict=True)]
    record = {"reference": "baseline", "arm": "unified", "verdict": "better", "pairs": pairs}
    table.attrs["verdicts"] = [record]
    assert state(table).startswith("After the plan: ")
    assert "Added after the verdict, exploratory: unified 4 more pairs." in state(table)


def test_seeds_are_said_by_stage_and_by_rung_where_rungs_differ(sweep):
    table = sweep()
    tuning = table[table["rung"] == "25k"].assign(stage="tuning", seed=100)
    assert seeds_by_stage(checked(table)) == ["Seeds of the comparison: 0, 1 (every rung)."]
    assert seeds_by_stage(checked(tuning)) == ["Seeds of tuning: 100 (every rung)."]
    some = table[(table["rung"] == "25k") | (table["seed"] == 0)]
    assert seeds_by_stage(checked(some)) == ["Seeds of the comparison: 25k: 0, 1; 55k: 0; 83k: 0; 150k: 0."]


def row(table, number: int) -> dict[str, str]:
    return dict(zip(table.columns, table.rows[number], strict=True))


def test_a_trial_has_its_short_name_and_loss_on_the_page_and_all_of_both_for_programs(sweep):
    results = sweep().assign(trial_id=[f"{number:064x}" for number in range(16)], wall_s=5400.0)
    trials = compared_trials(results, "baseline", AnalysisOptions())
    table = trials_table(checked(results), trials)
    shown = row(table, 1)
    assert (shown["trial"], shown["loss"], shown["hours"]) == ("0" * 12, "3.8962", "1.5")
    assert table.records[1]["trial_id"] == f"{1:064x}"
    assert table.records[1]["loss"] == results.loc[1, "loss"]


def test_a_pair_has_both_losses_and_one_whose_arm_diverged_has_no_difference(sweep, diverge):
    results = diverge(sweep(), "unified", "25k", 1)
    first, second = pair_records(compared_trials(results, "baseline", AnalysisOptions()))[:2]
    losses = results.loc[[0, 2], "loss"].to_numpy()
    assert (first["loss_reference"], first["pair"]) == (losses[0], "complete")
    assert first["difference"] == losses[1] - losses[0]
    assert (second["loss_arm"], second["difference"], second["pair"]) == (None, None, "arm diverged")


@pytest.fixture
def timed(sweep) -> pd.DataFrame:
    """Two rungs of four trials; each took an hour and a quarter, with evaluation, of a planned hour."""
    rows = sweep(rungs={"large": 83_000, "small": 25_000})
    return rows.assign(
        wall_s=4140.0,
        evaluation_s=360.0,
        planned_s=3600.0,
        step_s_median=[0.01, 0.02, 0.02, 0.5] * 2,
        tokens_per_s=20_480.0,
        mfu=0.413,
        peak_memory_bytes=[1e9, 1e9, 1e9, 2.5e9] * 2,
    )


def cells(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    table = costs(checked(rows))
    assert table is not None
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def test_each_rung_has_its_hours_and_the_medians_of_its_trials(timed):
    shown = cells(timed)
    assert list(shown) == ["small", "large", "all"]
    assert shown["small"] == {
        "of": "small",
        "with a result": "4 of 4",
        "spent, h": "5",
        "device-hours": "5",
        "spent / planned": "1.25",
        "step, ms": "20",
        "tokens/s": "20.5k",
        "MFU": "41%",
        "peak memory, GB": "2.5",
    }


def test_stages_stand_below_the_rungs_with_what_the_plan_leaves(timed):
    timed = timed.assign(threads=2, device="cpu", flops=1e9)
    timed.loc[timed.index[:3], "stage"] = "tuning"
    timed.loc[timed.index[3], ["status", "wall_s"]] = ["pending", None]
    timed["stage"] = timed["stage"].fillna("comparison")
    shown = {name: list(row.values())[1:6] for name, row in cells(timed).items()}
    assert shown["tuning"] == ["3 of 3", "3.75", "7.5", "1.25", ""]
    assert shown["comparison"] == ["4 of 5", "5", "10", "1.25", "1"]
    assert shown["all"][0] == "7 of 8"


def test_a_diverged_trial_has_its_cost_and_one_that_nobody_planned_is_in_no_ratio(timed):
    timed.loc[0, "status"], timed.loc[1, "status"] = "pending", "diverged"
    timed.loc[:2, "planned_s"] = None
    shown = cells(timed)["large"]
    assert (shown["with a result"], shown["spent / planned"]) == ("3 of 4", "1.25")


def test_what_nobody_recorded_is_no_column(sweep, timed):
    earlier = cells(timed.drop(columns=["evaluation_s", "planned_s", "step_s_median", "mfu"]))["small"]
    assert {"spent / planned", "step, ms", "MFU"}.isdisjoint(earlier)
    assert earlier["spent, h"] == "4.6"
    assert cells(sweep().assign(flops=1e9))["all"] == {
        "of": "all",
        "with a result": "16 of 16",
        "FLOPs spent": "1.60e+10",
    }
    assert costs(checked(sweep())) is None
