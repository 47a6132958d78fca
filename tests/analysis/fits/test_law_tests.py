"""A law of the wrong form is found out by repeated seeds; one of the right form mostly is not."""

import numpy as np

from scalevec.analysis.fits import hold_out
from scalevec.analysis.fits.hold_out import SIGNIFICANT, LackOfFit
from scalevec.analysis.laws import law_named
from scalevec.analysis.solver.law_points import points_of

X = np.repeat(np.geomspace(1e15, 1e18, 5), 3)


def lack_of_fit(law: str, x: np.ndarray, loss: np.ndarray) -> LackOfFit | None:
    return hold_out.lack_of_fit(points_of(law_named(law), {"x": x}), loss)


def losses(floor: float, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, 1e-3, len(X))
    return (floor + 1200.0 * X**-0.16) * np.exp(noise)


def test_the_right_law_is_rejected_as_often_as_stated():
    p_values = [lack_of_fit("power", X, losses(0.0, seed)).p for seed in range(300)]
    assert np.mean(np.array(p_values) < 0.1) < 0.15
    assert np.mean(np.array(p_values) < 0.5) > 0.4
    assert np.mean(np.array(p_values) < SIGNIFICANT) < 0.03


def test_one_seed_a_rung_cannot_tell():
    assert lack_of_fit("power", X[::3], losses(0.0, 0)[::3]) is None


def test_as_many_rungs_as_parameters_cannot_tell():
    few = np.unique(X)[1] >= X
    assert lack_of_fit("power", X[few], losses(0.0, 0)[few]) is None
