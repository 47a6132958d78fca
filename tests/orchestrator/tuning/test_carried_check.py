"""The check of a carried rate on several seeds: each rate counts by the mean of its validation losses."""

import pytest

from scalevec.orchestrator.tuning.carried_check import check_of

RATES = (0.005, 0.01, 0.02)
LEVELS = (3.25, 3.5, 3.75)
NOISE = {100: -0.25, 101: 0.5}


def checked(levels=LEVELS, rates=RATES, carried=0.01):
    return check_of(
        carried, rates, [[level + noise for noise in NOISE.values()] for level in levels], [*NOISE]
    )


def test_each_rate_has_the_mean_over_the_seeds():
    result = checked()
    assert result.losses == pytest.approx((3.375, 3.625, 3.875))
    assert result.seeds == (100, 101)


def test_a_better_neighbour_is_named_by_its_side_with_what_it_gains():
    result = checked()
    assert (result.status, result.vertex, result.best) == ("below", None, 0.005)
    assert result.gain == pytest.approx(0.25)


def test_a_rate_that_diverged_on_one_seed_has_no_mean():
    result = checked((float("inf"), 3.5, 3.75))
    assert result.losses[0] is None
    assert (result.status, result.best) == ("inside", 0.01)


def test_an_optimum_between_rates_beyond_the_carried_one_is_inside_and_gains_over_that():
    result = checked((3.75, 3.5, 3.25, 3.5), (0.005, 0.01, 0.02, 0.04))
    assert (result.status, result.best) == ("inside", 0.02)
    assert result.vertex == pytest.approx(0.02)
    assert result.gain == pytest.approx(0.25)


def test_of_equals_the_carried_rate_is_best():
    assert checked((3.5, 3.5, 3.5)).status == "inside"
