"""The noise by size: its fit to the noise of pairs."""

import numpy as np
import pytest
from noise_by_size import noise_by_size

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
