"""Learning rates that were carried: a claim that rests on them says so."""

import pandas as pd
import pytest

from scalevec.analysis import compare


def only(table: pd.DataFrame):
    (comparison,) = compare(table, reference="baseline", bootstrap=0)
    return comparison


def carried(table: pd.DataFrame, rungs: tuple[str, ...], factor: float, **columns: object) -> pd.DataFrame:
    """``table`` with carried rates at ``rungs``, of which those of the arm are ``factor`` times larger."""
    far = table["rung"].isin(rungs)
    rate = 0.02 * (1 + (factor - 1) * (far & (table["arm"] == "unified")))
    status = table["lr_status"].where(~far, "carried")
    return table.assign(lr_status=status, learning_rate=rate, **columns)


def gained_at(table: pd.DataFrame, rungs: tuple[str, ...]) -> pd.DataFrame:
    gained = (table["arm"] == "unified") & table["rung"].isin(rungs)
    return table.assign(loss=table["loss"] - 0.06 * gained)


def test_a_gain_of_carried_cells_alone_is_fragile(sweep):
    table = gained_at(sweep({"baseline": 0.0, "unified": 0.0}, noise=0.002), ("83k", "150k"))
    comparison = only(carried(table, ("83k", "150k"), 1.0))
    assert comparison.verdict == "better"
    assert (
        "leaving out the cells with carried learning rates (83k, 150k) makes it undecided"
        in comparison.would_change
    )


def test_a_gain_of_all_cells_holds_without_the_carried_ones(sweep):
    assert "Fragile" not in only(carried(sweep(), ("83k", "150k"), 1.0)).would_change


def test_a_claim_on_rates_that_are_far_apart_says_so(sweep):
    comparison = only(carried(sweep(), ("150k",), 2.5))
    assert comparison.verdict == "better"
    assert (
        "rests on carried learning rates that were not checked: 150k (0.02 against 0.05)"
        in comparison.sentence
    )
    assert any("set tune: check_carried: all" in text for text in comparison.warnings)


@pytest.mark.parametrize(("factor", "check"), [(1.9, None), (2.5, "inside")])
def test_rates_that_are_near_or_were_checked_leave_the_sentence_alone(sweep, factor, check):
    comparison = only(carried(sweep(), ("150k",), factor, carried_check=check))
    assert "rests on" not in comparison.sentence


def test_a_check_of_the_reference_alone_is_not_enough(sweep):
    table = carried(sweep(), ("150k",), 2.5)
    check = (table["arm"] == "baseline").map({True: "inside", False: None})
    assert "rests on" in only(table.assign(carried_check=check)).sentence
