"""Data with as many points above the law as below it, so that laws along a stretch fit equally well."""

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis.fits.fit import fit
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import fit_points
from scalevec.analysis.solver.law_points import points_of
from scalevec.analysis.solver.newton import objective

PLANTED = {"power": {"A": 40.0, "alpha": 0.1}, "power-floor": {"E": 1.0, "A": 60.0, "alpha": 0.12}}
NOT_UNIQUE = "the optimum is not unique"
OPTIONS, L2 = AnalysisOptions(loss="huber"), AnalysisOptions(loss="l2")


def two_seeds(law: str, random_seed: int, n_rungs: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """C and losses of two seeds per rung, one on each side of the law, each by a distance of its own."""
    rng = np.random.default_rng(random_seed)
    x = np.geomspace(1e12, 1e15, n_rungs)
    below, above = np.exp(-rng.uniform(0.004, 0.02, n_rungs)), np.exp(rng.uniform(0.004, 0.02, n_rungs))
    loss = law_named(law).predict(PLANTED[law], {"x": x})
    return np.repeat(x, 2), np.stack([loss * below, loss * above], axis=1).ravel()


def best(law: str, x: np.ndarray, y: np.ndarray, options: AnalysisOptions = OPTIONS):
    return fit_points(points_of(law_named(law), {"x": x}), y, options)


def rows(x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"n_params": 1e6, "n_tokens": x / 6e6, "flops": x, "loss": y})


def warnings(table: pd.DataFrame, **options: str) -> list[str]:
    [fitted] = fit(table, bootstrap=0, hold_out="none", **{"loss": "huber", **options}).values()
    return [warning for warning in fitted.warnings if NOT_UNIQUE in warning]


def test_the_ranges_that_are_told_fit_equally_well_and_the_choice_is_among_them():
    fitted = best("power", *two_seeds("power", 0))
    low, high = fitted.equal_parameters()["alpha"]
    assert low <= fitted.parameters()["alpha"] <= high
    values = objective(fitted.problem(), fitted.equal_optima.theta)
    np.testing.assert_allclose(values, fitted.objective, rtol=1e-9)
    squares = objective(best("power", *two_seeds("power", 0), L2).problem(), fitted.equal_optima.theta)
    np.testing.assert_array_equal(fitted.theta, fitted.equal_optima.theta[np.argmin(squares)])


@pytest.mark.parametrize("law", PLANTED)
def test_a_fit_with_several_optima_says_so_with_the_range_of_its_parameters(law: str):
    [warning] = warnings(rows(*two_seeds(law, 0)), law=law)
    assert "alpha between 0." in warning
    assert warning.endswith(
        "fit equally well; shown is the one of them with the least sum of squared residuals"
    )


@pytest.mark.parametrize("law", PLANTED)
def test_a_fit_with_one_optimum_has_no_such_warning(law: str):
    rng = np.random.default_rng(0)
    x = np.sort(np.exp(rng.uniform(np.log(1e12), np.log(1e15), 15)))
    y = law_named(law).predict(PLANTED[law], {"x": x}) * np.exp(rng.normal(0, 0.003, 15))
    assert not warnings(rows(x, y), law=law)
    assert not warnings(rows(*two_seeds(law, 0)), law=law, loss="l2")


def test_a_floor_at_its_bound_of_zero_is_not_another_optimum():
    x = np.geomspace(1e12, 1e15, 9)
    # Log loss bends downwards, as if the floor were negative.
    y = (40 * x**-0.1 - 0.3) * np.exp(np.random.default_rng(3).normal(0, 1e-4, 9))
    fitted = best("power-floor", x, y)
    assert fitted.parameters()["E"] < 1e-3
    assert not fitted.equal_parameters()
