"""Trials of different identity versions never pair."""

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis import DataError, compare, fit


def compared(table: pd.DataFrame):
    return compare(table, reference="baseline", bootstrap=0).only


@pytest.fixture
def table(sweep) -> pd.DataFrame:
    return sweep(seeds=(0, 1, 2)).assign(identity_version=2)


def test_a_trial_of_an_earlier_version_is_no_counterpart(table):
    old = (table["seed"] == 0) & (table["arm"] == "unified")
    table.loc[old, "identity_version"] = 1
    comparison = compared(table)
    assert comparison.pairs == 8
    assert any("versions 1 and 2 are not paired" in text for text in comparison.warnings)
    assert any("without its counterpart: 25k, seed 0" in text for text in comparison.warnings)


@pytest.mark.parametrize("version", [1, 2, np.nan])
def test_trials_of_one_version_pair_and_nothing_is_said(table, version):
    comparison = compared(table.assign(identity_version=version))
    assert comparison.pairs == 12
    assert not any("version" in text for text in comparison.warnings)


def test_a_law_through_trials_of_both_versions_says_so(table):
    both = pd.concat([table, table[table["seed"] == 0].assign(identity_version=np.nan)])
    (warning,) = [text for text in fit(both, bootstrap=0)["baseline"].warnings if "identity versions" in text]
    assert "(4 of version 1 and 12 of version 2)" in warning
    assert "--where 'identity_version == 2'" in warning
    assert fit(both, bootstrap=0, where="identity_version == 2")["baseline"].n_points == 12
    assert not any("identity" in text for text in fit(table, bootstrap=0)["baseline"].warnings)


@pytest.mark.parametrize("version", ["two", 1.5, np.inf, -1])
def test_what_is_no_version_is_refused(table, version):
    with pytest.raises(DataError, match="column 'identity_version'"):
        compared(table.assign(identity_version=version))


def test_each_version_pairs_with_itself(table):
    both = pd.concat([table, table[table["seed"] == 0].assign(identity_version=np.nan)])
    assert compared(both).pairs == 16


def test_a_table_that_knows_no_versions_pairs_as_before(table):
    assert compared(table.drop(columns="identity_version")).pairs == 12
