"""The noise by size: its fit to the noise of pairs."""

import numpy as np
import pandas as pd
import pytest
from noise_by_size import noise_by_size, pooled_by_size

from scalevec.analysis import DataError
from scalevec.analysis.statistics.noise import Pooled


def test_a_planted_exponent_is_found():
    rng = np.random.default_rng(0)
    sizes = np.repeat(np.geomspace(2e4, 2e6, 5), 40)
    pooled = [
        (size, Pooled(0.02 * (size / 2e4) ** -0.3 * np.sqrt(rng.chisquare(3) / 3), 3)) for size in sizes
    ]
    fit = noise_by_size(pooled, 2e4)
    assert fit.exponent == pytest.approx(0.3, abs=3 * fit.error)
    assert fit.sd == pytest.approx(0.02, rel=0.1)


def test_one_size_says_nothing_of_others():
    with pytest.raises(DataError, match="two sizes or more; there are 1"):
        noise_by_size([(3e4, Pooled(0.01, 4)), (3e4, Pooled(0.02, 4))], 3e4)


def test_two_names_of_one_trial_have_no_noise(sweep):
    results = sweep(seeds=(0, 1, 2))
    results["trial_id"] = results.index.astype(str)
    baseline = results[results["arm"] == "baseline"]
    aliased = pd.concat([results, baseline.assign(arm="iwd")], ignore_index=True)
    noise, expected = (pooled_by_size(table, "baseline") for table in (aliased, results))
    assert noise == expected
