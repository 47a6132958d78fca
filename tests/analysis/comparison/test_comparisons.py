"""What a comparison returns: by arm, as text and as a table."""

import pytest

import comparisons


@pytest.fixture(scope="module")
def three(sweep):
    table = sweep({"baseline": 0.0, "none": 0.04, "unified": -0.03})
    return comparisons.compared(table)


def test_what_is_no_arm_is_answered_by_the_arms(three):
    with pytest.raises(KeyError, match="0 is no arm; allowed: "):
        three[0]


def test_an_arm_has_its_comparison_by_name_and_one_alone_is_the_only_one(sweep, three):
    expected = [("none", "none"), ("unified", "unified")]
    assert [(name, comparison.arm) for name, comparison in three.items()] == expected
    assert comparisons.only(sweep()).arm == "unified"
    with pytest.raises(ValueError, match="too many values"):
        three.only  # noqa: B018


def test_a_frame_has_a_row_for_each_arm_with_interval_and_lines(three):
    frame = three.to_frame().set_index("arm")
    unified = three["unified"]
    assert frame.loc["unified", "difference"] == unified.loss_difference.mean
    assert (frame["low"] < frame["difference"]).all()
    assert frame.loc["unified", "at_sizes"] == unified.at_sizes.text
    assert "<td>unified</td>" in three._repr_html_()
