"""What the report says of tuning: its answer on the baseline, and several fields in one record."""

import pytest

from scalevec.analysis.data.tuning import tuning_rows, tuning_verdict

CARRIED = {"grid": [], "losses": [], "status": "carried"}


@pytest.mark.parametrize("status", ["below", "above", "diverged"])
def test_an_optimum_beyond_a_carried_rate_answers_no(status, choice):
    carried = {**choice("baseline", "150k", **CARRIED), "check": {"status": status}}
    text = tuning_verdict([choice("baseline"), carried], "baseline")
    assert text.startswith("No: at 150k the best rate of baseline lies at the edge")


def test_a_carried_rate_is_said(choice):
    carried = {**choice("baseline", "150k", **CARRIED), "check": {"status": "inside"}}
    text = tuning_verdict([choice("baseline"), carried], "baseline")
    assert text.startswith("Yes: at 25k ")
    assert text.endswith("At 150k it was carried by one power law in N.")


def test_fields_that_were_tuned_together_are_named_in_their_rows(choice):
    rate = choice("baseline")
    beta = {**rate, "field": "beta2", "axis": "log(1-x)", "grid": [0.9, 0.95, 0.975]}
    first, second = tuning_rows([rate, beta])
    assert (first["setting"], second["setting"]) == ("learning rate", "beta2")
    assert "the learning rate and beta2 of baseline was tuned" in tuning_verdict([rate, beta], "baseline")
