"""How numbers are written for people."""

import pytest

from scalevec.analysis.formatting import signed, span


@pytest.mark.parametrize(
    ("value", "beside", "text"),
    [
        (-2.93e-7, None, "−2.9e−07"),
        (2e-5, (-1e-5, 4e-5), "+2.0e−05"),
        (2e-5, (-0.001, 0.002), "+0.0000"),
        (1e-17, None, "+0.0000"),
        (0.0123, None, "+0.0123"),
    ],
)
def test_a_difference_has_two_digits_where_all_that_is_shown_would_be_zero(value, beside, text):
    assert signed(value, beside) == text


def test_an_interval_has_two_digits_where_both_ends_would_be_zero():
    assert span((-3e-7, 4e-5)) == "−3.0e−07 to +4.0e−05"
    assert span((-3e-7, 0.01)) == "−0.0000 to +0.0100"
