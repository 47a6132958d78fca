"""What moves a loss within a pair is a caution."""

import pandas as pd
import pytest

from scalevec.analysis import compare


def only(table: pd.DataFrame):
    return compare(table, reference="baseline", bootstrap=0).only


def of_arm(table: pd.DataFrame, column: str, reference: str, arm: str, **others: str) -> pd.DataFrame:
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
    ("column", "reference", "arm"),
    [
        ("torch_version", "2.9.1+cpu", "2.9.0"),
        ("commit", "a1", "b2"),
        ("cpu_model", "Xeon", "EPYC"),
        ("threads", "4", "8"),
    ],
)
def test_what_moves_no_more_than_a_last_digit_is_no_caution(sweep, column, reference, arm):
    table = of_arm(sweep(), column, reference, arm)
    assert machine_cautions(table) == []


def test_the_processor_beside_a_gpu_is_no_caution(sweep):
    assert machine_cautions(of_arm(sweep(), "cpu_capability", "AVX2", "AVX512", device="cuda")) == []


def test_what_one_side_does_not_record_is_not_called_different(sweep):
    table = of_arm(sweep(), "cpu_capability", "AVX2", "AVX2")
    table.loc[table["arm"] == "unified", "cpu_capability"] = None
    assert machine_cautions(table) == []
