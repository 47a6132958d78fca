"""Data with as many points above the law as below it, so that laws along a stretch fit equally well."""

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis.fits.fit import fit
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import fit_points
from scalevec.analysis.solver.flat_optimum import equal_optima
from scalevec.analysis.solver.law_points import points_of
from scalevec.analysis.solver.newton import objective, solve

PLANTED = {"power": {"A": 40.0, "alpha": 0.1}, "power-floor": {"E": 1.0, "A": 60.0, "alpha": 0.12}}
NOT_UNIQUE = "the optimum is not unique"
OPTIONS = AnalysisOptions(loss="huber")


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


@pytest.mark.parametrize("loss", ["huber", "l1"])
@pytest.mark.parametrize("law", PLANTED)
@pytest.mark.parametrize("random_seed", range(3))
def test_the_choice_is_the_same_for_permuted_rows(law: str, loss: str, random_seed: int):
    x, y = two_seeds(law, random_seed)
    order = np.random.default_rng(random_seed).permutation(len(x))
    options = AnalysisOptions(loss=loss)
    first, second = best(law, x, y, options), best(law, x[order], y[order], options)
    assert first.equal_parameters().keys() == PLANTED[law].keys()
    assert second.parameters() == pytest.approx(first.parameters(), rel=2e-7)


@pytest.mark.parametrize("law", PLANTED)
@pytest.mark.parametrize("random_seed", range(3))
def test_the_choice_is_the_same_from_other_starts(law: str, random_seed: int):
    x, y = two_seeds(law, random_seed)
    fitted = best(law, x, y)
    problem, rng = fitted.problem(), np.random.default_rng(random_seed)
    for _ in range(3):
        starts = fitted.points.starts(problem)
        reached = solve(problem, starts + rng.normal(0, 0.02, starts.shape)).best_first()
        chosen = equal_optima(problem, reached).theta[0]
        np.testing.assert_allclose(chosen, fitted.theta, rtol=2e-7)


@pytest.mark.parametrize("random_seed", range(3))
def test_the_choice_has_the_least_squares_among_the_laws_of_least_objective(random_seed: int):
    x, y = two_seeds("power", random_seed)
    fitted = best("power", x, y)
    # The law is linear in (ln A, alpha): every point of the square around the choice is tried.
    aside = np.linspace(-0.02, 0.02, 401)
    grid = fitted.theta + np.stack(np.meshgrid(aside, aside / 5), axis=-1).reshape(-1, 2)
    equal = grid[objective(fitted.problem(), grid) <= fitted.objective * (1 + 1e-9)]
    assert len(equal) > 10
    least = best("power", x, y, AnalysisOptions(loss="l2"))
    squares = objective(least.problem(), equal)
    assert objective(least.problem(), fitted.theta[None])[0] <= squares.min() * (1 + 1e-9)


def test_the_ranges_that_are_told_fit_equally_well():
    fitted = best("power", *two_seeds("power", 0))
    low, high = fitted.equal_parameters()["alpha"]
    assert low < fitted.parameters()["alpha"] < high
    values = objective(fitted.problem(), fitted.equal_optima.theta)
    np.testing.assert_allclose(values, fitted.objective, rtol=1e-9)
    exponents = fitted.points.parameters(fitted.equal_optima.theta)["alpha"]
    assert (exponents.min(), exponents.max()) == (low, high)


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


def sizes_and_budgets(random_seed: int, noise: float = 0.004) -> pd.DataFrame:
    """Losses of three sizes at three budgets with two seeds, each of which shifts the losses of a budget."""
    rng = np.random.default_rng(random_seed)
    ratio, n, seed = (values.ravel() for values in np.meshgrid([4, 16, 64], [25e3, 55e3, 83e3], [0, 1]))
    shift = rng.normal(0, 3 * noise, (3, 2))[np.searchsorted([4, 16, 64], ratio), seed]
    loss = 1.0 + 2.0 * (n / 25e3) ** -0.2 + 1.2 * (ratio * n / 4e5) ** -0.15 + shift
    loss += rng.normal(0, noise / 2**0.5, len(n))
    return pd.DataFrame({"n_params": n, "n_tokens": ratio * n, "seed": seed, "loss": loss})


@pytest.mark.parametrize("random_seed", [20, 28])
def test_a_law_with_a_floor_has_the_same_choice_and_range_for_permuted_rows(random_seed: int):
    table = sizes_and_budgets(random_seed)
    results = []
    for order in (None, 1, 2):
        rows = table if order is None else table.sample(frac=1, random_state=order)
        variables = {"N": rows["n_params"].to_numpy(), "D": rows["n_tokens"].to_numpy()}
        results.append(
            fit_points(points_of(law_named("chinchilla"), variables), rows["loss"].to_numpy(), OPTIONS)
        )
    first, *others = results
    low, high = first.equal_parameters()["E"]
    assert low < first.parameters()["E"] < high
    # Nearly flat beside the stretch: the digits of E reach less far than those of the objective.
    assert high - low > 0.05
    for other in others:
        assert other.parameters() == pytest.approx(first.parameters(), rel=1e-6)
        assert other.equal_parameters()["E"] == pytest.approx((low, high), abs=1e-3)


def test_the_choice_is_the_same_whichever_of_equal_optima_comes_first():
    x, y = two_seeds("power-floor", 0)
    fitted = best("power-floor", x, y)
    problem, reached = fitted.problem(), fitted.equal_optima
    for first in range(len(reached.theta)):
        order = np.roll(np.arange(len(reached.theta)), -first)
        chosen = equal_optima(problem, reached.rows(order)).theta[0]
        np.testing.assert_allclose(chosen, fitted.theta, rtol=1e-5)
