"""The arithmetic of a choice: vertex, rounding, and the law that carries it to larger rungs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.choices import Choice, from_json, rounded, shared_slope, to_json, vertex


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


@given(peak=st.floats(-0.5, 0.5), curvature=st.floats(0.01, 5), low=st.floats(1e-4, 1e-1))
def test_the_vertex_of_a_parabola_in_the_logarithm_is_found(peak, curvature, low):
    rates = [low, 2 * low, 4 * low]
    best = math.log(2 * low) + peak * math.log(2)
    losses = [3 + curvature * (math.log(rate) - best) ** 2 for rate in rates]
    assert vertex(rates, losses) == pytest.approx(math.exp(best), rel=1e-6)


def test_there_is_no_vertex_beside_a_diverged_cell():
    assert vertex([1, 2, 4], [3.0, 2.9, math.inf]) is None


def test_there_is_no_vertex_on_a_line():
    assert vertex([1, 2, 4], [2.0, 2.0, 2.0]) is None


@given(st.floats(1e-6, 10))
def test_rounding_is_to_the_nearest_quarter_power_of_two(value):
    steps = 4 * math.log2(rounded(value))
    assert steps == pytest.approx(round(steps), abs=1e-9)
    assert abs(math.log2(value) - math.log2(rounded(value))) <= 1 / 8 + 1e-12


@given(slope=st.floats(-1, 1), gap=st.floats(0.5, 2))
def test_the_slope_is_shared_and_the_levels_are_not(slope, gap):
    choices = [
        choice(arm, n, level * n**slope)
        for arm, level in (("a", 0.1), ("b", 0.1 * gap))
        for n in (1000, 3000)
    ]
    assert shared_slope(choices) == pytest.approx(slope, abs=1e-9)


def test_one_tuned_rung_carries_its_value_unchanged():
    assert shared_slope([choice("a", 1000, 0.02), choice("b", 1000, 0.04)]) == 0.0


def test_choices_survive_the_file():
    choices = [choice("a", 1000, 0.02)]
    assert from_json(to_json(choices)) == choices


def test_choices_of_another_version_are_refused():
    with pytest.raises(ValueError, match=r"version 99"):
        from_json({"version": 99, "choices": []})
