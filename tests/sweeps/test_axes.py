"""The axes of tuned fields: where values are, how they are rounded, and where a grid goes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalevec.sweeps.axes import LINEAR, LOG, LOG_ONE_MINUS, axis_of, beyond, position_on, value_at


@pytest.mark.parametrize(
    ("field", "grid", "axis"),
    [
        ("learning_rate", (0.01, 0.02), LOG),
        ("weight_decay", (0.0, 0.1), LINEAR),
        ("beta2", (0.9, 0.99), LOG_ONE_MINUS),
        ("momentum", (0.0, 0.9), LOG_ONE_MINUS),
        ("warmup_tokens", (0, 1024), LINEAR),
    ],
)
def test_the_axis_follows_from_the_field_and_a_zero_in_its_grid(field, grid, axis):
    assert axis_of(field, grid) == axis


@given(value=st.floats(1e-6, 0.999), axis=st.sampled_from([LOG, LOG_ONE_MINUS, LINEAR]))
def test_the_way_to_a_place_and_back_changes_nothing(value, axis):
    assert value_at(axis, position_on(axis, value)) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(
    ("field", "grid", "edge", "further"),
    [
        ("weight_decay", (0.0, 0.1, 0.3), 0.3, 0.5),
        ("beta2", (0.9, 0.95, 0.975), 0.9, 0.8),
        ("momentum", (0.5, 0.8), 0.5, 0.0),
        ("warmup_fraction", (0.4, 0.8), 0.8, 1.0),
        ("warmup_fraction", (0.5, 1.0), 1.0, None),
    ],
)
def test_a_grid_goes_on_by_its_last_step_as_far_as_the_field_does(field, grid, edge, further):
    actual = beyond(field, grid, edge)
    assert actual == (None if further is None else pytest.approx(further, abs=1e-12))
