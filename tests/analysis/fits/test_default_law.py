"""Which law stands behind ``auto``: a floor where the points tell one, shared where only all arms do."""

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis import AnalysisOptions, compare, fit
from scalevec.analysis.fits.arm_data import with_default_law


def arms(floor: float, noise: float, sizes: int = 5, n_arms: int = 1, random_seed: int = 0) -> pd.DataFrame:
    """Arms of 20 tokens per parameter on one law each, three seeds a size."""
    rng = np.random.default_rng(random_seed)
    n = np.repeat(np.geomspace(2e7, 2e9, sizes).round(), 3)
    parts = []
    for arm in range(n_arms):
        loss = (floor + (40 - arm) * (120 * n**2) ** -0.12) * np.exp(noise * rng.standard_normal(len(n)))
        columns = {"arm": str(arm), "n_params": n, "n_tokens": 20 * n, "seed": np.tile([0, 1, 2], sizes)}
        parts.append(pd.DataFrame(columns).assign(loss=loss))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(
    ("table", "law"),
    [
        (arms(1.8, 1e-3), "power-floor"),
        (arms(0.0, 1e-3), "power"),
        (arms(1.8, 1e-3, sizes=3), "power"),
        (arms(1.8, 1e-3, n_arms=2), "power-floor"),
        (arms(0.0, 1e-3, n_arms=2), "power"),
        (arms(1.8, 1.2e-2, n_arms=6), "power-floor-shared"),
    ],
)
def test_the_default_law_has_a_floor_where_the_data_identify_one(table: pd.DataFrame, law: str):
    assert with_default_law(AnalysisOptions(), table).law == law


def test_a_fit_and_a_comparison_say_which_law_was_chosen():
    table = arms(1.8, 1e-3, n_arms=2)
    assert fit(table, bootstrap=0)["0"].options.law == "power-floor"
    assert compare(table, reference="0", bootstrap=0).only.options.law == "power-floor"


def test_an_arm_that_diverged_at_most_sizes_takes_no_floor_from_the_others():
    table = arms(1.8, 1e-3, n_arms=2)
    cut = table[(table["arm"] == "0") | (table["n_params"] < 1e8)]
    fits = fit(cut, bootstrap=0)
    assert fits["0"].options.law == "power-floor-shared"
    assert fits["0"].parameters["E"] == pytest.approx(1.8, rel=0.02)
