"""How far a sweep is, in one line: interim, at a look, complete, after the plan."""

import numpy as np
import pytest

from scalevec.analysis.comparison.law_comparison import pairs_or_laws
from scalevec.analysis.comparison.trials import compared_trials
from scalevec.analysis.data.tidy import checked
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.report.plan_state import plan_state, seeds_by_stage


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
