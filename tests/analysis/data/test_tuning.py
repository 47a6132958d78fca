"""What the report says of tuning: several fields, and the check of a carried rate."""

import pytest

from scalevec.analysis.data.tuning import tuning_rows, tuning_verdict

CARRIED = {"grid": [], "losses": [], "status": "carried"}


def check(status, gain=0.0, losses=(3.02, 3.0, 3.05)):
    """A check of the rate 0.02, a factor of two to each side."""
    return {
        "grid": [0.01, 0.02, 0.04],
        "losses": list(losses),
        "seeds": [100],
        "vertex": None,
        "status": status,
        "gain": gain,
    }


@pytest.fixture
def verdict(choice):
    """The answer where 25k was tuned and 150k was carried with this check."""

    def answer(check):
        carried = {**choice("baseline", "150k", **CARRIED), "check": check, "chosen": 0.02}
        return tuning_verdict([choice("baseline"), carried], "baseline")

    return answer


def test_a_carried_rate_that_was_not_checked_is_said(verdict):
    assert verdict(None).endswith("Nor was it checked by a step to each side (tune: check_carried).")


def test_a_carried_rate_that_was_kept_inside_is_said_with_its_sides(verdict):
    text = verdict(check("inside"))
    assert text.startswith("Yes: ")
    expected = (
        "A step to each side of it, on the tuning seeds, is worse at 150k (0.01: +0.0200, 0.04: +0.0500)."
    )
    assert text.endswith(expected)


def test_a_side_that_diverged_is_no_number(verdict):
    assert "(0.01: +0.0200, 0.04: diverged)" in verdict(check("inside", losses=(3.02, 3.0, None)))


@pytest.mark.parametrize(("side", "rate"), [("below", "0.01"), ("above", "0.04")])
def test_an_optimum_beyond_the_carried_rate_answers_no_with_what_it_is_worth(side, rate, verdict):
    text = verdict(check(side, gain=0.0125))
    assert text.startswith("No: at 150k the carried learning rate of baseline, 0.02, is not the best there")
    assert f"a step {side} it, {rate}, is better by 0.0125 nats/token" in text


def test_a_carried_rate_that_diverged_answers_no(verdict):
    assert "diverged on the tuning seeds, where 0.01 did not" in verdict(check("below", gain=None))
    assert "diverged, as did a step to each side of it" in verdict(check("diverged", gain=None))


def test_fields_that_were_tuned_together_are_named_in_their_rows(choice):
    rate = choice("baseline")
    beta = {**rate, "field": "beta2", "axis": "log(1-x)", "grid": [0.9, 0.95, 0.975]}
    first, second = tuning_rows([rate, beta])
    assert (first.setting, second.setting) == ("learning rate", "beta2 (parabola in log(1-beta2))")
    assert "the learning rate and beta2 of baseline was tuned" in tuning_verdict([rate, beta], "baseline")


def test_a_grid_that_diverged_everywhere_has_no_depth(choice):
    (row,) = tuning_rows([choice("baseline", losses=[None, None, None])])
    assert row.depth == "diverged"
