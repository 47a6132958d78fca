"""What a comparison returns: by arm, as text and as a table."""

import pytest

from scalevec import analysis


@pytest.fixture(scope="module")
def compared(sweep):
    table = sweep({"baseline": 0.0, "none": 0.04, "unified": -0.03})
    return analysis.compare(table, "baseline", bootstrap=0)


def test_an_arm_has_its_comparison_by_name_and_one_alone_is_the_only_one(sweep, compared):
    assert [(name, comparison.arm) for name, comparison in compared.items()] == [
        ("none", "none"),
        ("unified", "unified"),
    ]
    assert analysis.compare(sweep(), "baseline", bootstrap=0).only.arm == "unified"
    with pytest.raises(ValueError, match="too many values"):
        compared.only  # noqa: B018


def test_a_frame_has_a_row_for_each_arm_with_interval_and_lines(compared):
    frame = compared.to_frame().set_index("arm")
    unified = compared["unified"]
    assert frame.loc["unified", "difference"] == unified.loss_difference.mean
    assert (frame["low"] < frame["difference"]).all()
    assert frame.loc["unified", "at_sizes"] == unified.at_sizes.text
    assert "<td>unified</td>" in compared._repr_html_()
