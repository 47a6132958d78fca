"""What moves a loss within a pair is a caution."""

import pandas as pd
import pytest

from comparisons import only


def of_arm(table: pd.DataFrame, column: str, reference: str, arm: str | None, **others: str) -> pd.DataFrame:
    """``table`` with a column that has one value for each arm."""
    values = table["arm"].map({"baseline": reference, "unified": arm})
    return table.assign(**others, **{column: values})


def machine_cautions(table: pd.DataFrame) -> list[str]:
    return [text for text in only(table).warnings if "holds that of the machines too" in text]


@pytest.mark.parametrize(
    ("column", "reference", "arm", "words"),
    [
        ("device", "cpu", "cuda", "8 pairs of a CPU trial against a GPU trial: 25k, seed 0"),
        ("cpu_capability", "AVX2", "AVX512", "8 pairs of trials of processors with different capabilities"),
        ("torch_version", "2.9.1", "2.10.0", "8 pairs of trials of two minor versions of torch"),
        ("torch_version", "2.9.1", "2.9.1; 2.10.0", "8 pairs of trials of two minor versions of torch"),
    ],
)
def test_what_moves_a_loss_within_a_pair_is_a_caution(sweep, column, reference, arm, words):
    table = of_arm(sweep(), column, reference, arm)
    (caution,) = machine_cautions(table)
    assert caution.startswith(f"unified: {words}")


@pytest.mark.parametrize(
    ("column", "reference", "arm", "others"),
    [
        ("torch_version", "2.9.1+cpu", "2.9.0", {}),
        ("commit", "a1", "b2", {}),
        ("threads", "4", "8", {}),
        ("cpu_capability", "AVX2", "AVX512", {"device": "cuda"}),
        ("cpu_capability", "AVX2", None, {}),
    ],
    ids=["a patch of torch", "commit", "threads", "the processor beside a GPU", "not recorded"],
)
def test_what_moves_no_more_than_a_last_digit_is_no_caution(sweep, column, reference, arm, others):
    assert machine_cautions(of_arm(sweep(), column, reference, arm, **others)) == []
