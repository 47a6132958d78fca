"""The arithmetic of a choice: vertex, rounding, and the law that carries it to larger rungs."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalevec.orchestrator.tuning.choices import (
    CHECKED,
    CarriedCheck,
    Choice,
    checked,
    from_json,
    shared_slope,
    to_json,
    vertex,
)


def choice(arm: str, n_params: int, chosen: float, status: str = "tuned") -> Choice:
    return Choice(
        key=f"{arm}{n_params}",
        arm=arm,
        rung=str(n_params),
        n_params=n_params,
        setting={"optimizer": "adamw"},
        field="learning_rate",
        grid=(0.01, 0.02, 0.04),
        losses=(3.0, 2.9, None),
        seeds=(100,),
        vertex=chosen,
        chosen=chosen,
        status=status,
        extensions=0,
    )


def test_there_is_no_vertex_on_a_line():
    assert vertex([1, 2, 4], [2.0, 2.0, 2.0]) is None


@pytest.mark.parametrize(
    ("best", "status"),
    [("inside", "carried"), ("below", "censored"), ("above", "censored"), ("diverged", "censored")],
)
def test_a_carried_rate_beyond_which_the_optimum_lies_is_censored(best: str, status: str):
    carried = replace(choice("a", 3000, 0.02, "carried"), grid=(), losses=())
    check = CarriedCheck((0.01, 0.02, 0.04), (2.9, 3.0, 3.1), (100,), None, best, 0.1)
    assert replace(carried, check=check).lr_status == status
    assert carried.lr_status == "carried"


@given(slope=st.floats(-1, 1), gap=st.floats(0.5, 2))
def test_the_slope_is_shared_and_the_levels_are_not(slope, gap):
    levels = {"a": 0.1, "b": 0.1 * gap}
    cells = ((arm, n) for arm in levels for n in (1000, 3000))
    choices = [choice(arm, n, levels[arm] * n**slope) for arm, n in cells]
    assert shared_slope(choices) == pytest.approx(slope, abs=1e-9)


def test_choices_survive_the_file():
    check = CarriedCheck((0.01, 0.02, 0.04), (3.0, 2.9, None), (100,), 0.018, "inside", 0.0)
    choices = [choice("a", 1000, 0.02), replace(choice("a", 9000, 0.01), check=check, axis="linear")]
    assert from_json(json.loads(json.dumps(to_json(choices)))) == choices


def test_choices_that_were_frozen_before_there_were_axes_are_read():
    written = to_json([choice("a", 1000, 0.02)])
    for values in written["choices"]:
        del values["axis"], values["check"]
    assert from_json(written) == [choice("a", 1000, 0.02)]


@given(slope=st.floats(-1, 1))
def test_a_beta_is_carried_by_a_law_of_what_it_lacks_of_one(slope):
    choices = [
        replace(choice("a", n, 1 - 0.1 * (n / 1000) ** slope / 2), field="beta2", axis="log(1-x)")
        for n in (1000, 1800)
    ]
    assert -shared_slope(choices) == pytest.approx(slope, abs=1e-6)


def test_decay_is_carried_linearly_where_a_zero_is_among_the_choices():
    choices = [
        replace(choice("a", n, chosen), field="weight_decay", axis="linear")
        for n, chosen in ((1000, 0.0), (10_000, 0.1))
    ]
    assert shared_slope(choices) == pytest.approx(0.1 / math.log(10))


def test_choices_of_another_version_are_refused():
    with pytest.raises(ValueError, match=r"version 99"):
        from_json({"version": 99, "choices": []})


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


def test_a_rate_that_diverged_on_one_seed_has_no_mean():
    result = check_of(LEVELS | {0.005: float("inf")})
    assert result.losses[0] is None
    assert result.status == "inside"
