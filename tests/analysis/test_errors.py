"""Messages that hold names from a file."""

import pandas as pd
import pytest

from scalevec.analysis import DataError, fit


def test_control_characters_of_a_column_name_are_shown_as_escapes():
    table = pd.DataFrame({"n_params": [1.0], "n_tokens": [1.0], "\x1b[2Jloss\x01": [1.0]})
    with pytest.raises(DataError) as refused:
        fit(table)
    assert str(refused.value).isprintable()
    assert r"\x1b[2J" in str(refused.value)


def test_a_message_is_cut_to_a_length_that_is_read():
    table = pd.DataFrame({f"column_{i}_{'x' * 300}": [1.0] for i in range(200)})
    with pytest.raises(DataError) as refused:
        fit(table)
    assert len(str(refused.value)) < 1_100
