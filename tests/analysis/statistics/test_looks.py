"""Looks share one alpha: boundaries against an integral of another kind, and the sequential p-value."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from scalevec.analysis.statistics.looks import Look, nominal, sequential_p

# The probability of a box under the joint normal law of the statistics, by Genz's algorithm (in scipy): no
# recursion over looks, so that it shares nothing with what it checks.
DESIGNS = [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), (3, 5, 8), (2, 9, 10)]


def crossed_by(looks: tuple[int, ...], bounds: list[float]) -> float:
    """The chance that paths without drift leave ``bounds`` at one of the first looks."""
    sizes = np.array(looks[: len(bounds)], float)
    correlation = np.sqrt(np.minimum.outer(sizes, sizes) / np.maximum.outer(sizes, sizes))
    edges = np.array(bounds)
    joint = multivariate_normal(np.zeros(len(edges)), correlation, seed=0, maxpts=10**6, abseps=1e-7)
    return 1 - float(joint.cdf(edges, lower_limit=-edges))


@pytest.mark.parametrize("looks", DESIGNS)
@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_by_each_look_the_boundaries_are_crossed_as_often_as_the_spending_function_says(looks, alpha):
    bounds = [-norm.ppf(p / 2) for p in nominal(looks, alpha)]
    for number in range(1, len(looks) + 1):
        share = looks[number - 1] / looks[-1]
        assert crossed_by(looks, bounds[:number]) == pytest.approx(alpha * share**1.5, abs=2e-6)


def test_only_the_ratios_of_the_looks_count():
    assert nominal((3, 5, 8), 0.05) == pytest.approx(nominal((30, 50, 80), 0.05))


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
