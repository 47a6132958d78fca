"""The sentences and tables of the page: how far a sweep is, its trials, what they cost."""

import pandas as pd
import pytest

from comparisons import CHEAP
from scalevec.analysis.comparison.law_comparison import pairs_or_laws
from scalevec.analysis.comparison.trials import compared_trials
from scalevec.analysis.data.tidy import checked
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.report.sections import costs, plan_state, told_of_trials, trials_table


def state(table, **options) -> str:
    trials = compared_trials(table, "baseline", AnalysisOptions(**CHEAP, **options))
    comparisons, by_laws = pairs_or_laws(trials)
    return " ".join(plan_state(comparisons, trials.interim(), by_laws))


def test_arms_without_a_pair_are_named_beside_those_that_have_one(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.03, "apart": -0.02})
    apart = table["arm"] == "apart"
    table["rung"] += apart.map({True: " wider", False: ""})
    assert state(table) == "Compared by laws, without pairs: apart."
    assert state(sweep()) == ""


@pytest.mark.parametrize(
    ("seeds", "sentence"),
    [
        (1, "unified: next look at 2 seeds."),
        (2, "unified: look at 2 seeds of 2, 4. unified: next look at 4 seeds."),
        (4, "unified: look at 4 seeds of 2, 4."),
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
    assert state(table) == "unified: pairs were added after its verdict; their mean is exploratory."


def test_seeds_are_said_by_stage(sweep):
    table = sweep()
    tuning = table[table["rung"] == "25k"].assign(stage="tuning", seed=100)
    told = told_of_trials(checked(pd.concat([table.assign(stage="comparison"), tuning])))
    assert told[1:] == ["Seeds of the comparison: 0, 1.", "Seeds of tuning: 100."]


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


@pytest.fixture
def timed(sweep) -> pd.DataFrame:
    """Two rungs of four trials; each took an hour and a quarter, with evaluation, of a planned hour."""
    rows = sweep(rungs={"large": 83_000, "small": 25_000})
    return rows.assign(wall_s=4140.0, evaluation_s=360.0, planned_s=3600.0)


def cells(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    table = costs(checked(rows))
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def test_stages_stand_below_the_rungs_with_what_the_plan_leaves(timed):
    assert list(cells(timed)) == ["small", "large", "all"]
    timed.loc[timed.index[:3], "stage"] = "tuning"
    timed.loc[timed.index[3], ["status", "wall_s"]] = ["pending", None]
    timed["stage"] = timed["stage"].fillna("comparison") if "stage" in timed else "comparison"
    shown = {name: list(row.values())[1:] for name, row in cells(timed).items()}
    assert shown["tuning"] == ["3 of 3", "3.75", ""]
    assert shown["comparison"] == ["4 of 5", "5", "1"]
    assert shown["all"][0] == "7 of 8"


def test_what_nobody_recorded_is_no_column(sweep, timed):
    earlier = cells(timed.drop(columns=["evaluation_s", "planned_s"]))["small"]
    assert earlier == {"of": "small", "with a result": "4 of 4", "spent, h": "4.6"}
    expected = {"of": "all", "with a result": "16 of 16", "FLOPs spent": "1.60e+10"}
    assert cells(sweep().assign(flops=1e9))["all"] == expected
    assert costs(checked(sweep())) is None
