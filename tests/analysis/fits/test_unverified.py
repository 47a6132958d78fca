"""A solution that is not a verified optimum is said wherever its numbers are used."""

import numpy as np
import pytest

from scalevec.analysis import compare, fit
from scalevec.analysis.solver import best_fit as estimate
from scalevec.analysis.solver.newton import Solution, newton


@pytest.fixture
def few_optima(monkeypatch: pytest.MonkeyPatch):
    """Lets every ``one_in``-th row of each solution count as not verified."""

    def spoil(one_in: int) -> None:
        def spoiled(*problem) -> Solution:
            fitted = newton(*problem)
            return fitted._replace(optimal=np.arange(len(fitted.optimal)) % one_in != one_in - 1)

        monkeypatch.setattr(estimate, "newton", spoiled)
        monkeypatch.setattr(estimate, "_KEPT", {})

    return spoil


def test_replicates_without_an_optimum_are_left_out_and_counted(sweep, few_optima):
    few_optima(40)
    (fitted,) = fit(sweep({"baseline": 0.0}), bootstrap=100).values()
    assert fitted.n_bootstrap == 98
    assert "2 of the 100 bootstrap replicates are left out: no verified optimum" in fitted.interval_note


def test_replicates_of_a_multiplier_without_an_optimum_are_left_out_and_counted(sweep, few_optima):
    few_optima(40)
    middle = compare(sweep(random_seed=1), reference="baseline", bootstrap=100).only.compute_multipliers[0]
    assert middle.interval is not None
    assert "2 of 100 bootstrap replicates are left out: no verified optimum" in middle.note


def test_many_replicates_without_an_optimum_leave_no_interval_of_a_multiplier(sweep, few_optima):
    few_optima(10)
    middle = compare(sweep(random_seed=1), reference="baseline", bootstrap=100).only.compute_multipliers[0]
    assert middle.interval is None
    assert "10 of 100 bootstrap replicates leave a parameter free" in middle.note


def test_a_multiplier_and_a_hold_out_from_no_optimum_say_so(sweep, few_optima):
    few_optima(1)
    (fitted,) = fit(sweep({"baseline": 0.0}), bootstrap=0).values()
    assert not fitted.hold_out["optimal"]
    assert "the law that predicts the hold-out is not a verified optimum" in fitted.warnings
    compared = compare(sweep(random_seed=1), reference="baseline", bootstrap=0).only
    assert "not from verified optima" in compared.compute_multipliers[0].note
