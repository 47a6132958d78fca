"""While a planned pair has no result nothing is claimed; one rung alone never carries a claim."""

import json
import re

import pandas as pd
import pytest

from comparisons import compared, only
from scalevec import analysis
from scalevec.analysis import comparison_text
from scalevec.analysis.report.text import verdict_table

UNFINISHED = ["pending", "queued", "running", "failed", "cancelled"]


def unfinished(table: pd.DataFrame, status: str = "pending", rungs: tuple[str, ...] = ("55k", "83k", "150k")):
    """``table`` with the trials of some rungs, and one seed of the smallest, not done."""
    table = table.copy()
    lost = table["rung"].isin(rungs) | ((table["rung"] == "25k") & (table["seed"] == 1))
    table.loc[lost, ["status", "loss"]] = status, None
    return table


@pytest.mark.parametrize("status", UNFINISHED)
def test_a_planned_pair_without_a_result_leaves_the_verdict_incomplete(sweep, status):
    table = sweep({"baseline": 0.0, "unified": -0.3})
    table.loc[table.index[-1], ["status", "loss"]] = status, None
    comparison = only(table, margin=0.5)
    assert comparison.verdict == "incomplete"
    assert comparison.interim == "interim: 7 of 8 pairs"
    assert (comparison.plan["with_result"], comparison.plan["pairs"]) == (7, 8)


@pytest.mark.parametrize("where", ["loss < 9", "0 < loss and rung != 'none'"])
def test_a_choice_by_loss_does_not_take_planned_pairs_out_of_the_plan(sweep, where):
    table = sweep({"baseline": 0.0, "unified": -0.3})
    table.loc[table.index[-1], ["status", "loss"]] = "pending", None
    comparison = only(table, where=where)
    assert comparison.verdict == "incomplete"
    assert (comparison.plan["with_result"], comparison.plan["pairs"]) == (7, 8)


def test_a_choice_by_what_is_planned_takes_trials_without_a_result_out(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.3})
    table.loc[table["rung"] == "150k", ["status", "loss"]] = "pending", None
    assert only(table, where="rung != '150k'").plan["pairs"] == 6


def test_an_interim_estimate_has_a_standard_error_and_no_interval_or_p_anywhere(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.3})
    table.loc[table.index[-1], ["status", "loss"]] = "running", None
    record = json.loads(json.dumps(only(table, margin=0.005, bootstrap=20).to_dict()))
    assert record["loss_difference"]["mean"] == pytest.approx(-0.3, abs=0.02)
    assert record["loss_difference"]["standard_error"] > 0
    claims = [value for name, value in _leaves(record) if name in ("interval", "p_value", "p_holm")]
    assert claims
    assert set(claims) == {None}


def _leaves(value, name=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, key)
    elif isinstance(value, list) and not name.startswith("interval"):
        for inner in value:
            yield from _leaves(inner, name)
    else:
        yield name, value


def test_failed_pairs_may_be_run_again_or_dropped_by_a_person(sweep):
    comparison = only(unfinished(sweep(), "failed"))
    assert "7 pairs that failed or were cancelled" in comparison.reason.text
    assert "exclude" in comparison.reason.text


def test_trials_that_never_started_pair_with_what_is_planned(sweep):
    """They know their arm, rung and seed; tokens, corpus and architecture stand in no record yet."""
    table = unfinished(sweep().assign(architecture="llama", corpus="c"))
    waiting = (table["status"] == "pending") & (table["arm"] == "unified")
    table.loc[waiting, ["n_params", "n_tokens", "architecture", "corpus"]] = None
    assert only(table).interim == "interim: 1 of 8 pairs"


def test_a_row_of_a_foreign_table_without_its_counterpart_is_a_caution_and_no_plan(sweep):
    comparison = only(sweep().iloc[:-1], repeated_seeds="independent")
    assert comparison.verdict == "better"
    assert any("without its counterpart: 150k, seed 1" in text for text in comparison.warnings)


def test_another_arm_that_is_incomplete_leaves_a_complete_one_its_verdict(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.1, "none": 0.04})
    table.loc[table.index[table["arm"] == "none"][0], ["status", "loss"]] = "pending", None
    verdicts = {c.arm: c.verdict for c in compared(table).values()}
    assert verdicts == {"unified": "better", "none": "incomplete"}


@pytest.mark.parametrize("name", ["comparison", "ablation", "scaling"])
def test_every_table_is_stamped(sweep, name):
    table = unfinished(sweep(), rungs=("150k",)).assign(
        vector_branches="all", vector_placement="input", vector_reparameterization="none", vector_decay="all"
    )
    shown = analysis.table(table, name, reference="baseline", bootstrap=50)
    assert "Interim: unified 5 of 8 pairs" in shown.notes[0]
    ends = [value for row in shown.records for key, value in row.items() if key.startswith("difference_")]
    assert set(ends) <= {None}


def test_the_terminal_and_the_page_are_stamped(sweep, tmp_path):
    table = unfinished(sweep())
    assert any("interim: 1 of 8 pairs" in line for line in verdict_table([only(table)]).splitlines())
    assert "interim: 1 of 8 pairs" in comparison_text([only(table)])
    analysis.write_report(table, tmp_path / "r.html", name="n", reference="baseline", bootstrap=50)
    page = (tmp_path / "r.html").read_text()
    stamp = re.search('<h1>n</h1>\n<p class="state interim">(.*)</p>', page)
    assert stamp
    assert re.sub("<.*?>", "", stamp[1]).startswith("Interim: unified 1 of 8 pairs have a result;")
    assert "95 % interval −" not in page
