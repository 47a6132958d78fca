import numpy as np
import pytest

from scalevec.analysis.statistics.shared_seeds import by_rung_and_seed, shared_seeds

RUNGS, SETTINGS, SEEDS = (axis.ravel() for axis in np.indices((2, 4, 3)))
CELLS, UNITS = 4 * RUNGS + SETTINGS, 3 * RUNGS + SEEDS


def drawn(share: float, random_seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(random_seed)
    return share**0.5 * rng.normal(size=6)[UNITS] + (1 - share) ** 0.5 * rng.normal(size=24)


def test_the_layout_of_settings_and_seeds_has_its_textbook_degrees_of_freedom():
    # Two rungs of four settings x three seeds: 2 (3 - 1) between seeds, 2 (4 - 1)(3 - 1) left.
    assert shared_seeds(drawn(0.3), CELLS, UNITS, "settings").df == (4, 12)


def test_f_is_that_of_the_two_way_analysis_of_variance():
    values, cells, units = (
        np.array([1.0, 2.0, 6.0, 2.0, 5.0, 8.0]),
        np.repeat([0, 1], 3),
        np.tile([0, 1, 2], 2),
    )
    means = values.reshape(2, 3).mean(axis=0)
    between = 2 * np.sum((means - means.mean()) ** 2) / 2
    rest = values.reshape(2, 3) - values.reshape(2, 3).mean(axis=1)[:, None] - (means - means.mean())
    noise = np.sum(rest**2) / 2
    layout = shared_seeds(values, cells, units, "rungs")
    assert (layout.f, layout.df) == (pytest.approx(between / noise), (2, 2))
    component = (between - noise) / 2
    assert layout.share == pytest.approx(component / (component + noise))


def test_the_share_is_recovered_on_average():
    shares = [shared_seeds(drawn(0.5, number), CELLS, UNITS, "settings").share for number in range(100)]
    assert np.mean(shares) == pytest.approx(0.45, abs=0.1)  # a ratio of estimates is a little low


def test_seeds_of_one_cell_each_share_nothing_that_could_be_told():
    assert shared_seeds(drawn(0.0), CELLS, np.arange(24), "settings") is None


def test_rungs_are_compared_by_one_value_for_each_seed():
    means, rungs, seeds, _ = by_rung_and_seed(drawn(0.0), CELLS, RUNGS, SEEDS)
    assert sorted(zip(rungs, seeds, strict=True)) == [(r, s) for r in range(2) for s in range(3)]
    assert np.bincount(rungs, means) == pytest.approx([0, 0], abs=1e-12)
