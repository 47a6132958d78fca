"""Looks share one alpha: boundaries against published ones, and the sequential p-value."""

import numpy as np
import pytest

from scalevec.analysis.statistics.looks import Look, boundaries, nominal, sequential_p, spent

# Two-sided 5 %, equally spaced looks, Lan-DeMets spending of O'Brien-Fleming type: the values that the
# packages ldbounds and gsDesign print.
PUBLISHED = {
    1: [1.9600],
    2: [2.9626, 1.9686],
    3: [3.7103, 2.5114, 1.9930],
    4: [4.3326, 2.9631, 2.3590, 2.0141],
    5: [4.8769, 3.3569, 2.6803, 2.2898, 2.0310],
}


@pytest.mark.parametrize("n_looks", PUBLISHED)
def test_equally_spaced_looks_have_the_published_boundaries(n_looks):
    assert boundaries(range(1, n_looks + 1), 0.05) == pytest.approx(PUBLISHED[n_looks], abs=2e-4)


def test_all_of_alpha_is_spent_at_the_last_look():
    assert spent(1.0, 0.05) == pytest.approx(0.05)
    assert spent(0.5, 0.05) < 0.005


def test_only_the_ratios_of_the_looks_count():
    assert boundaries([3, 5, 8], 0.05) == pytest.approx(boundaries([30, 50, 80], 0.05))


def test_paths_without_drift_leave_the_boundaries_as_often_as_alpha_says():
    """200,000 paths: the standard error of the share is 0.0005."""
    looks = np.array([3, 5, 8])
    steps = np.random.default_rng(0).normal(size=(200_000, 3)) * np.sqrt(np.diff(looks, prepend=0))
    z = np.cumsum(steps, axis=1) / np.sqrt(looks)
    crossed = (np.abs(z) > boundaries(looks.tolist(), 0.05)).any(axis=1)
    assert crossed.mean() == pytest.approx(0.05, abs=0.002)


@pytest.mark.parametrize("alpha", [1e-6, 0.01, 0.05, 0.3])
def test_the_sequential_p_is_the_alpha_whose_boundary_is_met(alpha):
    looks = (3, 5, 8)
    at_second = nominal(looks, alpha)[1]
    assert sequential_p(looks, [0.9, at_second]) == pytest.approx(alpha, rel=1e-4)


def test_one_look_changes_no_p_value():
    assert sequential_p((8,), [0.03]) == pytest.approx(0.03, rel=1e-6)


def test_without_a_noise_figure_there_is_no_sequential_p():
    assert sequential_p((3, 5), [None]) is None


def test_a_look_widens_its_interval():
    levels = [Look((3, 5, 8), number, None).level(0.95) for number in range(3)]
    assert levels == sorted(levels, reverse=True)
    assert levels[-1] > 0.95
