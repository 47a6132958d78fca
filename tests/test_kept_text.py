"""What may differ between a kept text and the same text remade on another processor."""

import pytest

from kept_text import difference_beyond_rounding


@pytest.mark.parametrize(
    ("kept", "remade"),
    [
        ("loss 3.9006 ± 0.0291", "loss 3.9006 ± 0.0290"),
        ('<path d="M 16.6 -280.42"/>', '<path d="M 16.59 -280.42"/>'),
        ('x="17"', 'x="16.99"'),
        ("8.71e-03", "8.72e-03"),
        ("−0.0001", "+0.0000"),
        ("1,349 and 2", "1,349 and 2"),
    ],
)
def test_the_last_written_place_may_differ_by_one(kept: str, remade: str):
    assert difference_beyond_rounding(kept, remade) == ""


@pytest.mark.parametrize(
    ("kept", "remade", "message"),
    [
        ("loss 3.9006", "loss 3.9008", "3.9006 became 3.9008"),
        ("16 pairs", "17 pairs", "16 became 17"),
        ("1,349", "1,350", "1,349 became 1,350"),
        ("better by 0.1", "worse by 0.1", "the text was 'better by ' and is 'worse by '"),
        ("a 0.1", "a 0.1 b 0.2", "the text was '' and is ' b '"),
        ("a ", "a 0.1", "0 numbers were kept, 1 are remade"),
    ],
)
def test_everything_else_is_a_difference(kept: str, remade: str, message: str):
    assert message in difference_beyond_rounding(kept, remade)
