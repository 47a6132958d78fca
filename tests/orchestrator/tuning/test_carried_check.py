"""The check of a carried rate on several seeds: each rate counts by the mean of its validation losses."""

from types import SimpleNamespace

import pytest

from scalevec.orchestrator.tuning.choices import CHECKED, checked

CELL = SimpleNamespace(
    tune_grid={CHECKED: (0.005, 0.01, 0.02)}, trial=lambda seed, **values: (values[CHECKED], seed)
)
CHOSEN = {CHECKED: SimpleNamespace(chosen=0.01, check=None)}
LEVELS = {0.005: 3.25, 0.01: 3.5, 0.02: 3.75}
NOISE = {100: -0.25, 101: 0.5}


def check_of(levels: dict[float, float]):
    return checked(CELL, CHOSEN, list(NOISE), lambda trial: levels[round(trial[0], 6)] + NOISE[trial[1]])


def test_each_rate_has_the_mean_over_the_seeds():
    result = check_of(LEVELS)
    assert result.losses == pytest.approx((3.375, 3.625, 3.875))
    assert result.seeds == (100, 101)


def test_a_better_neighbour_is_named_by_its_side_with_what_it_gains():
    result = check_of(LEVELS)
    assert (result.status, result.vertex) == ("below", None)
    assert result.gain == pytest.approx(0.25)


def test_a_rate_that_diverged_on_one_seed_has_no_mean():
    result = check_of(LEVELS | {0.005: float("inf")})
    assert result.losses[0] is None
    assert result.status == "inside"
