"""Noise between clusters: what is drawn has the covariance that intervals rest on."""

import numpy as np
import pytest

from scalevec.analysis.statistics.noise import MANY_CLUSTERS, RungNoise


@pytest.mark.parametrize("n_seeds", [5, 3 * MANY_CLUSTERS])
def test_draws_have_the_variance_of_a_contrast_whether_clusters_are_few_or_many(n_seeds):
    rng = np.random.default_rng(4)
    seeds, rungs = np.tile(np.arange(n_seeds), 2), np.repeat([0, 1], n_seeds)
    common = rng.normal(size=2 * n_seeds)
    values = np.stack([common, 0.8 * common + 0.3 * rng.normal(size=2 * n_seeds)]) * (1 + rungs)
    noise = RungNoise(values, rungs, seeds + n_seeds * rungs, rungs)
    weights = np.stack([np.full(2 * n_seeds, -1 / n_seeds), np.full(2 * n_seeds, 1 / n_seeds)])
    drawn = (noise.draws(20_000, rng) * weights).sum(axis=(1, 2))
    expected = sum(component.variance for component in noise.components(weights))
    assert np.var(drawn) == pytest.approx(expected, rel=0.05)
