"""When a verdict is due: declared looks, pairs added after a verdict, trials that were dropped."""

import numpy as np
import pandas as pd

import comparisons
from scalevec.analysis import AnalysisOptions
from scalevec.analysis.comparison.plan import pair_ids
from scalevec.analysis.comparison.trials import compared_trials

LOOKS = (2, 3, 4)


def only(table: pd.DataFrame, **options):
    """The comparison of rows as a sweep has them, with the streams of their cells."""
    streamed = table.assign(stream=table["rung"] + table["seed"].astype(str))
    return comparisons.only(streamed, **options)


def with_seeds(table: pd.DataFrame, n_done: int) -> pd.DataFrame:
    """``table``, of which only the first seeds have a result."""
    table = table.copy()
    table.loc[table["seed"] >= n_done, ["status", "loss"]] = "pending", None
    return table


def identified(table: pd.DataFrame) -> pd.DataFrame:
    names = table["arm"] + table["rung"] + table["seed"].astype(str)
    return table.assign(trial_id=names)


def record_of(table: pd.DataFrame, **changes):
    """What a sweep folder keeps of the verdict on ``table``."""
    comparison = only(table)
    pairs = compared_trials(table, "baseline", AnalysisOptions()).paired("unified").pairs
    record = {"reference": "baseline", "arm": "unified", "verdict": comparison.verdict, "at": "2026-01-02T00"}
    return {**record, "pairs": pair_ids(pairs), **changes}


def test_before_the_first_look_the_verdict_is_incomplete(sweep):
    comparison = only(with_seeds(sweep(seeds=(0, 1, 2, 3)), 1), looks=LOOKS)
    assert (comparison.verdict, comparison.interim) == ("incomplete", "interim: 4 of 16 pairs")
    assert "the next declared look is at 2 seeds" in comparison.reason.text


def test_a_look_that_finds_nothing_says_to_go_on(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.005}, seeds=(0, 1, 2, 3), noise=0.01)
    comparison = only(with_seeds(table, 2), looks=LOOKS)
    assert (comparison.verdict, comparison.interim) == ("incomplete", "interim: look at 2 of 4 seeds")
    assert comparison.loss_difference.interval is comparison.loss_difference.p_value is None
    assert comparison.reason.text.endswith("the next declared look is at 3 seeds")


def test_a_clear_difference_is_final_at_an_early_look(sweep):
    seeds = (0, 1, 2, 3)
    comparison = only(with_seeds(sweep({"baseline": 0.0, "unified": -0.1}, seeds=seeds), 2), looks=LOOKS)
    assert (comparison.verdict, comparison.pairs) == ("better", 8)
    assert comparison.claim_status.text == "decided at look 1 of 3 (2 seeds)"


def test_an_early_look_asks_for_more_than_a_test_at_its_full_level(sweep):
    table = with_seeds(sweep({"baseline": 0.0, "unified": -0.017}, seeds=(0, 1, 2, 3), noise=0.008), 2)
    assert only(table[table["seed"] < 2]).verdict == "better"
    assert only(table, looks=LOOKS).verdict == "incomplete"


def test_a_look_takes_the_first_seeds_whatever_else_came_in(sweep):
    """Else a lucky seed that is done early would decide."""
    table = sweep({"baseline": 0.0, "unified": -0.1}, seeds=(0, 1, 2, 3))
    early = with_seeds(table, 2)
    lucky = early.copy()
    lucky.loc[(lucky["seed"] == 3) & (lucky["rung"] == "25k"), "status"] = "completed"
    lucky.loc[(lucky["seed"] == 3) & (lucky["rung"] == "25k"), "loss"] = 1.0
    assert only(lucky, looks=LOOKS).loss_difference == only(early, looks=LOOKS).loss_difference


def test_the_last_look_decides_with_an_interval_a_little_wider(sweep):
    table = sweep({"baseline": 0.0, "unified": 0.0}, seeds=(0, 1, 2, 3), noise=0.01)
    last, plain = only(table, looks=LOOKS), only(table)
    assert last.verdict == "undecided"
    widths = [np.ptp(c.loss_difference.interval) for c in (last, plain)]
    assert 1 < widths[0] / widths[1] < 1.25
    assert last.reason.code == "looks_passed"


def test_what_comes_after_the_deciding_look_is_exploratory(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.1}, seeds=(0, 1, 2, 3))
    early, late = only(with_seeds(table, 2), looks=LOOKS), only(table, looks=LOOKS)
    assert late.loss_difference == early.loss_difference
    assert late.plan["exploratory"]["pairs"] == 16
    assert "Exploratory, after the plan: over all 16 pairs" in late.sentence


def test_pairs_that_are_only_planned_do_not_touch_a_verdict_that_was_given(sweep):
    table = identified(sweep(seeds=(0, 1, 2)))
    first = table[table["seed"] < 2]
    later = with_seeds(table, 2)
    later.attrs["verdicts"] = [record_of(first)]
    assert (only(later).verdict, only(later).plan["exploratory"]) == ("better", None)


def test_an_earlier_verdict_on_other_pairs_is_a_caution(sweep):
    table = identified(sweep())
    gone = [["baseline55k7", "unified55k7"], ["baseline25k0", "unified25k0"]]
    table.attrs["verdicts"] = [record_of(table, pairs=gone, verdict="undecided")]
    (caution,) = [text for text in only(table).warnings if "earlier verdict" in text]
    words = "unified: an earlier verdict (undecided, 2026-01-02) stood on 2 pairs, of which 1 are not"
    assert caution.startswith(words)


def test_the_status_of_a_claim_says_whether_it_was_asked_before_the_results(sweep):
    table = sweep()
    assert only(table).claim_status.code == "no_plan"
    asked = {"reference": "baseline", "arms": ["baseline", "unified"], "where": None, "margin": None}
    table.attrs["declared"] = asked | {"law": "power"}
    assert only(table).claim_status.text == "planned"
    for changed in ({"where": "rung != '25k'"}, {"margin": 0.01}, {"law": "power-floor"}):
        status = only(table, **changed).claim_status
        assert (status.code, next(iter(changed)) in status.text) == ("chosen_after", True)
