"""Trials of different identity versions never pair: their random numbers follow from something else."""

import pandas as pd
import pytest

from scalevec.analysis import compare


def compared(table: pd.DataFrame):
    return compare(table, reference="baseline", bootstrap=0).only


@pytest.fixture
def table(sweep) -> pd.DataFrame:
    return sweep(seeds=(0, 1, 2)).assign(identity_version=2)


def test_a_trial_of_another_version_is_no_counterpart(table):
    old = (table["seed"] == 0) & (table["arm"] == "unified")
    table.loc[old, "identity_version"] = 1
    comparison = compared(table)
    assert comparison.pairs == 8
    assert any("without its counterpart: 25k, seed 0" in text for text in comparison.warnings)


def test_each_version_pairs_with_itself(table):
    both = pd.concat([table, table[table["seed"] == 0].assign(identity_version=1)])
    assert compared(both).pairs == 16
