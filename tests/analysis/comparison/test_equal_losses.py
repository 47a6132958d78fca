"""Arms of which the script seems to ignore what they differ in."""

import pandas as pd
import pytest

from comparisons import only
from scalevec.analysis import comparison_text


@pytest.fixture
def ignored() -> pd.DataFrame:
    """Two arms with equal losses at two sizes and two seeds, and two weight decays."""
    rows = [
        {"arm": arm, "weight_decay": decay, "n_params": n, "n_tokens": 20 * n, "seed": seed}
        | {"loss": 3 - n / 1e7 + 0.01 * seed, "wall_s": 1 + decay}
        for arm, decay in (("baseline", 0.1), ("none", 0.0))
        for n in (1e6, 2e6)
        for seed in (0, 1)
    ]
    return pd.DataFrame(rows)


def test_equal_losses_in_all_pairs_name_the_field_that_changes_nothing(ignored):
    comparison = only(ignored)
    warning = (
        "arms baseline and none have equal losses in all 4 pairs: the script seems to ignore weight_decay"
    )
    assert f"none: {warning}" in comparison.warnings
    assert f"is undecided ({warning})" in comparison_text([comparison])
    assert (comparison.verdict, comparison.with_scale.code) == ("undecided", "none")


def test_one_pair_that_differs_in_the_last_digit_is_no_such_case(ignored):
    ignored.loc[0, "loss"] += 1e-12
    assert not any("equal losses" in warning for warning in only(ignored).warnings)
